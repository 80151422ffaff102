"""Checks of arguments: each error names the argument, what it takes and what it got."""

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def shape(name: str, tensor: Tensor, expected: Sequence[int | str]) -> None:
    """Require a shape; a string in ``expected`` allows any size and is shown in the message."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    fits = len(expected) == tensor.dim() and all(
        isinstance(want, str) or want == got for want, got in zip(expected, tensor.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(tensor.shape)}")


def numbers(name: str, values: Any) -> Tensor:
    """A tensor from a tensor, an array, a data frame or nested lists of real numbers."""
    try:
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(_array(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} must hold numbers, as a tensor, an array or lists; got {type(values).__name__} ({error})"
        ) from error
    if tensor.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
    return tensor


def _array(values: Any) -> Any:
    import numpy as np  # torch needs it for arrays anyway

    if values is None:
        raise TypeError("nothing was given")
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    # Torch takes no objects, no long doubles and no foreign byte order ...
    if array.dtype in (object, np.longdouble) or not array.dtype.isnative:
        array = array.astype(np.float64)
    # ... and no negative strides, and warns of read-only arrays.
    usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return array if usable else array.copy()


def table(name: str, values: Any) -> Tensor:
    """A tensor (rows, columns) of real numbers; see :func:`numbers`."""
    tensor = numbers(name, values)
    if tensor.dim() == 1:
        raise ValueError(
            f"{name} must have rows and columns, got shape {tuple(tensor.shape)}; "
            "for a single column use [:, None]"
        )
    shape(name, tensor, ("rows", "columns"))
    return tensor


def levels(name: str, values: Any) -> Tensor:
    """Probabilities in (0, 1), at least one, as a tensor in float64 of any shape."""
    tensor = numbers(name, values).detach().to(torch.float64, copy=True)
    if not tensor.numel():
        raise ValueError(f"{name} must hold at least one number in (0, 1), got shape {tuple(tensor.shape)}")
    if not ((tensor > 0) & (tensor < 1)).all():
        raise ValueError(
            f"{name} must lie in (0, 1), got {tensor.flatten().tolist()[:10]}; 0.9 stands for 90 %"
        )
    return tensor


def finite(name: str, tensor: Tensor) -> None:
    """Require that no value is NaN or infinite."""
    if tensor.is_floating_point() and torch.isfinite(tensor.sum()):
        return  # the usual case, with one look at each; a sum of large values may be infinite too
    bad = ~torch.isfinite(tensor)
    if bad.any():
        where = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"{name} must be finite, got {tensor[where].item()} at index {where} "
            f"({int(bad.sum())} such values in all); remove or impute those rows"
        )


def at_least(name: str, value: int, minimum: int) -> int:
    """Require a whole number of at least ``minimum``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def seed(value: int, bits: int = 32) -> int:
    """Require a seed from 0 to 2**bits - 1; NumPy's ``RandomState`` takes 32 bits."""
    if at_least("seed", value, 0) >= 2**bits:
        raise ValueError(f"seed must be at most 2**{bits} - 1, got {value}")
    return int(value)


def positive(name: str, value: float) -> float:
    """Require a finite number above zero."""
    number = _real(name, value)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return number


def not_negative(name: str, value: float) -> float:
    """Require a finite number of at least zero."""
    number = _real(name, value)
    if not (number >= 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
    return number


def fraction(name: str, value: float) -> float:
    """Require a number in (0, 1), both excluded."""
    number = _real(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {value:g}; 0.9 stands for 90 %")
    return number


def _real(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    # As written: 0.99 in single precision is meant to be 0.99.
    return float(str(value)) if hasattr(value, "dtype") else float(value)


def flag(name: str, value: object) -> bool:
    """Require True or False, of Python or of numpy."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: object, options: Iterable[object]) -> None:
    """Require a member of a list of names."""
    options = list(options)
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")


def device(name: str) -> torch.device:
    """The device of a name; "auto" is CUDA if available, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
        torch.zeros(1, dtype=torch.float64, device=found).item()  # units need float64, which MPS lacks
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used: {reason}; take 'auto' or 'cpu'") from error
    return found
