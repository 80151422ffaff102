"""Weight files of backbones: state dicts from any library, put into a network by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebreg.errors import CheckpointError
from ebreg.saving import state_dicts

# The keys under which training scripts save the weights, beside the state of an optimizer and the like.
_KEYS = ("state_dict", "model")
# The counters of batch-norm; files of older versions of torch have none, and no network here reads them.
_COUNTER = "num_batches_tracked"
_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def fill(network: nn.Module, path: str | Path, ignored: tuple[str, ...] = ()) -> None:
    """Load weights that must fit by name and shape; nothing in the file is executed.

    The weights may be under ``state_dict`` or ``model``, and a prefix that all names share is left out.

    Args:
        network: Gets the weights, in place.
        path: A ``.safetensors``, ``.pth`` or ``.pt`` file.
        ignored: Beginnings of names that the file may have and the network has not.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If it cannot be read, or is not of this network.
    """
    path, own = Path(path), network.state_dict()
    tensors = _without_prefix(_state_dict(path, _read(path)), own)
    tensors = {name: value for name, value in tensors.items() if not name.startswith(ignored)}
    counters = {name: value for name, value in own.items() if name.endswith(_COUNTER)}
    tensors = counters | {name: _in_type_of(own.get(name), value) for name, value in tensors.items()}
    found = state_dicts.differences(own, tensors)
    if found:
        raise CheckpointError(
            f"{path} is not of a {type(network).__name__} ({found}); give a checkpoint of that network"
        )
    found = state_dicts.not_finite(tensors)
    if found:
        raise CheckpointError(f"{path} has weights that are not finite: {found}; give another file")
    network.load_state_dict(tensors)


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
        inner = [content[name] for name in _KEYS if isinstance(content.get(name), Mapping)]
        if not inner:
            break
        content = inner[0]
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise CheckpointError(
            f"{path} must hold tensors by name, at the top or under {' or '.join(map(repr, _KEYS))}, and "
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


def _in_type_of(own: Tensor | None, value: Tensor) -> Tensor:
    # Weights may be stored in any common precision, and counters as any whole numbers.
    if own is None or not state_dicts.is_dense(value):
        return value
    if own.is_floating_point():
        return value.to(own.dtype) if value.dtype in _REAL else value
    is_whole = not value.dtype.is_floating_point and not value.dtype.is_complex
    return value.to(own.dtype) if is_whole else value
