"""The gradient of quantiles of weighted draws."""

import math

import torch
from torch import Tensor

from ebreg import importance
from ebreg._utils import gradients


def with_gradient(y: Tensor, q: Tensor, draws: Tensor, weights: Tensor, size: Tensor) -> Tensor:
    """Quantiles of each target with their derivative, by that of the weights of the draws below them.

    Args:
        y: The quantiles, shape (Q, B, D).
        q: Their levels, shape (Q, B).
        draws: Constants, shape (M, B, D).
        weights: Normalised, with a graph, shape (M, B).
        size: Effective sample size, shape (B,).

    Returns:
        The same numbers, shape (Q, B, D).
    """
    cdf = torch.stack([importance.expectation((draws <= at).to(draws), weights) for at in y]) if len(y) else y
    return gradients.quantile(y, cdf, _sparsity(q, draws, weights, size))


@torch.no_grad()
def _sparsity(q: Tensor, draws: Tensor, weights: Tensor, size: Tensor) -> Tensor:
    # One over the density at the quantiles: the difference quotient of the quantile function, (Q, B, D).
    delta = _half_width(q, size)
    levels = torch.cat([q - delta, q + delta]).T[:, None].expand(-1, draws.shape[-1], -1)  # (B, D, 2 Q)
    ordered, order = draws.movedim(0, -1).sort(dim=-1)  # (B, D, M)
    cumulative = weights.T[:, None].expand_as(ordered).gather(-1, order).cumsum(dim=-1)
    index = torch.searchsorted(cumulative, (levels * cumulative[..., -1:]).contiguous())
    low, high = ordered.gather(-1, index.clamp(max=len(draws) - 1)).movedim(-1, 0).chunk(2)
    return (high - low) / (2 * delta[..., None])


def _half_width(q: Tensor, size: Tensor) -> Tensor:
    r"""Half the difference of the two levels: n^(-1/5) times a factor that depends on q, shape (Q, B).

    About 2 n delta of n draws lie between the two quantiles, so chance moves their distance by a relative
    1 / sqrt(2 n delta); the curvature of the quantile function moves it by a multiple of delta squared.
    Bofinger's (1975) delta makes the sum of both errors, squared, least for a Gaussian. It falls towards
    levels of 0 and 1; there, half of the way to them is the limit.
    """
    z = torch.special.ndtri(q)
    log_density = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    log_factor = math.log(4.5) + 4 * log_density - 2 * torch.log(2 * z**2 + 1)
    delta = ((log_factor - size.clamp_min(1).log()) / 5).exp()
    return torch.minimum(delta, 0.5 * torch.minimum(q, 1 - q))
