"""Source: where the draws of importance sampling come from, and their density."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebreg.distributions import FullMixture, GaussianMixture, TruncatedMixture
from ebreg.predictive.unnormalized import Unnormalized
from ebreg.units import Tail

# Shares of the draws: from the wide Gaussian and, beside a fitted mixture, from the proposal.
_WIDE, _PROPOSAL = 0.1, 0.2


@dataclass(frozen=True)
class Source:
    """Several distributions that each give a fixed share of the draws.

    A tenth of the draws comes from one wide Gaussian over the box of the tail, so that mass where the
    proposal has none can be seen; the rest from the proposal or, once a mixture was fitted to the rows, most
    from that and a fifth from the proposal.

    Attributes:
        target: The rows.
        fitted: A mixture for each row; None: the proposal alone.
    """

    target: Unnormalized
    fitted: FullMixture | None = None

    def __getitem__(self, rows: Any) -> "Source":
        """Some of the rows: a slice, row numbers or a mask."""
        return Source(self.target[rows], None if self.fitted is None else self.fitted[rows])

    @torch.no_grad()
    def log_prob(self, y: Tensor) -> Tensor:
        """Log density of the draws, in float64: (M, B, D) -> (M, B); not differentiated."""
        *others, (_, main) = self._parts()
        left = 1 - sum(share for share, _ in others)
        log_q = [part.log_prob(y).double() + math.log(share) for share, part in (*others, (left, main))]
        return torch.stack(log_q).logsumexp(dim=0)

    @torch.no_grad()
    def draws(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Turn points of the unit cube into draws.

        Fixed shares are as unbiased as random ones, and vary less. The density is that of the whole mixture,
        so no weight exceeds what one distribution alone would give, over its share.

        Args:
            u: Shape (M, B, D).

        Returns:
            Draws, shape (M, B, D), and the log density of the mixture there, shape (M, B), in float64, both
            in standard units and not differentiated.
        """
        *others, (_, main) = self._parts()
        counts = [max(1, int(share * len(u))) for share, _ in others]
        counts.append(len(u) - sum(counts))
        parts = [*(part for _, part in others), main]
        pieces = [part.from_uniform(some) for part, some in zip(parts, u.split(counts), strict=True)]
        # In the coarsest of their precisions: a draw on a bound is then on it for every part.
        dtype = min((piece.dtype for piece in pieces), key=lambda dtype: torch.finfo(dtype).bits)
        draws = torch.cat([piece.to(dtype) for piece in pieces])
        log_q = [
            part.log_prob(draws).double() + math.log(count / len(u))
            for part, count in zip(parts, counts, strict=True)
        ]
        return draws.double(), torch.stack(log_q).logsumexp(dim=0)

    def weighted(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draws (M, B, D) with f and log q there, (M, B) each, from points of the unit cube."""
        draws, log_q = self.draws(u)
        return draws, self.target.energy(draws), log_q

    def _parts(self) -> list[tuple[float, GaussianMixture | FullMixture]]:
        # The last one gets what the others leave.
        proposal, tail = self.target.proposal, self.target.tail
        wide = [] if tail is None else [(_WIDE, wide_gaussian(tail, len(self.target)))]
        if self.fitted is None:
            return [*wide, (1.0, proposal)]
        return [*wide, (_PROPOSAL, proposal), (1.0, self.fitted)]


def wide_gaussian(tail: Tail, B: int) -> GaussianMixture:
    """One Gaussian for each of B rows that covers the box and a width of its tails, within the bounds."""
    low, high = tail.low - tail.width, tail.high + tail.width
    shape = (B, 1, len(low))
    means, scales = (0.5 * (low + high)).expand(shape), (0.5 * (high - low)).expand(shape)
    logits = low.new_zeros(B, 1)
    if tail.bounds.are_open:
        return GaussianMixture(logits, means, scales, validate_args=False)
    return TruncatedMixture(logits, means, scales, tail.bounds.low, tail.bounds.high, validate_args=False)
