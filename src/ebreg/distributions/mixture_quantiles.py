"""Quantiles of mixtures of one target."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ebreg._utils import gradients
from ebreg.distributions.quantiles import solve_quantile

if TYPE_CHECKING:
    from ebreg.distributions.gaussian_mixture import GaussianMixture

# Numbers of one kind in a step of the search: as many as the cache holds.
_NUMBERS = 2**16
# Levels closer to 0 and 1 are left to the search in double precision.
_ROUGH = 1e-5
# Relative error of the level of a quantile.
_EXACT = 4 * torch.finfo(torch.float64).eps


def at_levels(mixture: "GaussianMixture", q: Tensor) -> Tensor:
    """The inverse of the cdf, unchecked: (Q, B) -> (Q, B)."""
    q = q.to(mixture.means.device, torch.float64)
    rows = torch.arange(q.shape[1], device=q.device).expand(q.shape).flatten()
    levels, exact = q.flatten(), mixture.double()
    y, order = torch.empty_like(levels), rows.argsort(stable=True)
    # Some at a time, in the order of the rows, as many as the cache holds.
    for some in order.split(max(1, _NUMBERS // exact.logits.shape[1])):
        y[some] = _solve(exact[rows[some]], levels[some])
    if gradients.tracked(mixture.logits, mixture.means, mixture.scales):
        mass, density = mixture.to(torch.float64)[rows].cdf_and_density(y)
        sparsity = gradients.sparsity(density.detach(), levels, exact.stddev[rows, 0])
        y = gradients.quantile(y, mass, sparsity)
    return y.reshape(q.shape).to(mixture.means.dtype)


def _solve(mixture: "GaussianMixture", levels: Tensor) -> Tensor:
    # A quantile for each row, (B,) -> (B,). In single precision first, which leaves few steps in double
    # precision; it has no digits for levels closer to 0 or 1.
    rough = levels.clamp(_ROUGH, 1 - _ROUGH)
    start = (mixture.mean + mixture.stddev * torch.special.ndtri(rough)[:, None])[:, 0]
    tolerance = (_ROUGH * torch.minimum(rough, 1 - rough)).clamp_min(2 * torch.finfo(torch.float32).eps)
    start = _search(mixture.to(torch.float32), rough.float(), start.float(), tolerance)
    return _search(mixture, levels, start.double(), _EXACT * levels)


def _search(mixture: "GaussianMixture", levels: Tensor, start: Tensor, tolerance: Tensor) -> Tensor:
    # In the precision of the mixture. Its quantile lies between those of its components.
    ends = mixture.component_icdf(levels[:, None, None])[..., 0]  # (B, K)
    return solve_quantile(
        levels,
        lambda y, rows: (mixture if len(rows) == len(mixture) else mixture[rows]).cdf_and_density(y),
        ends.amin(dim=1),
        ends.amax(dim=1),
        start,
        tolerance,
    )
