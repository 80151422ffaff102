"""Predicted sets as unions of intervals: what they cover, and how long they are."""

from collections.abc import Sequence

import numpy as np

# The parts of each row, (n_i, 2).
Sets = Sequence[np.ndarray]


def coverage(sets: Sets, y: np.ndarray) -> float:
    """The share of the targets, (n,), in their sets."""
    pairs = zip(sets, y, strict=True)
    return float(np.mean([((parts[:, 0] <= v) & (v <= parts[:, 1])).any() for parts, v in pairs]))


def size(sets: Sets) -> float:
    """The mean over rows of the total length."""
    return float(np.mean([(parts[:, 1] - parts[:, 0]).sum() for parts in sets]))


def measured(sets: dict[float, Sets], y: np.ndarray) -> dict[str, float]:
    """Coverage and size at each level, named as the columns of a run."""
    return {
        f"{what}_{round(100 * level)}": value
        for level, parts in sets.items()
        for what, value in (("coverage", coverage(parts, y)), ("size", size(parts)))
    }
