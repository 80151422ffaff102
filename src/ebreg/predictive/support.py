"""Support: where the mass of p(y | x) can be, in standard units."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.distributions import GaussianMixture, TruncatedMixture


@dataclass(frozen=True)
class Support:
    """A box that holds the data, the width of the tails beyond it, and the ends that are closed.

    Attributes:
        low: Lower corner, shape (D,).
        high: Upper corner, shape (D,).
        width: Standard deviation of the tails, shape (D,).
        closed_low: Where nothing lies below ``low``, shape (D,); None: nowhere.
        closed_high: Where nothing lies above ``high``, shape (D,); None: nowhere.
    """

    low: Tensor
    high: Tensor
    width: Tensor
    closed_low: Tensor | None = None
    closed_high: Tensor | None = None

    @property
    def closed(self) -> tuple[Tensor, Tensor]:
        """Whether each end is closed, two of shape (D,)."""
        none = torch.zeros_like(self.low, dtype=torch.bool)
        return (
            none if self.closed_low is None else self.closed_low,
            none if self.closed_high is None else self.closed_high,
        )

    @property
    def limits(self) -> tuple[Tensor, Tensor]:
        """The closed ends, infinite where an end is open, two of shape (D,)."""
        below, above = self.closed
        return (
            torch.where(below, self.low, -torch.inf),
            torch.where(above, self.high, torch.inf),
        )

    def contains(self, y: Tensor) -> Tensor:
        """Whether y lies beyond no closed end: (..., D) -> (...)."""
        low, high = (end.to(y.dtype) for end in self.limits)
        return ((y >= low) & (y <= high)).all(dim=-1)

    def wide(self, B: int) -> GaussianMixture:
        """One Gaussian a row that covers the box and a width of its open tails, cut at the closed ends."""
        low, high = self.low - self.width, self.high + self.width
        shape = (B, 1, len(self.low))
        means, scales = (0.5 * (low + high)).expand(shape), (0.5 * (high - low)).expand(shape)
        logits = low.new_zeros(B, 1)
        if not torch.stack(self.closed).any():
            return GaussianMixture(logits, means, scales, validate_args=False)
        return TruncatedMixture(logits, means, scales, *self.limits, validate_args=False)
