"""Modes and highest-density regions of a batch of densities."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions.level_sets import LEVEL

# Of the ends of intervals, relative to them.
_ROUNDING = 4 * torch.finfo(torch.float64).eps
# Tensors in the core, numpy arrays in a Prediction.
Array = Any


@dataclass(frozen=True)
class Mode:
    """The modes of one row, heaviest first.

    Attributes:
        locations: Shape (n, D).
        masses: Probability of the hill that belongs to each, shape (n,); they sum to 1.
        log_densities: Log density at the top, shape (n,).
    """

    locations: Array
    masses: Array
    log_densities: Array

    def __len__(self) -> int:
        return self.locations.shape[0]


@dataclass(frozen=True)
class Modes:
    """The modes of every row of a batch; ``modes[i]`` is row i.

    Attributes:
        rows: One entry for each row.
        array: Makes an array of a list of numbers.
    """

    rows: tuple[Mode, ...]
    array: Callable[[list[int]], Array] = field(default_factory=lambda: torch.tensor)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Mode:
        return self.rows[row]

    def __iter__(self) -> Iterator[Mode]:
        return iter(self.rows)

    @property
    def counts(self) -> Array:
        """How many modes each row has, shape (B,)."""
        return self.array([len(row) for row in self.rows])


@dataclass(frozen=True)
class Region:
    """The smallest set that holds a given mass: where the density is at least a threshold.

    Where the density is level at the threshold, all of the level stretch would be too much and none of it too
    little: the region has a part of it. Log densities that differ by less than a millionth count as level.

    - One target: of all such regions one with as few intervals as possible. The part above the level grows;
      of a density that is level everywhere it is the interval in the middle.
    - Several targets: of the level set the part with the smallest first targets. The draws say how much that
      is, so the mass is as exact as they are.

    Attributes:
        mass: The mass that was asked for.
        log_threshold: Log density at the border, shape (B,).
        log_prob: The log density.
        intervals: For one target, the region of each row as a union of intervals, shape (n_i, 2);
            None for several targets.
        cut: For several targets, the largest first target in the region where the density is level at the
            threshold, shape (B,); infinite in rows in which it is not.
    """

    mass: float
    log_threshold: Array
    log_prob: Callable[[Array], Array]
    intervals: tuple[Array, ...] | None = None
    cut: Array | None = None

    @classmethod
    def joined(cls, parts: Sequence["Region"], log_prob: Callable[[Array], Array]) -> "Region":
        """One region, in numpy, of the rows of several that were asked for the same mass.

        Args:
            parts: At least one, in the order of their rows.
            log_prob: The log density of all rows.
        """
        intervals = None
        if parts[0].intervals is not None:
            intervals = tuple(row.numpy(force=True) for part in parts for row in part.intervals or ())
        cuts = [part.cut for part in parts if part.cut is not None]
        return cls(
            parts[0].mass,
            torch.cat([part.log_threshold for part in parts]).numpy(force=True),
            log_prob,
            intervals,
            torch.cat(cuts).numpy(force=True) if cuts else None,
        )

    def contains(self, y: Array) -> Array:
        """Whether targets lie in the region: (..., B, D) -> (..., B).

        With one target, whether they lie in its intervals; ends are included, to a relative error of 1e-15.
        """
        log_prob = self.log_prob(y)  # which checks the shape
        if self.intervals is None and self.cut is None:
            return log_prob >= self.log_threshold
        log_p = torch.as_tensor(log_prob)
        values = checks.numbers("y", y).to(log_p.device)
        inside = self._in_intervals(log_p, values) if self.intervals is not None else self._cut(log_p, values)
        return inside if isinstance(log_prob, Tensor) else inside.numpy()

    def _in_intervals(self, log_p: Tensor, y: Tensor) -> Tensor:
        # Of targets (..., B, 1) or (..., B) with log densities (..., B).
        assert self.intervals is not None
        y, inside = y.double().reshape(log_p.shape), torch.zeros_like(log_p, dtype=torch.bool)
        rows = [torch.as_tensor(ends).to(log_p.device, torch.float64) for ends in self.intervals]
        for i in range(max((len(ends) for ends in rows), default=0)):
            # A row with fewer intervals has one that contains nothing.
            low, high = torch.stack([_interval(ends, i) for ends in rows], dim=1)
            rounding = _ROUNDING * torch.maximum(low.abs(), high.abs())
            inside |= (y >= low - rounding) & (y <= high + rounding)
        everywhere = torch.as_tensor(self.log_threshold).to(log_p) == -torch.inf
        return inside & ((log_p > -torch.inf) | everywhere)

    def _cut(self, log_p: Tensor, y: Tensor) -> Tensor:
        # Of targets (..., B, D) with log densities (..., B).
        cut, threshold = torch.as_tensor(self.cut).to(log_p), torch.as_tensor(self.log_threshold).to(log_p)
        is_level = ((log_p - threshold).abs() <= LEVEL) & cut.isfinite()
        return torch.where(is_level, y[..., 0] <= cut, log_p >= threshold)


def _interval(ends: Tensor, i: int) -> Tensor:
    return ends[i] if i < len(ends) else ends.new_tensor([torch.inf, -torch.inf])
