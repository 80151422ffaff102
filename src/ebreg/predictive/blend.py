"""Draws from several sources at once, and the density of the mixture that they form."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def blended(u: Tensor, main: Any, others: Sequence[tuple[float, Any]] = ()) -> tuple[Tensor, Tensor]:
    """Turn points of the unit cube into draws, a fixed share of them from each source.

    Fixed shares are as unbiased as random ones, and spread less. The density is that of the whole mixture, so
    no weight exceeds what a source alone would give, over the share of that source.

    Args:
        u: Shape (M, B, D).
        main: The source that gets what the others leave. A source has ``from_uniform`` and ``log_prob``.
        others: Share and source. They take the first of the points, one at least.

    Returns:
        Draws, shape (M, B, D), and the log density of the mixture there, shape (M, B), in float64.
    """
    counts = [max(1, int(share * len(u))) for share, _ in others]
    counts.append(len(u) - sum(counts))
    sources = [*(source for _, source in others), main]
    parts = [source.from_uniform(some) for source, some in zip(sources, u.split(counts), strict=True)]
    # In the coarsest of their precisions: a draw on the end of a box is then on it for every source.
    dtype = min((part.dtype for part in parts), key=lambda dtype: torch.finfo(dtype).bits)
    draws = torch.cat([part.to(dtype) for part in parts])
    log_q = [
        source.log_prob(draws).double() + math.log(count / len(u))
        for source, count in zip(sources, counts, strict=True)
    ]
    return draws.double(), torch.stack(log_q).logsumexp(dim=0)
