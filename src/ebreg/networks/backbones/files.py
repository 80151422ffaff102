"""Weight files: what a checkpoint holds, whoever wrote it, put into a network by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebreg.errors import CheckpointError

# Where training scripts put the weights, beside the state of an optimiser and the like.
_NESTS = ("state_dict", "model")
# How many names a message shows of each kind.
_SHOWN = 3
# The counters of batch-norm; files of older versions of torch have none, and nothing here reads them.
_COUNTER = "num_batches_tracked"
_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def fill(network: nn.Module, path: str | Path, ignored: tuple[str, ...] = ()) -> None:
    """Load weights that must fit by name and shape; nothing in the file is executed.

    The weights may lie under ``state_dict`` or ``model``, and a prefix that all names share is left out.

    Args:
        network: What they go into, in place.
        path: A ``.safetensors``, ``.pth`` or ``.pt`` file.
        ignored: Beginnings of names that the file may have and the network has not.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If it cannot be read, or is not of this network.
    """
    path, own = Path(path), network.state_dict()
    tensors = _without_prefix(_state_dict(path, _read(path)), own)
    tensors = {name: value for name, value in tensors.items() if not name.startswith(ignored)}
    _check_fits(path, type(network).__name__, own, tensors)
    network.load_state_dict({**own, **tensors})


def _read(path: Path) -> Any:
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise ValueError(f"weights must be a .safetensors, .pth or .pt file, got {path}")
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path}; give the path of a checkpoint, or leave weights out for random ones"
        )
    return _read_tensors(path) if path.suffix == ".safetensors" else _read_pickle(path)


def _read_tensors(path: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is truncated or damaged ({error}); download or save it again"
        ) from error


def _read_pickle(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle fails in as many ways as there are bytes
        raise CheckpointError(
            f"{path} is damaged, or holds objects that could run code beside its tensors; download it again, "
            "or save its state dict alone"
        ) from error


def _state_dict(path: Path, content: Any) -> dict[str, Tensor]:
    while isinstance(content, Mapping):
        inner = [content[name] for name in _NESTS if isinstance(content.get(name), Mapping)]
        if not inner:
            break
        content = inner[0]
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise CheckpointError(
            f"{path} must hold tensors by name, at the top or under {' or '.join(map(repr, _NESTS))}, and "
            "holds something else; save the state dict of the network"
        )
    return dict(content)


def _without_prefix(tensors: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # Wrappers, as for training on several devices, put their name before all others.
    if own.keys() & tensors.keys():
        return tensors
    first = next(iter(own))
    found = min((name for name in tensors if name.endswith(f".{first}")), key=len, default=first)
    prefix = found.removesuffix(first)
    return {name.removeprefix(prefix): value for name, value in tensors.items()}


def _check_fits(path: Path, network: str, own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    here = {name: tuple(value.shape) for name, value in own.items()}
    there = {name: tuple(value.shape) for name, value in tensors.items()}
    kinds = {
        "missing": [name for name in here if name not in there and not name.endswith(_COUNTER)],
        "unexpected": [name for name in there if name not in here],
        "of another shape": [
            f"{name} has {there[name]}, not {shape}"
            for name, shape in here.items()
            if there.get(name, shape) != shape
        ],
        "of another type": [
            f"{name} holds {value.dtype}"
            for name, value in tensors.items()
            if name in own and not _is_like(value, own[name])
        ],
    }
    if any(kinds.values()):
        what = "; ".join(f"{len(names)} {kind}: {_some(names)}" for kind, names in kinds.items() if names)
        raise CheckpointError(f"{path} is not of a {network} ({what}); give a checkpoint of that network")
    broken = [name for name, value in tensors.items() if not torch.isfinite(value).all()]
    if broken:
        raise CheckpointError(f"{path} has weights that are not finite: {_some(broken)}; give another file")


def _is_like(value: Tensor, own: Tensor) -> bool:
    # Plain real numbers of any common precision for weights, whole ones for counters.
    plain = value.layout == torch.strided and not value.is_quantized and not value.is_meta
    return plain and (value.dtype in _REAL if own.is_floating_point() else not value.dtype.is_floating_point)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
