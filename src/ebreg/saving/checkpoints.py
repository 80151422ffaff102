"""Checkpoints: tensors and facts in one safetensors file, written atomically."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ebreg.errors import CheckpointError
from ebreg.saving import atomic_files, files, json_files, state_dicts

FORMAT = files.Format(
    "ebreg-checkpoint",
    "checkpoint",
    CheckpointError,
    "delete it or give another path to start anew",
)


def prepare(path: Path) -> None:
    """Make the folder of a checkpoint, and fail now rather than at the first write."""
    if path.is_dir():
        raise IsADirectoryError(f"checkpoint must be a file, and {path} is a folder; name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"checkpoint {path} cannot be written: no right to write in {path.parent}")


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint; after a crash at any moment the file is the old one or the new one."""
    tensors = files.plain_tensors(tensors)
    header = json_files.encode(files.seal(FORMAT, facts, tensors))
    content = files.encode_tensors(tensors, header)
    with atomic_files.replacing(path) as partial:
        partial.write_bytes(content)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If it is truncated, damaged, not a checkpoint, or of a later format.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); {FORMAT.remedy}") from error
    tensors, header = files.decode_tensors(FORMAT, path, content)
    envelope = files.unseal(FORMAT, path, header)
    files.verify(FORMAT, path, envelope, tensors)
    return tensors, envelope.facts


def check_fits(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Require the names, shapes and types of a module's state dict.

    Raises:
        CheckpointError: Naming the differences.
    """
    found = state_dicts.differences(module.state_dict(), tensors)
    if found:
        raise CheckpointError(f"{path} is of another model ({found}); give another path")
