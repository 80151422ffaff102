"""Nested intervals: intervals with equal tails of every size, and the score at which a target enters them.

A score below 1 is the mass of an interval, of each target by itself. Beyond the interval [l, u] of mass
1 - t the score is 1 plus the distance from the interval in units of u - l. A target lies in the interval of a
score exactly if its own score is at most that.
"""

from typing import Any

import torch
from torch import Tensor

from ebreg.distributions import GaussianMixture
from ebreg.predictive.nested_regions import CLOSED_FORM_TAIL, DRAWS_TAIL, ROUNDING
from ebreg.predictive.protocol import Predictive
from ebreg.predictive.weighted_draws import WeightedDraws


@torch.no_grad()
def interval_scores(p: Predictive, y: Tensor) -> Tensor:
    """The scores of targets, (B, D) -> (B, D)."""
    tail = _tail(p)
    low, high = _ends(p, y.new_full(y.shape[1:], 1 - tail))
    distance = torch.maximum(low - y, y - high)
    below, at_most = _shares(p, y)
    mass = torch.maximum(1 - 2 * at_most, 2 * below - 1).clamp(0, 1 - tail)
    return torch.where(distance > 0, 1 + distance / _width(low, high), mass)


@torch.no_grad()
def interval_of_scores(p: Predictive, scores: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The targets whose scores are at most ``scores``, each target by itself.

    Args:
        p: Of B rows.
        scores: One for each target, shape (D,).
        low: Lower bounds of the targets, or -inf, shape (D,).
        high: Upper bounds, or inf, shape (D,).

    Returns:
        Shape (B, 2, D), within the bounds.
    """
    start, end = _ends(p, (scores + ROUNDING).clamp(max=1 - _tail(p)))
    reach = torch.where(scores < 1, 0.0, scores - 1 + ROUNDING) * _width(start, end)
    return torch.stack([start - reach, end + reach], dim=1).clamp(low, high)


def _width(low: Tensor, high: Tensor) -> Tensor:
    # Of intervals; equal draws have one of width 0, in which no distance could be measured.
    size = torch.maximum(low.abs(), high.abs())
    return (high - low).maximum(1e-12 * size).clamp_min(torch.finfo(low.dtype).tiny)


def _tail(p: Predictive) -> float:
    return DRAWS_TAIL if isinstance(p, WeightedDraws) else CLOSED_FORM_TAIL


def _shares(p: Any, y: Tensor) -> tuple[Tensor, Tensor]:
    # The mass below targets, (B, D), and the mass at or below them.
    if isinstance(p, WeightedDraws):
        weights = p.weights[..., None]
        below, at_most = (torch.where(chosen, weights, 0.0) for chosen in (p.draws < y, p.draws <= y))
        return below.sum(dim=0), at_most.sum(dim=0)
    if isinstance(p, GaussianMixture):
        share = torch.stack([p.marginal(d).cdf(y[:, [d]]) for d in range(y.shape[1])], dim=1)
    else:
        share = p.cdf(y)[:, None]
    return share, share


def _ends(p: Any, masses: Tensor) -> tuple[Tensor, Tensor]:
    # Of the intervals of masses (D,), which are below 1, (B, D) each.
    tails = 0.5 * (1 - masses)
    if isinstance(p, WeightedDraws):
        return _ends_among_draws(p, tails)
    pairs = [
        (p.marginal(d) if isinstance(p, GaussianMixture) else p).icdf(torch.stack([tail, 1 - tail]))
        for d, tail in enumerate(tails)
    ]
    low, high = torch.cat(pairs, dim=-1)
    return low, high


def _ends_among_draws(p: WeightedDraws, tails: Tensor) -> tuple[Tensor, Tensor]:
    # The first draw with at least the tail at or below it, and the last one with no more than 1 - tail below
    # it: the inverse of scores that count draws.
    ordered, order = p.draws.movedim(0, -1).sort(dim=-1)  # (B, D, M)
    weights = p.weights.T[:, None].expand_as(ordered).gather(-1, order)
    below = weights.cumsum(dim=-1)
    M, tail = len(p.draws), tails[:, None].expand(*ordered.shape[:-1], 1)
    first = torch.searchsorted(below, tail.contiguous())
    last = torch.searchsorted(below, (1 - tail).contiguous(), right=True)
    low, high = (ordered.gather(-1, index.clamp(max=M - 1))[..., 0] for index in (first, last))
    return low, high
