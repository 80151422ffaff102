"""Modes and highest-density regions of a batch of densities."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

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

    Attributes:
        mass: The mass that was asked for.
        log_threshold: Log density at the border, shape (B,).
        log_prob: The log density, which decides what the region contains.
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
