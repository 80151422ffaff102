"""A table with two branches, where an interval has to span the gap between them and a region has not."""

import numpy as np

from benchmarks.tabular.tables import Rows, Table

N_SEEDS, N_TRAINING, N_TEST = 20, 1000, 2000


def two_branches() -> Table:
    """Targets near x or near -x, at random; each split has rows of its own."""
    n = N_TRAINING + N_TEST
    draws = [_draw(n, seed) for seed in range(N_SEEDS)]
    rows = Rows(np.concatenate([X for X, _ in draws]), np.concatenate([y for _, y in draws]))
    numbers = np.arange(N_SEEDS * n).reshape(N_SEEDS, n)
    splits = {seed: (own[:N_TRAINING], own[N_TRAINING:]) for seed, own in enumerate(numbers)}
    return Table("two branches", rows, splits)


def _draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, n)
    return x[:, None], rng.choice([-1, 1], n) * x + rng.normal(0, 1, n)
