"""The user's X and y as tensors: checked, never changed, with the names and the index that they carry."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _num_samples, check_array, validate_data
from torch import Tensor

from ebreg._utils import checks


@dataclass(frozen=True)
class Targets:
    """The targets of a fit.

    Attributes:
        y: Shape (n, D), float64.
        drop_axis: Whether they came as (n,).
        names: Of the targets, where they came with names.
    """

    y: Tensor
    drop_axis: bool
    names: list[str] | None


def table(estimator: BaseEstimator, X: Any, reset: bool) -> Tensor:
    """A table X as (n, C), float64; ``reset`` notes the number and the names of its columns."""
    _refuse_dates("X", X)
    array = validate_data(estimator, on_host(X), dtype=np.float64, reset=reset, ensure_min_samples=int(reset))
    return torch.from_numpy(_shareable(array))


def examples(X: Any) -> Tensor:
    """Inputs of the user's own backbone, (n, ...), in their own dtype."""
    array = X.to_numpy() if hasattr(X, "to_numpy") else X
    x = checks.numbers("X", _shareable(array) if isinstance(array, np.ndarray) else array).detach()
    if x.dim() < 2:
        raise ValueError(f"X must have shape (n, ...) with one example a row, got {tuple(x.shape)}")
    if x.is_floating_point():
        checks.finite("X", x)
    return x


def examples_like(X: Any, shape: tuple[int, ...], dtype: torch.dtype | None) -> Tensor:
    """The same for a backbone that was fitted on examples of a shape and, where it is known, a dtype."""
    x = examples(X)
    if tuple(x.shape[1:]) != shape:
        raise ValueError(f"X has examples of shape {tuple(x.shape[1:])}; the model was fitted on {shape}")
    if dtype is None:
        return x
    # The kind of numbers is kept, not their precision: a list of whole numbers may stand for real ones.
    cast = x if dtype.is_floating_point and x.is_floating_point() else x.to(dtype)
    if not dtype.is_floating_point and not torch.equal(cast.to(x.dtype), x):
        raise ValueError(f"X must hold numbers of type {dtype}, as the model was fitted on; got {x.dtype}")
    return cast


def targets(X: Any, y: Any) -> Targets:
    """Targets y, (n,) or (n, D), for the rows of X."""
    if y is None:
        # The wording that scikit-learn looks for.
        raise ValueError("This estimator requires y to be passed, but the target y is None")
    names = _names(y)
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"the columns of y must have different names, got {', '.join(names)}")
    _refuse_dates("y", y)
    array = check_array(
        on_host(y), ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=1, allow_nd=True
    )
    if array.ndim not in (1, 2):
        raise ValueError(f"y must have shape (n,) or (n, D), got {array.shape}")
    if len(array) != _num_samples(X):
        raise ValueError(
            f"X and y must have as many rows as each other, got {_num_samples(X)} and {len(array)}"
        )
    if array.ndim == 2 and array.shape[1] == 0:
        raise ValueError(f"y must have at least one column, got shape {array.shape}")
    y = torch.from_numpy(np.array(array, dtype=np.float64))
    return Targets(y.reshape(len(y), -1), array.ndim == 1, names)


def index_of(X: Any) -> Any:
    """The labels of the rows of a data frame, or None."""
    return X.index if hasattr(X, "index") and hasattr(X, "columns") else None


def on_host(values: Any) -> Any:
    """A tensor as an array, from any device, of any precision; anything else as it is."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values if values.is_complex() else values.double()).numpy()


def _shareable(array: np.ndarray) -> np.ndarray:
    # Torch takes neither reversed arrays nor, without a warning, those that may not be written to.
    return np.ascontiguousarray(array) if array.flags.writeable else array.copy()


def _refuse_dates(name: str, values: Any) -> None:
    # scikit-learn would read them as nanoseconds.
    dtypes = getattr(values, "dtypes", getattr(values, "dtype", None))
    kinds = [getattr(dtype, "kind", "") for dtype in (dtypes if np.iterable(dtypes) else [dtypes])]
    if set(kinds) & {"M", "m"}:
        raise ValueError(f"{name} holds dates or times; turn them into numbers, such as days since a date")


def _names(y: Any) -> list[str] | None:
    if hasattr(y, "columns"):
        return [str(name) for name in y.columns]
    name = getattr(y, "name", None)
    return None if name is None or not hasattr(y, "index") else [str(name)]
