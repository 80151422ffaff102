"""Predicted sets as unions of intervals: what they cover, and how long they are."""

from collections.abc import Sequence

import numpy as np

# The parts of each row, (n_i, 2).
Sets = Sequence[np.ndarray]


def coverage(sets: Sets, y: np.ndarray) -> float:
    """The share of the targets, (n,), in their sets."""
    pairs = zip(sets, y, strict=True)
    return float(np.mean([((parts[:, 0] <= v) & (v <= parts[:, 1])).any() for parts, v in pairs]))


def sizes(sets: Sets) -> np.ndarray:
    """The total length of each row's parts, (n,)."""
    return np.array([(parts[:, 1] - parts[:, 0]).sum() for parts in sets])


def measured(sets: dict[float, Sets], y: np.ndarray) -> dict[str, float]:
    """Coverage and mean size at each level, and the median size at one, named as the columns of a run."""
    columns = {"median_90": float(np.median(sizes(sets[0.9])))}
    for level, parts in sets.items():
        name = round(100 * level)
        columns |= {f"coverage_{name}": coverage(parts, y), f"size_{name}": float(sizes(parts).mean())}
    return columns
