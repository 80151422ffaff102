"""Checkpoints: one safetensors file with a JSON header, written atomically, nothing executed when read."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebreg.errors import CheckpointError
from ebreg.saving import atomic_files

FORMAT = 1


def prepare(path: Path) -> None:
    """Make the folder of a checkpoint, and fail now rather than at the first write."""
    if path.is_dir():
        raise IsADirectoryError(f"checkpoint must be a file, and {path} is a folder; name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"checkpoint {path} cannot be written: no right to write in {path.parent}")


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint; after a crash at any moment the old file or the new one is there, whole."""
    from safetensors.torch import save

    # safetensors refuses tensors that share memory, as tied weights do.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    content = save(tensors, metadata={"ebreg": json.dumps({"format": FORMAT, **facts})})
    with atomic_files.replacing(path) as partial:
        partial.write_bytes(content)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write` wrote.

    Raises:
        CheckpointError: If the file is truncated, not a checkpoint, or of a newer format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("ebreg", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is truncated or not a checkpoint ({error}); delete it or give another path to start anew"
        ) from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{path} holds tensors but is not an ebreg checkpoint; give another path")
    if facts.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {facts.get('format')}, this version reads format {FORMAT}; "
            "upgrade ebreg, or delete the file to start anew"
        )
    return tensors, facts


def check_fits(module: torch.nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Require the names and shapes of a module.

    Raises:
        CheckpointError: Naming the first difference.
    """
    own = module.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or extra:
        what = f"lacks {missing[0]!r}" if missing else f"has {extra[0]!r}, which this one lacks"
        raise CheckpointError(f"{path} is of another model: it {what}; give another path")
    for name, tensor in own.items():
        there, here = _kind(tensors[name]), _kind(tensor)
        if there != here:
            raise CheckpointError(
                f"{path} is of another model: {name!r} is {there} there and {here} here; give another path"
            )


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"
