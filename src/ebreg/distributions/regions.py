"""Ragged answers about a batch of densities: their modes and their highest-density regions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

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
        array: What makes an array of a list of numbers.
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

    def rescaled(self, units: Callable[[Tensor], Tensor], log_scale: Tensor) -> "Modes":
        """In other units: ``units`` maps (n, D) to (n, D), and ``log_scale`` is the log of its Jacobian."""
        return Modes(
            tuple(
                replace(row, locations=units(row.locations), log_densities=row.log_densities - log_scale)
                for row in self.rows
            )
        )


@dataclass(frozen=True)
class Region:
    """The smallest set that holds a given mass: where the density is at least a threshold.

    Attributes:
        mass: The mass that was asked for.
        log_threshold: Log density at the border, shape (B,).
        intervals: For one target, the region of each row as a union of intervals, shape (n_i, 2);
            None for several targets.
    """

    mass: float
    log_threshold: Array
    log_prob: Callable[[Array], Array]
    intervals: tuple[Array, ...] | None = None

    def contains(self, y: Array) -> Array:
        """Whether targets lie in the region: (..., B, D) -> (..., B)."""
        return self.log_prob(y) >= self.log_threshold

    def rescaled(
        self,
        units: Callable[[Tensor], Tensor],
        log_scale: Tensor,
        log_prob: Callable[[Tensor], Tensor],
    ) -> "Region":
        """In other units: see :meth:`Modes.rescaled`; ``log_prob`` is the log density in those units."""
        intervals = self.intervals
        if intervals is not None:
            intervals = tuple(units(row.reshape(-1, 1)).reshape(-1, 2) for row in intervals)
        return Region(self.mass, self.log_threshold - log_scale, log_prob, intervals)
