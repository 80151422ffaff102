"""OwnNetworks: the networks that the user brought, which a file cannot hold."""

import copy
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from ebreg import sampling
from ebreg.models import EnergyModel, Model, evaluation_mode
from ebreg.networks import Networks, with_heads
from ebreg.sampling import draw

_N_ROWS, _N_DRAWS = 4, 16  # of the first call of the heads


@dataclass(frozen=True)
class OwnNetworks:
    """Networks of the user's own; None where the library's are used.

    Attributes:
        backbone: A module that maps inputs to features (B, H).
        proposal: A module that maps features to a Distribution, or a function of H and D that returns one.
        energy: A module that maps features and targets to f, or such a function.
    """

    backbone: nn.Module | None = None
    proposal: Any = None
    energy: Any = None

    @classmethod
    def of(cls, regressor: Any) -> "OwnNetworks":
        """Those among the arguments of a regressor."""
        proposal = None if isinstance(regressor.proposal, str) else regressor.proposal
        return cls(regressor.backbone, proposal, getattr(regressor, "energy", None))

    @property
    def names(self) -> list[str]:
        """The arguments that are given."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def copied(self) -> "OwnNetworks":
        """With a copy of the backbone, to train."""
        return OwnNetworks(copy.deepcopy(self.backbone), self.proposal, self.energy)

    def heads(self, parts: Networks, proposal: str | None, **sizes: Any) -> Networks:
        """Networks with the heads that are given; ``proposal`` is the name of the library's, or None."""
        parts = with_heads(parts, proposal or self.proposal, self.energy, **sizes)
        if self.proposal is not None:
            parts.mixture.float()  # one precision in all heads
        if self.energy is not None:
            parts.energy.float()
        return parts


@torch.no_grad()
def check_heads(model: Model, x: Tensor) -> None:
    """Call the heads once with the first rows of x, to explain before a training what is wrong with them."""
    name = "proposal"
    with evaluation_mode(model):
        h = model.finite_features(x[:_N_ROWS].to(model.reference.device))
        q = model.q(h)
        u = sampling.sobol(_N_DRAWS, model.n_targets)[:, None].expand(-1, len(h), -1)
        y = draw(q, u.to(h))
        if y.shape != u.shape or not torch.isfinite(y).all():
            raise ValueError(
                f"{name} must have finite draws of shape {tuple(u.shape)}; got {tuple(y.shape)}, "
                f"{int(torch.isfinite(y).sum())} of {y.numel()} numbers finite"
            )
        _check_inside(model, name, y)
        if not torch.isfinite(q.log_prob(y)).all():
            raise ValueError(f"{name} must have a finite log_prob at its own draws")
        if isinstance(model, EnergyModel) and not torch.isfinite(model.f(h, y)).all():
            raise ValueError("energy must return finite values; it gave NaN or infinity for the first rows")


def _check_inside(model: Model, name: str, y: Tensor) -> None:
    bounds, values = model.bounds, model.y_units.inverse(y)
    width = model.y_units.scale * 1e-6  # to standard units and back, a bound may move by a rounding error
    if ((values < bounds.low - width) | (values > bounds.high + width)).any():
        raise ValueError(
            f"{name} must stay within bounds, and some of its draws do not; leave out bounds, or use the "
            "proposal 'mixture', whose components are truncated there"
        )
