"""Bounds: the range that the targets cannot leave."""

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.units.float64 import Float64Module
from ebreg.units.standardizer import Standardizer


class Bounds(Float64Module):
    """The range of each target, bounds included; infinite where a target is not bounded.

    Args:
        low: Shape (D,).
        high: Above ``low``, shape (D,).
    """

    low: Tensor
    high: Tensor

    def __init__(self, low: Tensor, high: Tensor):
        super().__init__()
        checks.shape("low", low, ("D",))
        checks.shape("high", high, tuple(low.shape))
        if not (low < high).all():  # NaN included
            raise ValueError(
                f"bounds must have low < high for every target, got {low.tolist()} and {high.tolist()}"
            )
        self._keep(low=low, high=high)

    @classmethod
    def none(cls, n_targets: int) -> "Bounds":
        """No bounds."""
        infinite = torch.full((n_targets,), torch.inf)
        return cls(-infinite, infinite)

    @property
    def are_open(self) -> bool:
        """Whether no target is bounded."""
        return bool(torch.isinf(self.low).all() and torch.isinf(self.high).all())

    def check(self, name: str, y: Tensor) -> None:
        """Require targets, shape (n, D), inside."""
        outside = (y < self.low) | (y > self.high)
        if outside.any():
            row, target = outside.nonzero()[0].tolist()
            raise ValueError(
                f"{name} must lie within bounds, which are {self.low[target].item():g} to "
                f"{self.high[target].item():g}; got {y[row, target].item():g} in row {row} "
                f"({int(outside.any(dim=1).sum())} such rows in all); widen the bounds or remove those rows"
            )

    def near(self, y: Tensor) -> "Bounds":
        """The bounds near targets y, shape (n, D); those a thousand times their range away are dropped.

        A box that wide would leave no nodes for what is inside.
        """
        low, high = y.amin(dim=0), y.amax(dim=0)
        reach = 1e3 * (high - low + 1)
        return Bounds(
            torch.where(self.low < low - reach, -torch.inf, self.low),
            torch.where(self.high > high + reach, torch.inf, self.high),
        )

    def standardized(self, units: Standardizer) -> "Bounds":
        """The same bounds in standard units."""
        return Bounds(units(self.low), units(self.high))
