"""Standardizer: shift and scale of each column."""

import math

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.units.float64 import Float64Module

_FEWEST_FOR_QUARTILES = 20
_QUARTILES_OF_GAUSSIAN = 1.349  # their distance, in standard deviations


class Standardizer(Float64Module):
    """Shift and scale of each column, in float64 whatever the precision of the networks.

    Args:
        shift: Shape (C,).
        scale: Above 0, shape (C,).
        name: Of the columns, in messages.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Tensor, scale: Tensor, name: str = "values"):
        super().__init__()
        self.name = name
        self._keep(shift=shift, scale=scale)

    @classmethod
    def identity(cls, n_columns: int, name: str = "values") -> "Standardizer":
        """Units that change nothing."""
        return cls(torch.zeros(n_columns), torch.ones(n_columns), name)

    @classmethod
    def of(cls, name: str, values: Tensor) -> "Standardizer":
        """Mean and standard deviation of the columns of values, shape (n, C); 1 for a constant column."""
        values = checks.table(name, values)
        checks.at_least(f"the number of rows of {name}", len(values), 1)
        checks.finite(name, values)
        values = values.double()
        # In units of the largest value no square overflows or vanishes.
        unit = values.abs().amax(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        mean = (values / unit).mean(dim=0)
        spread = ((values / unit - mean) ** 2).mean(dim=0).sqrt()
        # Rounding alone spreads a constant column by about its last digit.
        scale = torch.where(spread > 1e-14, unit * spread, 1.0)
        units = cls(unit * mean, scale, name)
        if not torch.isfinite(units(values)).all():
            raise ValueError(f"{name} spans more than float64 can hold; divide it by a constant")
        return units

    @classmethod
    def robust(cls, name: str, values: Tensor) -> "Standardizer":
        """As :meth:`of`, but robust to a few outliers.

        Where the standard deviation exceeds three times what the quartiles suggest, the scale is set by the
        quartiles, and the shift is the median.
        """
        units = cls.of(name, values)
        n = len(values)
        if n < _FEWEST_FOR_QUARTILES:
            return units
        z = units(checks.table(name, values))
        low, middle, high = (
            z.kthvalue(max(1, round(share * n)), dim=0).values for share in (0.25, 0.5, 0.75)
        )
        spread = 3 * (high - low) / _QUARTILES_OF_GAUSSIAN
        heavy = (spread > 0) & (spread < 1)
        shift = torch.where(heavy, units.shift + units.scale * middle, units.shift)
        return cls(shift, torch.where(heavy, units.scale * spread, units.scale), name)

    def forward(self, values: Tensor) -> Tensor:
        """To standard units, in float64: (..., C) -> (..., C)."""
        checks.shape(self.name, values, (*["..."] * (values.dim() - 1), len(self.shift)))
        return (values.double() - self.shift) / self.scale

    def inverse(self, values: Tensor) -> Tensor:
        """From standard units, in float64: (..., C) -> (..., C)."""
        return self.shift + self.scale * values.double()

    def normal_nll(self, values: Tensor) -> Tensor:
        """Negative log density of normal distributions with this shift and scale: (..., C) -> (...)."""
        half_squares = 0.5 * self.forward(values).square()
        return (half_squares + self.scale.log() + 0.5 * math.log(2 * math.pi)).sum(dim=-1)
