"""CustomNetworks: the networks that the user brought, which a file cannot hold."""

import copy
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from ebreg.networks import Networks, with_heads


@dataclass(frozen=True)
class CustomNetworks:
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
    def of(cls, regressor: Any) -> "CustomNetworks":
        """Those among the arguments of a regressor."""
        proposal = None if isinstance(regressor.proposal, str) else regressor.proposal
        return cls(regressor.backbone, proposal, getattr(regressor, "energy", None))

    @property
    def names(self) -> list[str]:
        """The arguments that are given."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def copied(self) -> "CustomNetworks":
        """With a copy of the backbone, to train."""
        return CustomNetworks(copy.deepcopy(self.backbone), self.proposal, self.energy)

    def heads(self, parts: Networks, proposal: str | None, **sizes: Any) -> Networks:
        """Networks with the heads that are given; ``proposal`` is the name of the library's, or None."""
        parts = with_heads(parts, proposal or self.proposal, self.energy, **sizes)
        if self.proposal is not None:
            parts.mixture.float()  # one precision in all heads
        if self.energy is not None:
            parts.energy.float()
        return parts
