"""MixtureModel: a mixture density network, or any other distribution of y given x."""

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ebreg._utils import checks
from ebreg.distributions import GaussianMixture, TruncatedMixture
from ebreg.models.evaluation_mode import evaluation_mode
from ebreg.models.heads import distribution_of, targets_of
from ebreg.models.model import Model
from ebreg.networks import MixtureHead, Networks
from ebreg.predictive import Accuracy, Predictive, Unnormalized, draws_of_proposal
from ebreg.sampling import log_prob, proposal_rows
from ebreg.units import Bounds, Standardizer, Units


class MixtureModel(Model):
    """A mixture density network q(y | x): features, then a head that gives a Distribution.

    Args:
        backbone: Turns inputs into features (B, H).
        head: Turns features into a GaussianMixture, which answers in closed form, or into any torch
            Distribution with batch shape (B,) and event shape (D,), which answers by its draws.
        n_targets: D; read off a MixtureHead.
        x_units: See :class:`Model`.
        y_units: See :class:`Model`.
        bounds: See :class:`Model`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        n_targets: int | None = None,
        x_units: nn.Module | None = None,
        y_units: Standardizer | None = None,
        bounds: Bounds | None = None,
    ):
        super().__init__(backbone, targets_of(head, n_targets), x_units, y_units, bounds)
        self.head = head
        self._have_members()

    @classmethod
    def of(cls, parts: Networks, units: Units | None = None) -> Self:
        """From networks and units that go together; None: the networks work in the user's units."""
        if units is None:
            return cls(parts.backbone, parts.mixture)
        return cls(
            parts.backbone,
            parts.mixture,
            n_targets=len(units.y.shift),
            x_units=units.x,
            y_units=units.y,
            bounds=units.bounds,
        )

    def q(self, h: Tensor) -> Distribution:
        """The distribution in standard units, from features (B, H)."""
        return distribution_of("head", self.head, h, self.n_targets)

    def log_prob(self, x: Any, y: Any, accuracy: Accuracy | None = None) -> Tensor:
        """Log density of targets y, (B, D), in the user's units, shape (B,); for any Distribution.

        It is exact: ``accuracy`` changes nothing.
        """
        if self.calibration is not None:
            return super().log_prob(x, y, accuracy)
        x, y = self._inputs(x), checks.numbers("y", y).to(self.reference.device)
        checks.shape("y", y, (len(x), self.n_targets))
        with evaluation_mode(self):
            log_q = log_prob(self.q(self.finite_features(x)), self.standardize(y))
        return log_q - self.y_units.scale.log().sum()

    def _predictive(self, target: Unnormalized, accuracy: Accuracy) -> Predictive:
        q = target.proposal
        if not isinstance(q, GaussianMixture):
            return draws_of_proposal(target, accuracy)
        q = q.rescaled(self.y_units.shift, self.y_units.scale)
        if not isinstance(q, TruncatedMixture):
            return q
        # The bounds as they were given: to standard units and back they may move by a rounding error.
        return q.between(self.bounds.low, self.bounds.high)

    def _log_z(self, target: Unnormalized, accuracy: Accuracy) -> Tensor:
        return torch.zeros(len(target), dtype=torch.float64, device=target.h.device)

    def _unnormalized(self, h: Tensor) -> Unnormalized:
        # Log q in the place of the energy: it is normalised already.
        proposal = proposal_rows(self._q_for_prediction, h)
        return Unnormalized(self._log_q, h, proposal, None, self.y_units, self.bounds)

    def _q_for_prediction(self, h: Tensor) -> Distribution:
        return self._tempered(super()._q_for_prediction(h))

    def _log_q(self, h: Tensor, y: Tensor) -> Tensor:
        return log_prob(self._q_for_prediction(h), y.to(h.dtype))

    def answers_by_draws(self, accuracy: Accuracy) -> bool:
        """See :meth:`Model.answers_by_draws`."""
        return not isinstance(self.head, MixtureHead)

    @property
    def _q_head(self) -> nn.Module:
        return self.head
