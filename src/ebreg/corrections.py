"""The halves of `residual-nce`, trained in turn: a proposal until it is best, and then its correction."""

from typing import Any, Self

import torch
from torch import Tensor

from ebreg.methods import Losses, Method, ResidualNCE, correction_losses
from ebreg.models import ResidualModel
from ebreg.networks import Correction
from ebreg.objectives import nll
from ebreg.sampling import Sampler


def in_turn(method: Method) -> "tuple[Method, CorrectionNCE | None]":
    """Two trainings, one after the other, in place of a method that allows it; or itself and None."""
    if not isinstance(method, ResidualNCE) or method.proposal_loss != "nll":
        return method, None
    if not isinstance(method.model.energy, Correction):  # of the user's own
        return method, None
    return BaseNLL(method.model), CorrectionNCE(method.model, method.sampler)


def narrowed(q: Any, factors: Tensor) -> Any:
    """A mixture with its deviations multiplied by a factor for each row, (B,); others as they are."""
    if not hasattr(q, "with_components"):
        return q
    return q.with_components(q.logits, q.means, factors.to(q.scales)[:, None, None] * q.scales)


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

    On the rows of the training, q may be nearer to the targets than it is on new rows: it has learned them. g
    would learn to make it narrower still. So the noise is a narrower q. As g depends on the position of a
    target in q alone, it holds for q too.

    Args:
        model: The model, with a trained q.
        draws: How q is sampled.

    Attributes:
        sharpness: Factor on the deviations of q for each member, shape (E,).
        validation_likelihoods: What is known of the validation rows, for a fine-tuning without them.
    """

    sharpness: Tensor

    name = "correction-nce"
    trains = ResidualModel
    model: ResidualModel

    def __init__(self, model: ResidualModel, draws: Sampler):
        super().__init__(model)
        self.sampler = draws
        self.register_buffer("sharpness", torch.ones(model.n_members, device=model.reference.device))
        self.validation_likelihoods: Tensor | None = None

    @property
    def correction(self) -> Correction:
        """The head that gives g."""
        assert isinstance(self.model.energy, Correction)
        return self.model.energy

    def keep_members(self, index: Tensor) -> None:
        """Keep the members at an index (e,), in place."""
        self.sharpness = self.sharpness[index]

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """See :meth:`Method.points`."""
        return self.sampler.points(B, self.model.n_targets, generator)

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The losses ``nce`` and ``offset`` of g."""
        with torch.no_grad():
            h, y = self.model.features(x), self.model.standardize(y)
            factors = self.sharpness.repeat_interleave(len(h) // len(self.sharpness))
            q = narrowed(self.model.q(h), factors)
            draws = self.sampler(q, y, u)
        # A narrower density is higher; g is to see it as that of q.
        return correction_losses(self.model, q, h, y, draws, self.model.n_targets * factors.log())

    def train(self, mode: bool = True) -> Self:
        """Training mode for g; features are those of a prediction."""
        super().train(mode)
        self.model.backbone.eval()
        self.model.proposal.eval()
        return self

    def extra_repr(self) -> str:
        """The settings."""
        return repr(self.sampler)
