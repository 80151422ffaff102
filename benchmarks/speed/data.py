"""The table of the measurements, and their sizes."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements.

    Attributes:
        n_rows: Training rows.
        n_columns: C.
        n_predicted: Rows of a prediction.
        n_regions: Rows whose regions are computed.
        n_long: Rows of the table of one pass.
        n_threads: Threads of the fits that are timed by the clock on the wall.
        max_iter: Epochs of every fit, iterations of the other libraries; None: their defaults.
    """

    n_rows: int = 2000
    n_columns: int = 12
    n_predicted: int = 5000
    n_regions: int = 1000
    n_long: int = 100_000
    n_threads: int = 2
    max_iter: int | None = None

    @property
    def of_fits(self) -> dict[str, int]:
        """Arguments of our regressors; none by default, so that other versions accept them."""
        return {} if self.max_iter is None else {"max_iter": self.max_iter}


QUICK = Sizes(n_rows=60, n_predicted=30, n_regions=5, n_long=100, n_threads=1, max_iter=2)


def table(n: int, n_targets: int = 1, seed: int = 0, n_columns: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Two modes, and noise whose width depends on the inputs: X, (n, C), and y, (n,) or (n, D).

    The targets depend on six columns, and on the first one for several roles where there are fewer.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_columns))
    targets = []
    for d in range(n_targets):
        Z = [X[:, (role - d) % n_columns] for role in range(6)]
        upper = rng.random(n) < 1 / (1 + np.exp(-Z[2]))
        noise = np.exp(0.5 * Z[1] - 1) * rng.gamma(2, 0.5, n)
        trend = np.sin(2 * Z[0]) + 0.5 * Z[3] * Z[4]
        targets.append(trend + np.where(upper, 1.5 + 0.3 * Z[5], 0) + noise)
    return X, targets[0] if n_targets == 1 else np.stack(targets, axis=1)
