"""The user's X, y and sample_weight as tensors: checked, never changed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor

from ebreg._utils import checks

# Attributes of a fitted estimator that describe the X it was fitted on.
FORMAT = ("n_features_in_", "feature_names_in_", "input_shape_", "input_dtype_")


@dataclass(frozen=True)
class Targets:
    """The targets of a fit.

    Attributes:
        y: Shape (n, D), float64.
        drop_axis: Whether the user gave them with shape (n,).
        names: Names of the targets, or None.
    """

    y: Tensor
    drop_axis: bool
    names: list[str] | None


def table(estimator: BaseEstimator, X: Any, reset: bool) -> Tensor:
    """A table X as a tensor (n, C), float64.

    Args:
        estimator: Holds the number of columns and their names; ``reset`` sets them.
        X: A table of numbers.
        reset: Whether X defines the format, as in a fit, or must have it.
    """
    _refuse_dates("X", X)
    array = validate_data(estimator, to_host(X), dtype=np.float64, reset=reset, ensure_min_samples=int(reset))
    return checks.numbers("X", array).contiguous()


def examples(estimator: BaseEstimator, X: Any, reset: bool) -> Tensor:
    """Inputs of the user's own backbone as a tensor (n, ...), in their own dtype.

    Args:
        estimator: Holds the shape and the dtype of an example, and the names of columns; ``reset`` sets them.
        X: Examples, one a row.
        reset: Whether X defines the format, as in a fit, or must have it.
    """
    validate_data(estimator, X, reset=reset, skip_check_array=True, ensure_2d=False)  # names of columns only
    x = checks.numbers("X", X).detach().contiguous()
    if x.dim() < 2:
        raise ValueError(f"X must have shape (n, ...) with one example a row, got {tuple(x.shape)}")
    if x.is_floating_point():
        checks.finite("X", x)
    if reset:
        estimator.input_shape_, estimator.input_dtype_ = tuple(x.shape[1:]), x.dtype
        return x
    return _in_format(x, estimator.input_shape_, estimator.input_dtype_)


def _in_format(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if tuple(x.shape[1:]) != shape:
        raise ValueError(f"X has examples of shape {tuple(x.shape[1:])}; the model was fitted on {shape}")
    # The kind of numbers is kept, not their precision: a list of integers may stand for real numbers.
    cast = x if dtype.is_floating_point and x.is_floating_point() else x.to(dtype)
    if not dtype.is_floating_point and not torch.equal(cast.to(x.dtype), x):
        raise ValueError(f"X must hold numbers of type {dtype}, as the model was fitted on; got {x.dtype}")
    return cast


def targets(y: Any) -> Targets:
    """Targets y, (n,) or (n, D)."""
    if y is None:
        # scikit-learn's checks look for this wording.
        raise ValueError("This estimator requires y to be passed, but the target y is None")
    names = _names(y)
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"the columns of y must have different names, got {', '.join(names)}")
    _refuse_dates("y", y)
    array = check_array(
        to_host(y), ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=1, allow_nd=True
    )
    if array.ndim not in (1, 2):
        raise ValueError(f"y must have shape (n,) or (n, D), got {array.shape}")
    if array.ndim == 2 and array.shape[1] == 0:
        raise ValueError(f"y must have at least one column, got shape {array.shape}")
    values = torch.tensor(array, dtype=torch.float64)
    return Targets(values.reshape(len(values), -1), array.ndim == 1, names)


def check_target_names(y: Any, names: list[str] | None) -> None:
    """Require several columns of a table y to be those of the fit, where both have names."""
    given = _names(y) if hasattr(y, "columns") else None
    if names is None or given is None or len(names) < 2 or list(map(str, names)) == given:
        return
    # As for the columns of X, only text is a name.
    if not all(isinstance(name, str) for name in y.columns) or names == [str(i) for i in range(len(names))]:
        return
    wanted, found = (", ".join(map(str, columns)) for columns in (names, given))
    raise ValueError(f"y must have the columns {wanted} in this order, as in fit; got {found}")


def weights(sample_weight: Any, n_rows: int) -> Tensor | None:
    """Weights of the rows, (n,), float64; None: all rows have the same."""
    if sample_weight is None:
        return None
    values = checks.numbers("sample_weight", sample_weight).detach().cpu().double()
    checks.shape("sample_weight", values, (n_rows,))
    checks.finite("sample_weight", values)
    if (values < 0).any():
        raise ValueError(f"sample_weight must not be negative, got {values.min().item():g}")
    if not (values > 0).any():
        raise ValueError("sample_weight must be above zero for at least one row; all weights are zero")
    return values


def check_same_length(x: Tensor, y: Tensor) -> None:
    """Require as many rows of X as of y."""
    if len(x) != len(y):
        raise ValueError(f"X and y must have the same number of rows, got {len(x)} and {len(y)}")


def index_of(X: Any) -> Any:
    """The row labels of a data frame, or None."""
    return X.index if hasattr(X, "index") and hasattr(X, "columns") else None


def to_host(values: Any) -> Any:
    """A tensor of any device and precision as an array; anything else unchanged."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values if values.is_complex() else values.double()).numpy()


def _refuse_dates(name: str, values: Any) -> None:
    # scikit-learn would convert them to nanoseconds.
    dtypes = getattr(values, "dtypes", getattr(values, "dtype", None))
    kinds = [getattr(dtype, "kind", "") for dtype in (dtypes if np.iterable(dtypes) else [dtypes])]
    if set(kinds) & {"M", "m"}:
        raise ValueError(f"{name} holds dates or times; convert them to numbers, such as days since a date")


def _names(y: Any) -> list[str] | None:
    if hasattr(y, "columns"):
        return [str(name) for name in y.columns]
    name = getattr(y, "name", None)
    return None if name is None or not hasattr(y, "index") else [str(name)]
