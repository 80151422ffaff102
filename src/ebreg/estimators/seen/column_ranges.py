"""ColumnRanges: columns in robust units, with the range of each and how far a new value may lie beyond it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.estimators.seen.tail_quantile import tail_quantile
from ebreg.units import Standardizer

# Up to here units are linear, and logarithmic beyond: heavy tails must not set the scale of distances.
_LINEAR = 6.0
# In standard units: no smaller excess or distance counts.
RESOLUTION = 0.02
# Relative to its value, the resolution of a column that is constant.
_RESOLUTION_OF_CONSTANT = 1e-6
_HUGE = 1e300


@dataclass(frozen=True)
class ColumnRanges:
    """The columns of the inputs, each by itself.

    Attributes:
        shift: Of the units, shape (C,).
        scale: Of the units, shape (C,).
        low: The smallest value seen, in units, shape (C,).
        high: The largest, shape (C,).
        below: How far below ``low`` a value may lie, shape (C,).
        above: How far above ``high``, shape (C,).
    """

    shift: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    below: Tensor
    above: Tensor

    @classmethod
    def of(cls, ends: Tensor, some: Tensor, share: float) -> "ColumnRanges":
        """From the smallest and the largest value of each column, (2, C), and some of the rows, (n, C).

        A share of new rows is expected to lie out of the range of any column.
        """
        units = Standardizer.robust("X", some)
        largest = ends.abs().amax(dim=0)
        is_constant = ends[1] / 2 - ends[0] / 2 <= 1e-12 * largest
        least = (_RESOLUTION_OF_CONSTANT * largest).clamp_min(1 / _HUGE)
        scale = torch.where(is_constant, least, units.scale)
        low, high = _to_units(ends, units.shift, scale)
        values = _to_units(some, units.shift, scale)
        share_of_end = share / (2 * some.shape[1])
        below = low + tail_quantile(-values, share_of_end)
        above = tail_quantile(values, share_of_end) - high
        margins = (margin.clamp_min(0) + RESOLUTION for margin in (below, above))
        return cls(units.shift, scale, low, high, *margins)

    def standardized(self, columns: Tensor) -> Tensor:
        """In units that are linear near the middle and logarithmic far out, (B, C); finite."""
        return _to_units(columns, self.shift, self.scale)

    def score(self, values: Tensor) -> Tensor:
        """How far out of range the worst column is, in units of its margin: (B, C) -> (B,); 0 inside."""
        excess = torch.maximum((self.low - values) / self.below, (values - self.high) / self.above)
        return excess.amax(dim=1).clamp_min(0)


def _to_units(columns: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    values = ((columns.double() - shift) / scale).clamp(-_HUGE, _HUGE)
    beyond = (values.abs() - _LINEAR).clamp_min(0)
    return values.clamp(-_LINEAR, _LINEAR) + values.sign() * beyond.log1p()
