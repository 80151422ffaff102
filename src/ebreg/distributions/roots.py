"""Quantiles of distributions that know their cdf and density."""

from collections.abc import Callable

import torch
from torch import Tensor


def solve_quantile(
    q: Tensor,
    cdf_and_density: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    low: Tensor,
    high: Tensor,
) -> Tensor:
    """Newton steps inside a bracket that halves when they leave it, for n mixtures of one target.

    Args:
        q: Levels, shape (n,).
        cdf_and_density: Of values, shape (m,), of those mixtures that have the places (m,) among the n.
        low: Ends of the brackets, shape (n,).
        high: The same.

    Returns:
        Shape (n,).
    """
    y = 0.5 * (low + high)
    left = torch.arange(len(q), device=q.device)  # an entry that has settled is left alone
    for iteration in range(200):
        mass, slope = cdf_and_density(y[left], left)
        gap = mass - q[left]
        low[left] = torch.where(gap < 0, y[left], low[left])
        high[left] = torch.where(gap > 0, y[left], high[left])
        newton = y[left] - gap / slope
        # Every third step halves the bracket: near a narrow component Newton's steps can be endlessly small.
        good = (newton > low[left]) & (newton < high[left]) & (iteration % 3 != 2)
        moved = torch.where(good, newton, 0.5 * (low[left] + high[left]))
        moved = torch.where(gap == 0, y[left], moved)
        going = (moved - y[left]).abs() > 2 * torch.finfo(y.dtype).eps * moved.abs()
        y[left] = moved
        left = left[going]
        if not len(left):
            break
    return y
