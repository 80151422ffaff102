"""Units: standardised columns, bounds of the targets, and the tail of the energy.

The core works in standard units, people in theirs. All numbers here are float64, whatever the precision of
the networks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ebreg._utils import checks

_FEWEST_FOR_QUARTILES = 20
_QUARTILES_OF_GAUSSIAN = 1.349  # their distance, in standard deviations
# A bound that lies further from the box of a tail than so many times its width is no end of the box.
_NEAR = 1e3


class Float64Module(nn.Module):
    """Buffers that move between devices, but stay in float64 where a model is made single or half."""

    def _keep(self, **buffers: Tensor) -> None:
        for name, value in buffers.items():
            self.register_buffer(name, value.detach().to(torch.float64, copy=True))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Float64Module":
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, value in before.items():
            setattr(self, name, value.to(getattr(self, name).device))
        return self


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
        ends = torch.stack(values.aminmax(dim=0))
        unit = ends.abs().amax(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        relative = values / unit
        mean = relative.mean(dim=0)
        spread = relative.sub_(mean).square_().mean(dim=0).sqrt()
        # Rounding alone spreads a constant column by about its last digit.
        scale = torch.where(spread > 1e-14, unit * spread, 1.0)
        units = cls(unit * mean, scale, name)
        if not torch.isfinite(units(ends)).all():
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


class Bounds(Float64Module):
    """The range of each target, bounds included; infinite where a target is not bounded.

    They hold however far from the data they lie: densities are cut there and normalised inside.

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

    def check(self, name: str, y: Tensor, advice: str = "widen the bounds or remove those rows") -> None:
        """Require targets, shape (n, D), inside; ``advice`` ends the message."""
        outside = (y < self.low) | (y > self.high)
        if outside.any():
            row, target = outside.nonzero()[0].tolist()
            raise ValueError(
                f"{name} must lie within bounds, which are {self.low[target].item():g} to "
                f"{self.high[target].item():g}; got {y[row, target].item():g} in row {row} "
                f"({int(outside.any(dim=1).sum())} such rows in all); {advice}"
            )

    def standardized(self, units: Standardizer) -> "Bounds":
        """The same bounds in standard units."""
        return Bounds(units(self.low), units(self.high))


class Tail(Float64Module):
    r"""The energy outside a box that holds the data, so that exp(f) is integrable.

    Inside a box that holds the data f is the network's. Outside, it is f at the nearest point of the box
    minus :math:`\tfrac12 d^2`, where d is the distance in units of ``width``; beyond a bound it is
    minus infinity.

    A bound near the box is an end of it: f is then the network's up to the bound. One that lies further away
    than a thousand times the width of the box is not, since a box that wide would leave no nodes for
    what is inside: f falls outside of the box as it does without bounds, and ends at the bound.

    Args:
        low: Lower corner, shape (D,).
        high: Upper corner, shape (D,).
        width: Shape (D,).
        bounds: Of the targets, in standard units; those near the box become ends of it.
    """

    low: Tensor
    high: Tensor
    width: Tensor

    def __init__(self, low: Tensor, high: Tensor, width: Tensor, bounds: Bounds | None = None):
        super().__init__()
        self.bounds = bounds or Bounds.none(len(low))
        low, high = low.double(), high.double()
        reach = _NEAR * (high - low)
        self._keep(
            low=torch.where(self.bounds.low < low - reach, low, self.bounds.low),
            high=torch.where(self.bounds.high > high + reach, high, self.bounds.high),
            width=width,
        )

    @classmethod
    def of(cls, y: Tensor, bounds: Bounds | None = None) -> "Tail":
        """A box a little larger than the range of standardised targets y, shape (n, D), within bounds."""
        low, high = y.amin(dim=0), y.amax(dim=0)
        margin = 0.5 + 0.1 * (high - low)
        return cls(low - margin, high + margin, torch.ones_like(low), bounds)

    def split(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest point of the box, (..., D), and the penalty for the distance to it, (...)."""
        inside = y.clamp(self.low.to(y.dtype), self.high.to(y.dtype))
        penalty = 0.5 * ((y - inside) / self.width.to(y.dtype)).square().sum(dim=-1)
        if self.bounds.are_open:
            return inside, penalty
        return inside, penalty.masked_fill(~self.contains(y), torch.inf)

    def contains(self, y: Tensor) -> Tensor:
        """Whether y lies within the bounds: (..., D) -> (...); NaN counts as inside, and stays NaN."""
        low, high = self.bounds.low.to(y.dtype), self.bounds.high.to(y.dtype)
        return ~((y < low) | (y > high)).any(dim=-1)

    @property
    def is_bounded(self) -> tuple[Tensor, Tensor]:
        """Which targets have a lower bound, and which an upper one, two of shape (D,)."""
        return torch.isfinite(self.bounds.low), torch.isfinite(self.bounds.high)

    @property
    def ends_at_bounds(self) -> tuple[Tensor, Tensor]:
        """For which targets the box reaches to the lower bound, and for which to the upper one, as above."""
        return self.low <= self.bounds.low, self.high >= self.bounds.high


@dataclass(frozen=True)
class Units:
    """The units of a model.

    Attributes:
        x: Of the inputs, such as those of a table or of pixels; None: a backbone takes them as they are.
        y: Of the targets.
        bounds: Of the targets, in the user's units.
        tail: Of the energy, in standard units; None leaves that to the network.
    """

    x: nn.Module | None
    y: Standardizer
    bounds: Bounds
    tail: Tail | None

    @classmethod
    def of(cls, x: Any, y: Any, bounds: Bounds | None = None) -> "Units":
        """Learn them from a table x (n, C), or None, and targets y (n, D)."""
        y = checks.table("y", y)
        if x is not None:
            x = checks.table("x", x)
            if len(x) != len(y):
                raise ValueError(f"x and y must have as many rows as each other, got {len(x)} and {len(y)}")
        bounds = bounds or Bounds.none(y.shape[1])
        y_units = Standardizer.robust("y", y)
        tail = Tail.of(y_units(y), bounds.standardized(y_units))
        _check_reach(y_units, tail)
        return cls(None if x is None else Standardizer.of("x", x), y_units, bounds, tail)

    @property
    def standard_bounds(self) -> Bounds:
        """The bounds of the targets, in standard units."""
        return self.bounds.standardized(self.y) if self.tail is None else self.tail.bounds

    @classmethod
    def raw(cls, x: nn.Module | None, n_targets: int) -> "Units":
        """Units that leave the targets as they are, without bounds or tail."""
        return cls(x, Standardizer.identity(n_targets, "y"), Bounds.none(n_targets), None)

    @classmethod
    def blank(cls, n_inputs: int | None, n_targets: int, bounded: bool) -> "Units":
        """Units with the same structure, for a state dict to fill."""
        D = n_targets
        # The bounds in the user's units and those in standard units are two modules to fill.
        bounds = [Bounds(torch.zeros(D), torch.ones(D)) if bounded else Bounds.none(D) for _ in range(2)]
        return cls(
            None if n_inputs is None else Standardizer.identity(n_inputs, "x"),
            Standardizer.identity(D, "y"),
            bounds[0],
            Tail(torch.zeros(D), torch.ones(D), torch.ones(D), bounds[1]),
        )


def _check_reach(y_units: Standardizer, tail: Tail) -> None:
    # Predictions reach further than the data: their nodes lie up to 8 widths outside of the box.
    reach = 16 * tail.width
    low, high = y_units.inverse(tail.low - reach), y_units.inverse(tail.high + reach)
    if not torch.isfinite(high - low).all():
        raise ValueError("y spans more than float64 can hold; divide it by a constant")
