"""ResidualModel: an energy that corrects its proposal."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ebreg import importance, networks, sampling
from ebreg._utils import gradients
from ebreg.models import members
from ebreg.models.energy_model import EnergyModel
from ebreg.models.evaluation_mode import evaluation_mode
from ebreg.networks import Networks
from ebreg.predictive import (
    Accuracy,
    CorrectedMembers,
    Predictive,
    Unnormalized,
    corrected_quadrature,
    in_single_precision,
)

# Points of q for the normaliser of one member. An error of it moves weight between members, by as much, and
# nothing else: the density of all members together is normalised with the accuracy that was asked for. With
# 128 points it is about 0.005, with 64 about 0.01, where the logarithms of the normalisers spread by 0.1.
_N_POINTS, _N_POINTS_SEVERAL_TARGETS = 512, 256
_N_POINTS_IN_TRAINING = 64
_N_POINTS_ALONE = 1024  # for rows in which nodes that members share do not do
# Points of q for the mean of one member, for each target: it is then known to a hundredth of a standard
# deviation or so.
_N_POINTS_OF_MEANS = 128
# Targets further out, infinite ones included, have the correction that they have here: networks overflow.
_FARTHEST = 1e6


# Of nodes (N, b) and the numbers of their rows, (b,).
LogDensities = Callable[[Tensor, Tensor], Tensor]
AtNodes = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Position:
    """Where targets lie in a proposal.

    Attributes:
        u: Their :func:`ebreg.sampling.levels`, shape (M, B, D) or (B, D).
        log_q: Their log density, shape (M, B) or (B,).
    """

    u: Tensor
    log_q: Tensor

    @classmethod
    def of(cls, q: Any, y: Tensor) -> "Position":
        """Of targets in standard units, shape (M, B, D) or (B, D)."""
        return cls(sampling.levels(q, y.clamp(-_FARTHEST, _FARTHEST)), q.log_prob(y))


class ResidualModel(EnergyModel):
    r"""p(y | x) proportional to :math:`q(y | x) \exp g(x, y)`, with a bounded g.

    f = log q + g. No density ratio p / q exceeds :math:`\exp(U + L)`, with -L and U the bounds of g: where q
    has no mass, p has none, and nothing needs to be searched for outside of it. ``energy`` is g. The tail of
    p is that of q; ``tail`` says only where nodes lie.
    """

    @classmethod
    def _table_networks(
        cls, n_inputs: int, n_targets: int, n_components: int, width: int, n_members: int, **settings: Any
    ) -> Networks:
        parts = super()._table_networks(n_inputs, n_targets, n_components, width, n_members, **settings)
        return replace(parts, energy=networks.residual_energy(width, n_targets, width, n_members))

    def g(self, h: Tensor, y: Tensor, position: Position | None = None) -> Tensor:
        """The correction of log q.

        Args:
            h: Features, shape (B, H).
            y: Targets in standard units, shape (M, B, D) or (B, D).
            position: Where they lie in the proposal; None: it is computed.

        Returns:
            Shape (M, B) or (B,).
        """
        if not isinstance(self.energy, networks.Correction):  # of the user's own
            return self._energy(h, y.clamp(-_FARTHEST, _FARTHEST))
        position = Position.of(self.q(h), y) if position is None else position
        return self.energy(h, position.u, position.log_q)

    def f(self, h: Tensor, y: Tensor) -> Tensor:
        """See :meth:`EnergyModel.f`."""
        return self._f_over(self.q(h), h, y)

    def _f_over(self, q: Any, h: Tensor, y: Tensor) -> Tensor:
        if self._is_proposal:
            log_q: Tensor = q.log_prob(y)
            return log_q
        position = Position.of(q, y)
        return position.log_q + self.g(h, y, position)

    @property
    def _is_proposal(self) -> bool:
        # Whether g is 0, and nothing needs to be known of it: before its training it is 0, with a gradient.
        if not isinstance(self.energy, networks.Correction) or torch.is_grad_enabled():
            return False
        return bool(self.energy.is_zero.all())

    def f_grid(self, h: Tensor, y: Tensor) -> Tensor:
        """See :meth:`EnergyModel.f_grid`."""
        return self.f(h, y[:, None].expand(-1, len(h), -1))

    def member_log_prob(self, x: Tensor, y: Tensor, accuracy: Accuracy) -> Tensor:
        """See :meth:`Model.member_log_prob`; the normaliser is that of a few points of q."""
        with evaluation_mode(self):
            h, y = self.finite_features(x), self.standardize(y)
            log_p = self._f_for_prediction(h, y)
            if not self._is_proposal:
                log_p = log_p - self._log_mean_exp_g(h, _N_POINTS_IN_TRAINING)
        return log_p - self.y_units.scale.log().sum()

    def _answer(self, x: Tensor, accuracy: Accuracy) -> Predictive:
        calibration = self.calibration
        is_own = isinstance(self.energy, networks.Correction)
        if calibration is None or self.answers_by_draws(accuracy) or not is_own or not len(x):
            return super()._answer(x, accuracy)
        parts, E = self._unnormalized(self._all_features(x)), self.n_members
        nothing = torch.zeros(len(parts), dtype=torch.float64, device=parts.h.device)
        merged = members.merge(parts, calibration, nothing)
        if self._is_proposal:  # a mixture is exact
            mixture: Predictive = merged.proposal_in_units
            return mixture

        def log_z_by_draws(rows: Tensor) -> Tensor:
            h = parts.h.view(E, len(rows), -1)[:, rows].flatten(0, 1)
            return self._log_mean_exp_g(h, _N_POINTS_ALONE).view(E, -1)

        is_tracked = gradients.tracked(parts.h, *self.parameters())
        together = CorrectedMembers(
            parts.proposal,
            calibration.weights,
            not is_tracked,
            *(self._at_nodes(parts) if is_tracked else self._at_nodes_in_tiles(parts, merged)),
            lambda log_z: members.merge(parts, calibration, log_z),
            log_z_by_draws,
            lambda log_p, y: members.over_background(log_p, y[..., None], parts.proposal, calibration),
        )
        return corrected_quadrature(together, merged, accuracy)

    def _at_nodes(self, parts: Unnormalized) -> tuple[LogDensities, AtNodes]:
        # Log q of all members at nodes, and with g, for gradients.
        E = self.n_members
        blocks = torch.arange(len(parts), device=parts.h.device).view(E, -1)

        def log_q(nodes: Tensor, rows: Tensor) -> Tensor:
            q, y = parts.proposal[blocks[:, rows].flatten()], nodes.repeat(1, E)[..., None]
            return q.log_prob(y.to(parts.h.dtype)).double().unflatten(1, (E, -1))

        def at(nodes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            some, y = parts[blocks[:, rows].flatten()], nodes.repeat(1, E)[..., None]
            with torch.no_grad():
                log_densities = log_q(nodes, rows)
            energy = some.energy(y).unflatten(1, (E, -1))
            # Far out both densities may be 0.
            return log_densities, torch.where(log_densities.isinf(), 0.0, energy - log_densities)

        return log_q, at

    def _at_nodes_in_tiles(self, parts: Unnormalized, merged: Unnormalized) -> tuple[LogDensities, AtNodes]:
        # The same without gradients, in single precision.
        E, correction = self.n_members, self.energy
        assert isinstance(correction, networks.Correction)
        # From the centres of the rows, from which the nodes were made: they lose no digits.
        positions = parts.proposal.at_nodes(merged.proposal.mean[:, 0].repeat(E))
        w = networks.in_tiles(correction.weights, parts.h.float(), E, E).unflatten(0, (E, len(merged)))

        def log_q(nodes: Tensor, rows: Tensor) -> Tensor:
            some = positions.of_block_rows(rows, E)
            return some.log_prob(some.distances(nodes.repeat(1, E))).unflatten(1, (E, -1))

        def at(nodes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            some = positions.of_block_rows(rows, E)
            g = partial(correction.at, w[:, rows].flatten(0, 1))
            log_densities, values = in_single_precision(some, g, some.distances(nodes.repeat(1, E)))
            return log_densities.unflatten(1, (E, -1)), values.unflatten(1, (E, -1))

        return log_q, at

    def _unnormalized(self, h: Tensor) -> Unnormalized:
        target = replace(super()._unnormalized(h), grid=None)
        if not isinstance(self.energy, networks.Correction):
            return target
        bound = torch.full((len(h),), self.energy.rise, dtype=torch.float64, device=h.device)
        return replace(target, log_ratio_bound=bound)

    def _q_for_prediction(self, h: Tensor) -> Distribution:
        return self._tempered(super()._q_for_prediction(h))

    def _f_for_prediction(self, h: Tensor, y: Tensor) -> Tensor:
        y = y.to(h.dtype)
        with evaluation_mode(self):
            return self._f_over(self._q_for_prediction(h), h, y)

    def _log_z(self, target: Unnormalized, accuracy: Accuracy) -> Tensor:
        n_points = _N_POINTS if self.n_targets == 1 else _N_POINTS_SEVERAL_TARGETS
        return self._log_mean_exp_g(target.h, n_points)

    def _log_mean_exp_g(self, h: Tensor, n_points: int) -> Tensor:
        # Log Z of rows (B, H), from points of q: (B,).
        _, log_ratio = self._points(h, n_points)
        return torch.logsumexp(log_ratio, dim=0) - math.log(n_points)

    def _member_means(self, target: Unnormalized, accuracy: Accuracy) -> Tensor:
        # By points of q, at a fraction of the cost of a prediction for every member. The mean of q is known:
        # the points say only how far p has moved from it.
        y, log_ratio = self._points(target.h, _N_POINTS_OF_MEANS * self.n_targets)
        moved = importance.expectation(y, torch.softmax(log_ratio, dim=0) - 1 / len(y))
        return target.to_units(target.proposal.mean + moved)

    def _points(self, h: Tensor, n_points: int) -> tuple[Tensor, Tensor]:
        # Points of q for rows (B, H), and f - log q there, which is g: (M, B, D) and (M, B).
        q = self._q_for_prediction(h)
        u = sampling.sobol(n_points, self.n_targets).to(h)[:, None].expand(-1, len(h), -1)
        y = sampling.draw(q, u).to(h.dtype)
        return y, self._log_ratio(h, q, y)

    def _log_ratio(self, h: Tensor, q: Any, y: Tensor) -> Tensor:
        # f - log q at points of q, (M, B, D) -> (M, B).
        position = Position.of(q, y)
        g = self.g(h, y, position)
        if not gradients.tracked(h, *self.parameters()):
            return g
        # The points are constants, as is the density that they were drawn from; f changes with log q.
        return g + position.log_q - position.log_q.detach()
