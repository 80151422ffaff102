"""Splits of rows into a training set and a test set."""

from collections.abc import Callable

import numpy as np
from numpy.random import RandomState

from ebreg._utils import checks

TrainTest = tuple[np.ndarray, np.ndarray]

# Rows in each part of "halves", as in the paper's task of cells.
_LARGEST_HALF = 10_000


def divide(name: str, rows: np.ndarray, groups: np.ndarray | None, seed: int) -> TrainTest:
    """Training rows and test rows, both increasing.

    Args:
        name: One of ``SPLITS`` other than "given", which is a split by files.
        rows: Row numbers to divide, shape (n,), at least two.
        groups: Group of each row, shape (n,), or None.
        seed: Seed of random splits, from 0 to 2**32 - 1.
    """
    checks.one_of("split", name, _DIVIDE)
    seed = checks.seed(seed)
    if len(rows) < 2:
        raise ValueError(f"a split needs at least 2 rows, found {len(rows)}")
    # NumPy's legacy generator never changes, so a seed gives the same rows everywhere.
    train, test = _DIVIDE[name](rows, groups, RandomState(seed))
    return np.sort(train), np.sort(test)


def rotate(name: str, rows: np.ndarray, groups: np.ndarray | None, seed: int, n: int) -> list[TrainTest]:
    """Several splits by the same rule, with test rows as different as their numbers allow.

    Args:
        name: "random", "time" (the test rows are a stretch of rows) or "group".
        rows: Row numbers to divide, shape (m,).
        groups: Group of each row, shape (m,), or None.
        seed: Seed of random splits.
        n: Number of splits.
    """
    is_test = _ROTATE[name](rows, groups, RandomState(checks.seed(seed)), n)
    return [(rows[~each], rows[each]) for each in is_test]


def _random(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState) -> TrainTest:
    return _time(rng.permutation(rows), groups, rng)


def _halves(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState) -> TrainTest:
    half = min(_LARGEST_HALF, len(rows) // 2)
    order = rng.permutation(rows)
    return order[:half], order[half : 2 * half]


def _time(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState) -> TrainTest:
    n_train = len(rows) - _n_test(len(rows))
    return rows[:n_train], rows[n_train:]


def _n_test(n: int) -> int:
    return n - n * 4 // 5  # in integers: 0.8 n may be rounded to the wrong side


def _group(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState) -> TrainTest:
    groups, names = _known(groups)
    chosen = rng.permutation(names)[: max(1, len(names) // 5)]
    test = np.isin(groups, chosen)
    return rows[~test], rows[test]


def _known(groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    # The groups of the rows, and their names.
    if groups is None:
        raise ValueError("split 'group' needs groups, such as the person on each image, and there are none")
    names = np.unique(groups)
    if len(names) < 2:
        raise ValueError(f"split 'group' needs at least 2 groups, found {len(names)}")
    return groups, names


def _in_turn(items: np.ndarray, size: int, n: int) -> list[np.ndarray]:
    # Parts of some size, one after the other, and from the start again where the items end.
    return [items[(i * size + np.arange(size)) % len(items)] for i in range(n)]


def _rotate_random(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState, n: int) -> list[np.ndarray]:
    return [np.isin(rows, part) for part in _in_turn(rng.permutation(rows), _n_test(len(rows)), n)]


def _rotate_time(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState, n: int) -> list[np.ndarray]:
    size, places = _n_test(len(rows)), np.arange(len(rows))
    starts = np.linspace(len(rows) - size, 0, n).round().astype(int)
    return [(places >= start) & (places < start + size) for start in starts]


def _rotate_group(rows: np.ndarray, groups: np.ndarray | None, rng: RandomState, n: int) -> list[np.ndarray]:
    groups, names = _known(groups)
    return [np.isin(groups, part) for part in _in_turn(rng.permutation(names), max(1, len(names) // 5), n)]


_DIVIDE: dict[str, Callable[[np.ndarray, np.ndarray | None, RandomState], TrainTest]] = {
    "random": _random,
    "halves": _halves,
    "time": _time,
    "group": _group,
}
_ROTATE: dict[str, Callable[[np.ndarray, np.ndarray | None, RandomState, int], list[np.ndarray]]] = {
    "random": _rotate_random,
    "time": _rotate_time,
    "group": _rotate_group,
}
GIVEN = "given"
SPLITS = (*_DIVIDE, GIVEN)
