"""Ragged answers about a batch of densities: their modes and their highest-density regions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mode:
    """The modes of one row, heaviest first.

    Attributes:
        locations: Shape (n, D).
        masses: Probability of the hill that belongs to each, shape (n,); they sum to 1.
        log_densities: Log density at the top, shape (n,).
    """

    locations: Tensor
    masses: Tensor
    log_densities: Tensor

    def __len__(self) -> int:
        return self.locations.shape[0]


@dataclass(frozen=True)
class Modes:
    """The modes of every row of a batch; ``modes[i]`` is row i."""

    rows: tuple[Mode, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Mode:
        return self.rows[row]

    def __iter__(self) -> Iterator[Mode]:
        return iter(self.rows)

    @property
    def counts(self) -> Tensor:
        """How many modes each row has, shape (B,)."""
        return torch.tensor([len(row) for row in self.rows])

    def rescaled(self, shift: Tensor, scale: Tensor) -> "Modes":
        """The modes of shift + scale * y; both have shape (D,)."""
        log_scale = scale.log().sum()
        return Modes(
            tuple(
                replace(
                    row, locations=shift + scale * row.locations, log_densities=row.log_densities - log_scale
                )
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
    log_threshold: Tensor
    log_prob: Callable[[Tensor], Tensor]
    intervals: tuple[Tensor, ...] | None = None

    def contains(self, y: Tensor) -> Tensor:
        """Whether targets lie in the region: (..., B, D) -> (..., B)."""
        return self.log_prob(y) >= self.log_threshold

    def rescaled(self, shift: Tensor, scale: Tensor) -> "Region":
        """The region of shift + scale * y; both have shape (D,)."""
        log_scale = scale.log().sum()
        return Region(
            self.mass,
            self.log_threshold - log_scale,
            lambda y: self.log_prob((y - shift) / scale) - log_scale,
            None if self.intervals is None else tuple(shift + scale * row for row in self.intervals),
        )
