"""Tail: where the energy ends, so that exp(f) is integrable."""

import torch
from torch import Tensor

from ebreg.units.bounds import Bounds
from ebreg.units.float64 import Float64Module


class Tail(Float64Module):
    r"""Gives the energy a defined end, so that exp(f) is integrable and nothing far away holds mass unseen.

    Inside a box that holds the data f is the network's. Outside, it is f at the nearest point of the box
    minus :math:`\tfrac12 d^2`, where d is the distance in units of ``width``; beyond a closed end it is
    minus infinity.

    Args:
        low: Lower corner, shape (D,).
        high: Upper corner, shape (D,).
        width: Shape (D,).
        bounds: Ends of the targets, in standard units; those that are finite are closed ends of the box.
    """

    low: Tensor
    high: Tensor
    width: Tensor

    def __init__(self, low: Tensor, high: Tensor, width: Tensor, bounds: Bounds | None = None):
        super().__init__()
        self.bounds = bounds or Bounds.none(len(low))
        low = torch.where(torch.isfinite(self.bounds.low), self.bounds.low, low.double())
        high = torch.where(torch.isfinite(self.bounds.high), self.bounds.high, high.double())
        self._keep(low=low, high=high, width=width)

    @classmethod
    def of(cls, y: Tensor, bounds: Bounds | None = None) -> "Tail":
        """A box a little larger than the range of standardised targets y, shape (n, D), within bounds."""
        low, high = y.amin(dim=0), y.amax(dim=0)
        margin = 0.5 + 0.1 * (high - low)
        return cls(low - margin, high + margin, torch.ones_like(low), bounds)

    def split(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest point of the box, (..., D), and the penalty for the way there, (...)."""
        inside = y.clamp(self.low.to(y.dtype), self.high.to(y.dtype))
        penalty = 0.5 * ((y - inside) / self.width.to(y.dtype)).square().sum(dim=-1)
        if self.bounds.are_open:
            return inside, penalty
        return inside, penalty.masked_fill(~self.contains(y), torch.inf)

    def contains(self, y: Tensor) -> Tensor:
        """Whether y lies within the bounds: (..., D) -> (...)."""
        low, high = self.bounds.low.to(y.dtype), self.bounds.high.to(y.dtype)
        return ((y >= low) & (y <= high)).all(dim=-1)

    @property
    def is_bounded(self) -> tuple[Tensor, Tensor]:
        """Which targets have a lower bound, and which an upper one, two of shape (D,)."""
        return torch.isfinite(self.bounds.low), torch.isfinite(self.bounds.high)
