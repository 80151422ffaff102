"""Checks of arguments: each error names the argument, what it got and what it takes."""

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def shape(name: str, tensor: Tensor, expected: Sequence[int | str]) -> None:
    """Require a shape; a string in ``expected`` stands for any size and is shown in the message."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    fits = len(expected) == tensor.dim() and all(
        isinstance(want, str) or want == got for want, got in zip(expected, tensor.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(tensor.shape)}")


def numbers(name: str, values: Any) -> Tensor:
    """Turn a tensor, an array, a data frame or nested lists of real numbers into a tensor."""
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
    if array.dtype == object:
        array = array.astype(np.float64)
    # Torch takes no negative strides, and warns of arrays that may not be written to.
    usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return array if usable else array.copy()


def table(name: str, values: Any) -> Tensor:
    """The same, with rows and columns."""
    tensor = numbers(name, values)
    if tensor.dim() == 1:
        raise ValueError(
            f"{name} must have rows and columns, got shape {tuple(tensor.shape)}; "
            "add the dimension of a single column by [:, None]"
        )
    shape(name, tensor, ("rows", "columns"))
    return tensor


def finite(name: str, tensor: Tensor) -> None:
    """Require that no value is NaN or infinite."""
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
    """Require a seed of a generator: from 0 to 2**bits - 1, and 32 is what NumPy's legacy one takes."""
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
    return float(value)


def flag(name: str, value: object) -> bool:
    """Require True or False, of Python's kind or numpy's."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: object, options: Iterable[object]) -> None:
    """Require a member of a list of names."""
    options = list(options)
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")


def device(name: str) -> torch.device:
    """The device of that name; "auto" is a CUDA device where there is one, and else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
        torch.zeros(1, dtype=torch.float64, device=found).item()  # units need float64, which some lack
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used: {reason}; take 'auto' or 'cpu'") from error
    return found
