"""Nested regions: highest-density regions of every size, and the score at which a target enters them.

A score below 1 is the mass of a region. Masses near 1 cannot tell a target 20 standard deviations away from
one 30 away, so beyond a mass of 1 - t the score is 1 plus how far, in nats, the log density lies below the
threshold of the region of mass 1 - t. A target of density 0 has the score infinity. A target lies in the
region of a score exactly if its own score is at most that.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ebreg.distributions import GaussianMixture, Region
from ebreg.predictive.protocol import Predictive
from ebreg.predictive.weighted_draws import WeightedDraws

# The mass t of a closed form, and of draws: ten of 2,048.
CLOSED_FORM_TAIL, DRAWS_TAIL = 1e-6, 0.005
# Rounding errors of scores are smaller: a target whose score is that of a region lies in it.
ROUNDING = 1e-9


@torch.no_grad()
def region_scores(p: Predictive, y: Tensor) -> Tensor:
    """The scores of targets, (B, D) -> (B,)."""
    return torch.cat([_scores(part, y[rows]) for rows, part in _forms(p)])


@torch.no_grad()
def region_of_score(p: Predictive, score: float, mass: float) -> Region:
    """The targets whose score is at most ``score``, as a region that is said to hold ``mass``.

    A region of weighted draws has no intervals, also with one target: its density says what lies in it.
    """
    regions = [_region(part, score, mass) for _, part in _forms(p)]
    if len(regions) == 1:
        return regions[0]
    intervals = tuple(row for region in regions for row in region.intervals or ())
    return Region(mass, torch.cat([region.log_threshold for region in regions]), p.log_prob, intervals)


def _forms(p: Any) -> Iterator[tuple[slice, Any]]:
    # What answers questions about regions: of a mixture of one target, densities on nodes.
    if not isinstance(p, GaussianMixture) or p.n_targets > 1:
        yield slice(None), p
        return
    start = 0
    for shape in p.shapes():
        yield slice(start, start + len(shape)), shape
        start += len(shape)


def _scores(p: Any, y: Tensor) -> Tensor:
    tail = _tail(p)
    masses = p.hpd_mass(y)
    nats_below = _of_mass(p)(1 - tail).log_threshold - p.log_prob(y)
    # NaN: a threshold and a density of 0 both.
    beyond = 1 + nats_below.clamp_min(0).nan_to_num(nan=torch.inf, posinf=torch.inf)
    return torch.where(masses <= 1 - tail, masses, beyond)


def _region(p: Any, score: float, mass: float) -> Region:
    tail = _tail(p)
    if score < 1:
        region = _of_mass(p)(max(min(score + ROUNDING, 1 - tail), ROUNDING))
        return Region(mass, region.log_threshold, p.log_prob, region.intervals, region.cut)
    threshold = _of_mass(p)(1 - tail).log_threshold - (score - 1) - ROUNDING
    return p.region_above(threshold, mass)


def _tail(p: Any) -> float:
    by_draws = isinstance(p, WeightedDraws | GaussianMixture)
    return DRAWS_TAIL if by_draws else CLOSED_FORM_TAIL


def _of_mass(p: Any) -> Callable[[float], Region]:
    # The highest-density region of a mass.
    return p.region_by_density if isinstance(p, WeightedDraws) else p.highest_density_region
