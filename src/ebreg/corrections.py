"""The halves of `residual-nce`, trained in turn: a proposal until it is best, and then its correction."""

from typing import Self

import torch
from torch import Tensor

from ebreg.methods import Losses, Method, ResidualNCE, correction_losses
from ebreg.models import ResidualModel
from ebreg.objectives import nll
from ebreg.sampling import Sampler


def in_turn(method: Method) -> tuple[Method, ...]:
    """Trainings one after the other in place of a method whose parts can learn by themselves; or itself."""
    if not isinstance(method, ResidualNCE) or method.proposal_loss != "nll":
        return (method,)
    return BaseNLL(method.model), CorrectionNCE(method.model, method.sampler)


class BaseNLL(Method):
    """First half of `ResidualNCE` in turn: q and the backbone by their log-likelihood; g is left as it is."""

    name = "base-nll"
    trains = ResidualModel
    model: ResidualModel

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """None are needed."""
        return torch.empty(0, B, self.model.n_targets)

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The loss ``nll``."""
        return {"nll": nll(self.model.q(self.model.features(x)).log_prob(self.model.standardize(y)))}

    @torch.no_grad()
    def validation_nll(self, x: Tensor, y: Tensor) -> Tensor:
        """See :meth:`Method.validation_nll`; of q alone."""
        return self(x, y, self.points(len(y)))["nll"] + self.model.y_units.scale.log().sum()


class CorrectionNCE(Method):
    """Second half of `ResidualNCE` in turn: g alone, by NCE (Eq. 6); q and its features are constants.

    Args:
        model: The model, with a trained q.
        draws: How q is sampled.
    """

    name = "correction-nce"
    trains = ResidualModel
    model: ResidualModel

    def __init__(self, model: ResidualModel, draws: Sampler):
        super().__init__(model)
        self.sampler = draws

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """See :meth:`Method.points`."""
        return self.sampler.points(B, self.model.n_targets, generator)

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The losses ``nce`` and ``offset`` of g."""
        with torch.no_grad():
            h, y = self.model.features(x), self.model.standardize(y)
            draws = self.sampler(self.model.q(h), y, u)
        return correction_losses(self.model, h, y, draws)

    def train(self, mode: bool = True) -> Self:
        """Training mode for g; features are those of a prediction."""
        super().train(mode)
        self.model.backbone.eval()
        self.model.proposal.eval()
        return self

    def extra_repr(self) -> str:
        """The settings."""
        return repr(self.sampler)
