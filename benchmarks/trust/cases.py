"""Energies with a known normaliser, whose proposal misses some of their mass."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ebreg.distributions import GaussianMixture
from ebreg.predictive import Unnormalized
from ebreg.units import Bounds, Standardizer, Tail

# Half of the width of the box, in standard units.
HALF = 5.0
# The narrowest modes of 1, 2, ... targets for which the stated error is to be right.
NARROWEST = (0.01, 0.1, 0.1, 0.3, 0.6, 0.7, 0.7, 0.8)
# With more targets a grid over a wide box is too coarse.
_MOST_TARGETS_IN_WIDE_BOXES = 5
# An edge of this many nats ends the support of a density.
JUMP = 50.0

Energy = Callable[[Tensor, Tensor], Tensor]  # parameters (B, H) and targets (M, B, D) -> (M, B)


@dataclass(frozen=True)
class Problem:
    """Energies of B rows, each from a seed of its own.

    Attributes:
        target: The energies and their proposals.
        log_z: The logs of the normalisers, shape (B,).
    """

    target: Unnormalized
    log_z: Tensor


@dataclass(frozen=True)
class Case:
    """A family of problems.

    Attributes:
        name: In the table.
        n_targets: D.
        problem: Makes B problems from a generator.
        must: Whether it is among the densities for which the stated error is to be right.
    """

    name: str
    n_targets: int
    problem: Callable[[int, torch.Generator], Problem] = field(repr=False)
    must: bool = True


def two_modes(n_targets: int, scale: float, centre: float = 2.0) -> Case:
    """Two equal modes at opposite corners of a cube, of which the proposal knows one."""

    def problem(B: int, generator: torch.Generator) -> Problem:
        c = (centre + 0.1 * _uniform(B, n_targets, generator)) * torch.ones(n_targets, dtype=torch.float64)
        return _two(c, -c, scale, 0.5, -math.inf)

    return Case(
        f"two modes, {n_targets}-D, deviation {scale:g}", n_targets, problem, _is_wide(n_targets, scale)
    )


def spike(n_targets: int, scale: float, share: float = 0.5, log_floor: float = -math.inf) -> Case:
    """A wide mode that the proposal knows, and a narrow one at a random place that it does not."""

    def problem(B: int, generator: torch.Generator) -> Problem:
        place = (HALF - 5 * scale) * _uniform(B, n_targets, generator)
        return _two(torch.zeros_like(place), place, scale, share, log_floor, wide=1.0)

    name = f"spike, {n_targets}-D, deviation {scale:g}" + ("" if share == 0.5 else f", {share:.0%}")
    return Case(name, n_targets, problem, _is_wide(n_targets, scale))


def on_a_floor(n_targets: int, scale: float, floor: float) -> Case:
    """Two narrow modes at random places, one unknown, on level ground that holds a share of the mass."""

    def problem(B: int, generator: torch.Generator) -> Problem:
        reach = HALF - 5 * scale
        here, there = (reach * _uniform(B, n_targets, generator) for _ in range(2))
        return _two(here, there, scale, 0.5 * (1 - floor), math.log(floor / (2 * HALF) ** n_targets))

    name = f"floor of {floor:g}, {n_targets}-D, deviation {scale:g}"
    return Case(name, n_targets, problem, _is_wide(n_targets, scale))


def in_a_wide_box(n_targets: int, scale: float, half: float) -> Case:
    """A wide mode that the proposal knows and a narrow one, in a box that reaches far beyond both."""

    def problem(B: int, generator: torch.Generator) -> Problem:
        known, place = (4 * _uniform(B, n_targets, generator) for _ in range(2))
        return _two(known, place, scale, 0.5, -math.inf, wide=1.0, half=half)

    name = f"box of {half:g}, {n_targets}-D, deviation {scale:g}"
    must = n_targets <= _MOST_TARGETS_IN_WIDE_BOXES and _is_wide(n_targets, scale)
    return Case(name, n_targets, problem, must)


def banana(width: float) -> Case:
    """A thin curved ridge in two dimensions; the proposal has its mean and variances."""

    def problem(B: int, generator: torch.Generator) -> Problem:
        bend = 0.5 + 0.25 * _uniform(B, 1, generator)

        def energy(h: Tensor, y: Tensor) -> Tensor:
            ridge = h[:, 0] * (y[..., 0].square() - 1)
            return _log_normal(y[..., :1], 0.0, 1.0) + _log_normal(y[..., 1:], ridge[..., None], width)

        variances = torch.cat([torch.ones_like(bend), 2 * bend.square() + width**2], dim=1)
        proposal = _gaussian(torch.zeros(B, 2, dtype=torch.float64), variances.sqrt())
        return _problem(energy, bend, proposal, torch.zeros(B, dtype=torch.float64))

    return Case(f"banana of width {width:g}", 2, problem)


def edges(width: float) -> Case:
    """Uniform between two cliffs; the proposal is a wide Gaussian."""

    def problem(B: int, generator: torch.Generator) -> Problem:
        low = _uniform(B, 1, generator)

        def energy(h: Tensor, y: Tensor) -> Tensor:
            inside = (y[..., 0] >= h[:, 0]) & (y[..., 0] <= h[:, 0] + width)
            return torch.where(inside, 0.0, -JUMP).to(y)

        proposal = _gaussian(low + 0.5 * width, torch.full_like(low, width))
        return _problem(energy, low, proposal, torch.full((B,), math.log(width), dtype=torch.float64))

    return Case(f"uniform on a width of {width:g}", 1, problem)


def _is_wide(n_targets: int, scale: float) -> bool:
    return n_targets <= len(NARROWEST) and scale >= NARROWEST[n_targets - 1]


def _uniform(B: int, D: int, generator: torch.Generator) -> Tensor:
    # In -1 to 1.
    return 2 * torch.rand(B, D, generator=generator, dtype=torch.float64) - 1


def _two(
    known: Tensor,
    hidden: Tensor,
    scale: float,
    share: float,
    log_floor: float,
    wide: float | None = None,
    half: float = HALF,
) -> Problem:
    # A known mode and a hidden one that has a share, at (B, D), over a level that is a log density.
    D = known.shape[1]
    width = scale if wide is None else wide
    rest = 1 - share - (0.0 if log_floor == -math.inf else math.exp(log_floor) * (2 * half) ** D)

    def energy(h: Tensor, y: Tensor) -> Tensor:
        modes = [
            math.log(rest) + _log_normal(y, h[:, :D], width),
            math.log(share) + _log_normal(y, h[:, D:], scale),
        ]
        inside = (y.abs() <= half).all(dim=-1)
        ground = torch.where(inside, log_floor, -torch.inf).to(modes[0])
        return torch.stack([*modes, ground]).logsumexp(dim=0)

    proposal = _gaussian(known, torch.full_like(known, width))
    zeros = torch.zeros(len(known), dtype=torch.float64)
    return _problem(energy, torch.cat([known, hidden], dim=1), proposal, zeros, half)


def _log_normal(y: Tensor, mean: Tensor | float, scale: float) -> Tensor:
    # Summed over the last axis.
    z = (y - mean) / scale
    return -(0.5 * z.square() + math.log(scale) + 0.5 * math.log(2 * math.pi)).sum(dim=-1)


def _gaussian(means: Tensor, scales: Tensor) -> GaussianMixture:
    return GaussianMixture(torch.zeros(len(means), 1, dtype=torch.float64), means[:, None], scales[:, None])


def _problem(
    energy: Energy, parameters: Tensor, proposal: GaussianMixture, log_z: Tensor, half: float = HALF
) -> Problem:
    D = proposal.n_targets
    ones = torch.ones(D, dtype=torch.float64)
    tail = Tail(-half * ones, half * ones, ones)
    units = Standardizer.identity(D, "y")
    return Problem(Unnormalized(energy, parameters, proposal, tail, units, Bounds.none(D)), log_z)


CASES = [
    *(two_modes(1, scale, 2.03) for scale in (0.003, 0.01, 0.03, 0.1, 0.3)),
    *(two_modes(D, scale) for D in (2, 3) for scale in (0.1, 0.3)),
    *(spike(1, scale) for scale in (0.003, 0.01, 0.02, 0.1)),
    *(spike(1, scale, 0.1) for scale in (0.01, 0.1)),
    *(spike(D, scale) for D in (2, 3) for scale in (0.1, 0.3)),
    *(spike(D, 0.1, 0.1) for D in (2, 3)),
    *(spike(D, scale, share) for share in (0.5, 0.1) for D, scale in enumerate(NARROWEST[3:], 4)),
    spike(4, 0.1),
    *(on_a_floor(1, scale, floor) for scale in (0.01, 0.1) for floor in (1e-6, 1e-3, 0.1)),
    *(on_a_floor(2, scale, floor) for scale in (0.1, 0.3) for floor in (1e-6, 1e-3, 0.1)),
    *(on_a_floor(3, scale, 1e-3) for scale in (0.1, 0.3)),
    *(in_a_wide_box(D, scale, 20) for D, scale in enumerate(NARROWEST[3:], 4)),
    *(in_a_wide_box(D, scale, 1000) for D, scale in ((1, 0.01), (2, 0.1), (3, 0.3))),
    *(two_modes(D, scale) for D, scale in enumerate(NARROWEST[3:], 4)),
    *(banana(width) for width in (0.02, 0.05, 0.1)),
    *(edges(width) for width in (0.03, 0.3, 3.0)),
]
