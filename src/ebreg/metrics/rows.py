"""Row by row: functions of a predictive distribution and its targets, in numpy or torch."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.errors import UndefinedError

Values: TypeAlias = Tensor | np.ndarray


def by_row(
    name: str, fn: Callable[[Any, Tensor], Tensor], dist: Any, y: Any, several: str | None = None
) -> Values:
    """A function of each row's distribution and target, computed in chunks for numpy predictions.

    Args:
        name: Name of the function, for messages.
        fn: A :class:`ebreg.predictive.Predictive` and its targets (B, D) -> (B, ...).
        dist: The predictive distributions of n rows: a torch distribution, or a prediction with ``apply``.
        y: Targets, shape (n,) for one target or (n, D).
        several: For a function of one target only: advice for several targets.

    Returns:
        Shape (n, ...): a numpy array if ``dist`` has ``apply``, else a tensor.
    """
    in_chunks = hasattr(dist, "apply") and hasattr(dist, "n_targets")
    if not in_chunks and not all(hasattr(dist, verb) for verb in ("mean", "log_prob", "cdf")):
        raise TypeError(
            "dist must be a predictive distribution, as predict_distribution or predictive returns it; "
            f"got {type(dist).__name__}"
        )
    with torch.no_grad():
        if in_chunks:
            if hasattr(dist, "check_target_names"):
                dist.check_target_names(y)
            n_rows = len(dist) if hasattr(dist, "__len__") else None
            table = _targets(y, n_rows, dist.n_targets)
        else:
            mean = dist.mean
            table = _targets(y, *mean.shape).to(mean.device)
        D = table.shape[1]
        if several is not None and D > 1:
            raise ValueError(f"{name} is for one target, and this distribution has {D}; {several}")
        if not in_chunks:
            values = fn(dist, table).double()
            _refuse_nan(name, values)
            return values
        rows = dist.apply(lambda p, y: fn(p, y.double().reshape(-1, D)).double(), table.cpu().numpy())
        rows = np.asarray(rows)
        if len(rows) != len(table):
            raise ValueError(f"y must have {len(rows)} rows, as the distribution has, got {len(table)}")
        _refuse_nan(name, torch.from_numpy(np.ascontiguousarray(rows)))
        return rows


def marginal_quantiles(p: Any, y: Tensor, q: Tensor) -> Tensor:
    """Quantiles of each target, in float64: levels (Q,) and targets (B, D) -> (Q, B, D)."""
    if y.shape[1] == 1:
        return p.icdf(q.to(y.device)).to(y)
    if not hasattr(p, "quantile"):
        raise TypeError(
            f"{type(p).__name__} has no method quantile, for the quantiles of each of several targets; "
            "use energy_score, or coverage of the highest-density region"
        )
    return p.quantile(q.to(y.device)).to(y)


def equal_tails(p: Any, y: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of the equal-tailed interval of each target, both of shape (B, D)."""
    q = torch.tensor([(1 - mass) / 2, (1 + mass) / 2], dtype=torch.float64)
    low, high = marginal_quantiles(p, y, q)
    return low, high


def without_single_target(values: Tensor) -> Tensor:
    """(..., 1) -> (...); the dimension of several targets is kept."""
    return values[..., 0] if values.shape[-1] == 1 else values


def _targets(y: Any, n_rows: int | None, D: int) -> Tensor:
    # Float64, shape (n, D), and a copy.
    table = as_float64("y", y)
    if D == 1 and table.dim() == 1:
        table = table[:, None]
    if table.dim() != 2 or table.shape[1] != D or n_rows not in (None, len(table)):
        n = "n" if n_rows is None else n_rows
        takes = f"({n},) or ({n}, 1)" if D == 1 else f"({n}, {D})"
        got = tuple(np.shape(y)) if not isinstance(y, Tensor) else tuple(y.shape)
        raise ValueError(
            f"y must have shape {takes}, one row for each row of the distribution and one column for each "
            f"target, got {got}"
        )
    if not len(table):
        raise ValueError("y must have at least 1 row: the mean of no scores is undefined")
    checks.finite("y", table)
    return table


def as_float64(name: str, values: Any) -> Tensor:
    """A copy of real numbers as a tensor in float64."""
    return checks.numbers(name, values).detach().to(torch.float64, copy=True)


def _refuse_nan(name: str, values: Tensor) -> None:
    bad = values.isnan()
    if bad.any():
        row = int(bad.nonzero()[0, 0])
        raise UndefinedError(
            f"{name} is NaN in row {row}, though the target is finite: the distribution of that row is not "
            "defined. Look for NaN in its inputs and in the model's parameters."
        )
