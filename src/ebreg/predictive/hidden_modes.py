"""Hidden modes: mass of several targets that draws of the proposal would miss, found by a search of f."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebreg import sampling
from ebreg.distributions import FullMixture, GaussianMixture, normal
from ebreg.predictive.search_grid import SearchGrid
from ebreg.predictive.source import Source
from ebreg.predictive.unnormalized import Unnormalized

# Points of the grid that are compared with draws, and places that are looked at closely.
_N_LIKELIEST, _N_PLACES = 512, 8
# A place is looked at where the density of the model may be so many times that of the draws, and a cell of
# the grid may hold such a share of the mass.
_RATIO, _LEAST_MASS = 8.0, 2e-3
# With so many targets the cells are too wide for f at a point to say what is in them: any top is a reason to
# look.
_MANY_TARGETS = 4
# Where the density of the model is so many times that of the draws, a region with 0.05 of the mass has about
# two of 2,048 draws: their weights need not show it.
_RATIO_UNSEEN = 50.0
# Between points of a grid a parabola rises by an eighth of what it falls to its lowest neighbour; more, where
# level ground hides a part of the fall.
_RISE = 0.25
# Rounds in which a Gaussian is moved to the mass near a place, before and after a look at what it has found,
# and half of the points of each.
_ROUNDS, _N_POINTS = (4, 4), 64
# Weights are flattened until they are worth so many points.
_WORTH = 12.0
# Variance of a component, in units of the points' own.
_INFLATION = 1.5
# Share of the mass of a source that the components have which the search has found.
_SHARE = 0.3
# Components of the proposal so much narrower than the cells of the grid, averaged over the targets, may have
# others like them that the grid does not show; the lightest do not count.
_NARROW, _LEAST_WEIGHT = 10.0, 1e-3
# Stands for a density of 0, also as the log weight of a component without any.
_NOTHING = -1e4


@dataclass(frozen=True)
class ModeSearch:
    """What a search of f over the box of B rows has seen, so that sources of draws can be compared with it.

    f at a grid that all rows share shows places where mass may be: tops among their neighbours, and points at
    which the density is far above that of the draws. From there Gaussians climb to the mass nearby.

    Attributes:
        target: The rows.
        points: The likeliest points of the grid, shape (P, B, D).
        f: There, shape (P, B).
        drops: How far f falls from a top to its lowest neighbour; 0 at other points, shape (P, B).
        spacing: The widths of the cells of the points, shape (P, B, D).
        is_too_coarse: Whether the proposal has modes that the grid would not show, shape (B,).
    """

    target: Unnormalized
    points: Tensor
    f: Tensor
    drops: Tensor
    spacing: Tensor
    is_too_coarse: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, target: Unnormalized) -> "ModeSearch | None":
        """Evaluate f on the grid; None where there is no need, or no box."""
        if not target.may_hide_modes or not len(target):
            return None
        assert target.tail is not None
        grid = SearchGrid.over(target.tail)
        # In single precision: it decides where to look, and nothing else.
        f = target.on_grid(grid.points.float()).clamp_min(_NOTHING)  # (G, B)
        drops = grid.drops(f)
        _, chosen = (f + _RISE * drops).topk(min(_N_LIKELIEST, len(f)), dim=0)
        f, drops = (values.gather(0, chosen).double() for values in (f, drops))
        return cls(target, grid.points[chosen], f, drops, grid.spacing[chosen], _is_too_coarse(grid, target))

    def __getitem__(self, rows: Tensor) -> "ModeSearch":
        """Some of the rows: row numbers or a mask."""
        points, f, drops, spacing = (
            part[:, rows] for part in (self.points, self.f, self.drops, self.spacing)
        )
        return ModeSearch(self.target[rows], points, f, drops, spacing, self.is_too_coarse[rows])

    @torch.no_grad()
    def missed_by(self, source: Source, log_z: Tensor) -> "FoundModes":
        """Gaussians where there is mass that draws from a source would miss.

        Args:
            source: Where the draws of these rows come from.
            log_z: Of the rows, from those draws, shape (B,).
        """
        places, spacing, is_suspect = self._places(source, log_z)
        nothing = torch.full_like(places[..., 0], -torch.inf)
        found = FoundModes(self.target, places, torch.diag_embed(spacing), nothing)
        # A few rounds show that most places are none.
        for n_rounds in _ROUNDS:
            found = found.climbed(is_suspect, n_rounds)
            is_suspect = found.are_missed_by(source, log_z)
        return found.of_those(is_suspect)

    @torch.no_grad()
    def unseen_mass(self, source: Source, log_z: Tensor) -> Tensor:
        """The share of the mass in cells of the grid where draws from a source are far too few, (B,)."""
        log_p = self.f - log_z
        is_unseen = log_p - source.log_prob(self.points) > math.log(_RATIO_UNSEEN)
        mass = (log_p + self._log_cell).exp().clamp(max=1)
        return mass.masked_fill(~is_unseen, 0.0).sum(dim=0).clamp(max=1)

    @property
    def _log_cell(self) -> Tensor:
        # Log of the volume of the cells, (P, B).
        return self.spacing.log().sum(dim=-1)

    def _places(self, source: Source, log_z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Where to look in each row and the widths of cells, (B, K, D), and whether there is a reason, (B, K).
        log_p = self.f + _RISE * self.drops - log_z
        is_missed = log_p - source.log_prob(self.points) > math.log(_RATIO)
        is_suspect = is_missed & (log_p + self._log_cell > math.log(_LEAST_MASS))
        if self.points.shape[-1] >= _MANY_TARGETS:
            is_suspect |= self.drops > 0
        # Tops first: a top may be that of much more than its own cell.
        order = torch.where(self.drops > 0, self.f, self.f - self.f.amax(dim=0) + self.f.amin(dim=0))
        height, chosen = order.masked_fill(~is_suspect, -torch.inf).topk(min(_N_PLACES, len(order)), dim=0)
        chosen = chosen[..., None].expand(-1, -1, self.points.shape[-1])
        places, spacing = (part.gather(0, chosen).transpose(0, 1) for part in (self.points, self.spacing))
        return places, spacing, (height > -torch.inf).T


def _is_too_coarse(grid: SearchGrid, target: Unnormalized) -> Tensor:
    # The proposal learns from the energy: where it has narrow modes, the energy may have others.
    q = target.proposal
    if not isinstance(q, GaussianMixture):
        return torch.zeros(len(target), dtype=torch.bool, device=target.h.device)
    assert target.tail is not None
    spacing = grid.spacing_at(q.means.double().clamp(target.tail.low, target.tail.high))  # (B, K, D)
    narrowness = (spacing / q.scales.double()).log().mean(dim=-1)
    narrowness = narrowness.masked_fill(q.logits.softmax(dim=1) < _LEAST_WEIGHT, -torch.inf)
    return narrowness.amax(dim=1) > math.log(_NARROW)


@dataclass(frozen=True)
class FoundModes:
    """Gaussians of B rows, K each, at mass that a search has found.

    Attributes:
        target: The rows.
        means: Shape (B, K, D).
        cholesky: Shape (B, K, D, D).
        log_mass: Log of the integral of exp f that each has found; -inf where there is none, shape (B, K).
    """

    target: Unnormalized
    means: Tensor
    cholesky: Tensor
    log_mass: Tensor

    def __getitem__(self, rows: Any) -> "FoundModes":
        """Some of the rows: row numbers or a mask."""
        return FoundModes(self.target[rows], self.means[rows], self.cholesky[rows], self.log_mass[rows])

    def of_those(self, chosen: Tensor) -> "FoundModes":
        """Some of the Gaussians, given as a mask (B, K)."""
        return FoundModes(
            self.target, self.means, self.cholesky, self.log_mass.masked_fill(~chosen, -torch.inf)
        )

    def climbed(self, chosen: Tensor, n_rounds: int) -> "FoundModes":
        """Some of the Gaussians, given as a mask (B, K), moved to the mass around them; no others.

        Args:
            chosen: Which.
            n_rounds: How often each is fitted to points of its own, weighted by exp f.
        """
        means, cholesky = self.means.clone(), self.cholesky.clone()
        log_mass = torch.full_like(self.log_mass, -torch.inf)
        rows, place = chosen.nonzero(as_tuple=True)  # (n,) each
        if len(rows):
            means[rows, place], cholesky[rows, place], log_mass[rows, place] = _climb(
                self.target[rows], means[rows, place], cholesky[rows, place], n_rounds
            )
        return FoundModes(self.target, means, cholesky, log_mass)

    @property
    def exist(self) -> Tensor:
        """The rows that have any, as a mask (B,)."""
        return (self.log_mass > -torch.inf).any(dim=1)

    def are_missed_by(self, source: Source, log_z: Tensor) -> Tensor:
        """Those whose mass draws from a source would miss, as a mask (B, K)."""
        if not self.exist.any():
            return torch.zeros_like(self.log_mass, dtype=torch.bool)
        tops = self.means.transpose(0, 1)  # (K, B, D)
        ratio = (self.target.energy(tops) - log_z - source.log_prob(tops)).T
        return (ratio > math.log(_RATIO)) & (self.log_mass - log_z[:, None] > math.log(_LEAST_MASS))

    def beside(self, fitted: FullMixture) -> FullMixture:
        """A mixture of B rows with these Gaussians, in rows that have any."""
        exist = self.exist
        if not exist.any():
            return fitted
        logits = (self.log_mass - self.log_mass.amax(dim=1, keepdim=True)).clamp_min(-3.0)
        logits = logits.masked_fill(self.log_mass == -torch.inf, _NOTHING).nan_to_num(_NOTHING)
        found = FullMixture(logits, self.means, math.sqrt(_INFLATION) * self.cholesky)
        return fitted.beside(found, torch.where(exist, _SHARE, 0.0))


def _climb(
    target: Unnormalized, means: Tensor, cholesky: Tensor, n_rounds: int
) -> tuple[Tensor, Tensor, Tensor]:
    # From a Gaussian in each of n rows, (n, D) and (n, D, D): means, Cholesky factors and log masses.
    D = means.shape[1]
    z = normal.icdf(sampling.sobol(_N_POINTS, D, seed=1)).to(means)
    z = torch.cat([z, -z])[:, None]  # (N, 1, D)
    for _ in range(n_rounds):
        y = means + (cholesky @ z[..., None])[..., 0]  # (N, n, D)
        scale = cholesky.diagonal(dim1=-2, dim2=-1)
        log_q = -(0.5 * z.square().sum(dim=-1) + scale.log().sum(dim=-1) + D * normal.LOG_SQRT_2PI)
        log_ratio = target.energy(y).clamp_min(_NOTHING) - log_q
        weights = _flattened(log_ratio)
        means = (weights[..., None] * y).sum(dim=0)
        centred = y - means
        covariance = torch.einsum("mn,mni,mnj->nij", weights, centred, centred)
        worth = 1 / weights.square().sum(dim=0)[..., None, None]
        prior = (D + 1) / (worth + D + 1)
        covariance = (1 - prior) * covariance + prior * torch.diag_embed(
            covariance.diagonal(dim1=-2, dim2=-1) + 1e-12 * scale.square()
        )
        cholesky = torch.linalg.cholesky(covariance)
    return means, cholesky, log_ratio.logsumexp(dim=0) - math.log(len(z))


def _flattened(log_weights: Tensor) -> Tensor:
    # Weights (N, n) to the largest of some powers at which they are worth enough, normalised.
    log_weights = log_weights - log_weights.amax(dim=0)
    power = torch.ones_like(log_weights[0])
    for _ in range(30):
        weights = (power * log_weights).clamp_min(-80).exp()
        weights = weights / weights.sum(dim=0)
        poor = 1 / weights.square().sum(dim=0) < _WORTH
        if not poor.any():
            break
        power = torch.where(poor, power * 0.5, power)
    return weights
