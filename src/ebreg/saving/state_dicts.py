"""State dicts: whether tensors by name are those of a network."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

# How many names a message shows of each kind.
_SHOWN = 3


def differences(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """What distinguishes tensors from a network's own; empty if they fit.

    Args:
        own: The state dict of the network; it may be on the meta device.
        tensors: What should fit it by name, shape and type.
    """
    kinds = {
        "missing": [name for name in own if name not in tensors],
        "unexpected": [name for name in tensors if name not in own],
        "of another shape": [
            f"{name} has {tuple(tensors[name].shape)}, not {tuple(value.shape)}"
            for name, value in own.items()
            if name in tensors and tensors[name].shape != value.shape
        ],
        "of another type": [
            f"{name} holds {tensors[name].dtype}"
            for name, value in own.items()
            if name in tensors and not (is_dense(tensors[name]) and tensors[name].dtype == value.dtype)
        ],
    }
    return "; ".join(f"{len(names)} {kind}: {_some(names)}" for kind, names in kinds.items() if names)


def not_finite(tensors: Mapping[str, Tensor], may_be_infinite: Collection[str] = ()) -> str:
    """The names of tensors that hold NaN or infinite values; empty if none does.

    Args:
        tensors: By name.
        may_be_infinite: Names of those in which infinite values have a meaning, such as bounds.
    """
    return _some(
        [
            name
            for name, value in tensors.items()
            if torch.isnan(value).any() or (name not in may_be_infinite and torch.isinf(value).any())
        ]
    )


def is_dense(value: Tensor) -> bool:
    """Whether it is an ordinary tensor: neither sparse, quantized nor on the meta device."""
    return value.layout == torch.strided and not value.is_quantized and not value.is_meta


def allocate(module: nn.Module) -> None:
    """Give memory, without values, to what was built on the meta device; in place."""
    for part in module.modules():
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if any(value.is_meta for value in own):
            part.to_empty(device="cpu", recurse=False)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
