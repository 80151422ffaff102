"""Quantiles: their levels checked, and solved for where only the cdf and the density are known."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks


def check_levels(q: Any) -> Tensor:
    """Levels of quantiles in float64, of any shape and number; all must lie in (0, 1)."""
    levels = checks.numbers("q", q).double()
    return checks.levels("q", levels) if levels.numel() else levels


def quantiles(icdf: Callable[[Tensor], Tensor], q: Tensor | float, B: int, D: int) -> Tensor:
    """Call ``icdf``, (Q, B) -> (Q, B), with levels of any allowed shape, and add the target's dimension."""
    if D != 1:
        raise ValueError(
            f"icdf exists for one target only, and this distribution has {D}: points of several dimensions "
            "have no order. Ask for a highest_density_region, or for the quantile of each target by itself."
        )
    q = check_levels(q)
    if q.dim() >= 2:
        checks.shape("q", q, ("Q", B))
    levels = q.reshape(-1, 1).expand(-1, B) if q.dim() < 2 else q
    values = icdf(levels)[..., None]
    return values[0] if q.dim() == 0 else values


def solve_quantile(
    q: Tensor,
    cdf_and_density: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    low: Tensor,
    high: Tensor,
    start: Tensor,
    tolerance: Tensor | float,
) -> Tensor:
    """Newton steps inside a bracket that halves when they leave it, for n mixtures of one target.

    Args:
        q: Levels, shape (n,).
        cdf_and_density: Of values, shape (m,), of those mixtures that have the places (m,) among the n.
        low: Lower ends of the brackets, shape (n,). Moved, in place, to where the search has ended.
        high: Upper ends, likewise.
        start: Values to start from, shape (n,); where they are NaN, the middle of the brackets.
        tolerance: Distance from the level at which a search ends, shape (n,) or ().

    Returns:
        Shape (n,).
    """
    y = torch.where(start.isnan(), 0.5 * (low + high), torch.minimum(torch.maximum(start, low), high))
    tolerance = torch.as_tensor(tolerance, dtype=y.dtype, device=y.device).expand(y.shape)
    eps = torch.finfo(y.dtype).eps
    left = torch.arange(len(q), device=q.device)  # an entry that has settled is left alone
    before = torch.full_like(y, torch.inf)
    for iteration in range(200):
        here, bottom, top = y[left], low[left], high[left]
        mass, slope = cdf_and_density(here, left)
        gap = mass - q[left]
        bottom, top = torch.where(gap < 0, here, bottom), torch.where(gap > 0, here, top)
        newton = here - gap / slope
        # Every third step halves the bracket, unless Newton's converge: near a narrow component they can be
        # endlessly small.
        converges = gap.abs() < 0.1 * before
        good = (newton > bottom) & (newton < top) & (converges | (iteration % 3 != 2))
        moved = torch.where(good, newton, 0.5 * (bottom + top))
        # Nothing is returned that was not evaluated: where the density is nearly 0, a step leads anywhere.
        reached = gap.abs() <= tolerance[left]
        moved = torch.where(reached, here, moved)
        going = (moved - here).abs() > 2 * eps * moved.abs()
        y[left], low[left], high[left] = moved, bottom, top
        left, before = left[going], gap.abs()[going]
        if not len(left):
            break
    return y
