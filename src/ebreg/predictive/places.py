"""Places: where points that search a box lie, evenly where most targets are, further apart away from them."""

from dataclasses import dataclass

import torch
from torch import Tensor

# In standard units, nearly all targets lie within this.
CORE = 5.0
# Share of all points that may lie beyond that, on either side, where they are few.
_BEYOND = 1 / 8


@dataclass(frozen=True)
class Places:
    """A map of targets in standard units to places; points of a search have evenly spaced places.

    Within 5 standard units a place is the target itself; beyond, it grows with the logarithm. So the distance
    of the points is even within, and grows with their own distance from 0 beyond.

    Attributes:
        slope: How fast places grow beyond, shape () or (D,): with 1 the distance of points has no jump.
    """

    slope: Tensor

    @classmethod
    def without_jump(cls) -> "Places":
        """As many points beyond as their distance takes."""
        return cls(torch.ones((), dtype=torch.float64))

    @classmethod
    def of_few(cls, low: Tensor, high: Tensor) -> "Places":
        """At most an eighth of the points beyond, on each side of a box with these ends, (D,) each."""
        reach = (torch.maximum(-low, high) / CORE).clamp_min(1).log()
        return cls((_BEYOND / (0.5 - _BEYOND) / reach).clamp(max=1))

    def of(self, y: Tensor) -> Tensor:
        """The places of targets, (..., D) -> (..., D)."""
        beyond = CORE * (1 + self.slope * (y.abs() / CORE).clamp_min(1).log())
        return torch.where(y.abs() <= CORE, y, y.sign() * beyond)

    def targets(self, place: Tensor) -> Tensor:
        """The targets at places, (..., D) -> (..., D)."""
        beyond = CORE * ((place.abs() / CORE - 1) / self.slope).clamp_min(0).exp()
        return torch.where(place.abs() <= CORE, place, place.sign() * beyond)

    def growth(self, y: Tensor) -> Tensor:
        """How many times further apart points are at targets than within 5 standard units, elementwise."""
        return torch.where(y.abs() <= CORE, 1.0, (y.abs() / CORE).clamp_min(1) / self.slope)
