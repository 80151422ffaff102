"""How rows are divided into a part for training and a part for test."""

from collections.abc import Callable

import numpy as np
from numpy.random import RandomState

from ebreg._utils import checks

Parts = tuple[np.ndarray, np.ndarray]

# Of each part of "halves": as the paper draws from the cells.
_LARGEST_HALF = 10_000


def divide(name: str, rows: np.ndarray, groups: np.ndarray | None, seed: int) -> Parts:
    """Rows for training and rows for test, both increasing.

    Args:
        name: One of ``SPLITS`` other than "given", which is in the files.
        rows: What is divided, shape (n,), at least two.
        groups: What ties those rows to each other, shape (n,), or None.
        seed: Of what is drawn, from 0 to 2**32 - 1.
    """
    checks.one_of("split", name, _DIVIDE)
    seed = checks.seed(seed)
    if len(rows) < 2:
        raise ValueError(f"a split needs at least 2 rows, found {len(rows)}")
    # NumPy's legacy generator: its stream is frozen, so a seed means the same rows everywhere.
    train, test = _DIVIDE[name](rows, groups, RandomState(seed))
    return np.sort(train), np.sort(test)


def _random(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState) -> Parts:
    return _time(rng.permutation(rows), groups, rng)


def _halves(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState) -> Parts:
    half = min(_LARGEST_HALF, len(rows) // 2)
    order = rng.permutation(rows)
    return order[:half], order[half : 2 * half]


def _time(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState) -> Parts:
    n_train = len(rows) * 4 // 5  # in whole numbers, where 0.8 n may be rounded to the wrong side
    return rows[:n_train], rows[n_train:]


def _group(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState) -> Parts:
    if groups is None:
        raise ValueError("split 'group' needs groups, such as the person on each image, and there are none")
    names = np.unique(groups)
    if len(names) < 2:
        raise ValueError(f"split 'group' needs at least 2 groups, found {len(names)}")
    chosen = rng.permutation(names)[: max(1, len(names) // 5)]
    test = np.isin(groups, chosen)
    return rows[~test], rows[test]


_DIVIDE: dict[str, Callable[[np.ndarray, np.ndarray | None, RandomState], Parts]] = {
    "random": _random,
    "halves": _halves,
    "time": _time,
    "group": _group,
}
GIVEN = "given"
SPLITS = (*_DIVIDE, GIVEN)
