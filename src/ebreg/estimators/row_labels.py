"""Labels and times of rows, as the user gives them: checked, and as numbers."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebreg.estimators.inputs import to_host


def codes(groups: Any, n_rows: int) -> Tensor:
    """The number of each row's group, (n,), by the order in which the groups appear.

    Args:
        groups: A label for each row, (n,), of any hashable kind.
        n_rows: n.
    """
    values = _column("groups", groups, n_rows)
    _check_missing("groups", values, "give these rows a label of their own")
    numbers: dict[Any, int] = {}
    try:
        return torch.tensor([numbers.setdefault(value, len(numbers)) for value in values.tolist()])
    except TypeError as error:
        raise ValueError(
            f"groups must hold one label for each row, such as text or whole numbers ({error})"
        ) from error


def ranks(time: Any, n_rows: int) -> Tensor:
    """The rank of each row's time, (n,), from 0; equal times have the same.

    Args:
        time: A number or a date for each row, (n,).
        n_rows: n.
    """
    values = _column("time", time, n_rows)
    _check_missing("time", values, "remove those rows")
    listed = values.tolist()
    if any(isinstance(value, float) and math.isinf(value) for value in listed):
        raise ValueError("time must be finite, got an infinite value")
    if values.dtype.kind in "USc" or any(isinstance(value, str | bytes) for value in listed):
        raise ValueError("time must hold numbers or dates; convert text by pandas.to_datetime")
    try:
        return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))
    except TypeError as error:
        raise ValueError(f"time must hold numbers or dates of one kind, in an order ({error})") from error


def _column(name: str, values: Any, n_rows: int) -> np.ndarray:
    if isinstance(values, Tensor):
        values = to_host(values) if values.is_floating_point() else values.detach().cpu()
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, Iterable) and not hasattr(values, "__array__") and not isinstance(values, str):
        # numpy would turn 1 and None or text into one type.
        array = np.fromiter(map(_plain, values), dtype=object)
    else:
        array = np.asarray(values)
        if array.dtype == object and array.ndim == 1:
            array = np.fromiter(map(_plain, array), dtype=object)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), one value for each row; got {array.shape}")
    if len(array) != n_rows:
        raise ValueError(f"{name} must have one value for each row, got {len(array)} for {n_rows} rows")
    return array


def _plain(value: Any) -> Any:
    # Tensors are equal only to themselves.
    return value.item() if isinstance(value, Tensor | np.ndarray) and value.ndim == 0 else value


def _check_missing(name: str, values: np.ndarray, advice: str) -> None:
    if values.dtype == object:
        missing = np.fromiter(map(_is_missing, values), dtype=bool, count=len(values))
    else:
        missing = values != values
    if missing.any():
        raise ValueError(
            f"{name} must have a value in every row, got none at row {int(missing.argmax())} "
            f"({int(missing.sum())} such rows in all); {advice}"
        )


def _is_missing(value: Any) -> bool:
    # NaN and NaT differ from themselves; pandas.NA does not say.
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError, RuntimeError):
        return True
