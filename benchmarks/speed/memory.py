"""Time and memory of one pass over a long table; to be measured in a process of its own."""

import resource

import numpy as np

from benchmarks.speed.corrected import corrected
from benchmarks.speed.data import Sizes
from benchmarks.speed.timing import cpu_seconds
from ebreg import EnergyRegressor

N_COLUMNS = 20


def one_pass(sizes: Sizes) -> tuple[int, float, float]:
    """``to_frame`` of all rows: the seed of the energy, CPU seconds, and the growth of the peak memory in MB.

    A process has one peak: what it did before must not have needed more.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(sizes.n_long, N_COLUMNS))
    y = X[:, 0] + np.exp(0.3 * X[:, 1]) * rng.gamma(2, 0.5, sizes.n_long)
    few = slice(sizes.n_rows)

    def fit(seed: int) -> EnergyRegressor:
        model = EnergyRegressor(preset="fast", random_state=seed, verbose=False, **sizes.of_fits)
        return model.fit(X[few], y[few])

    model, seed = corrected(fit, required=sizes.max_iter is None)
    before = _peak()
    seconds = cpu_seconds(lambda: model.predict_distribution(X).to_frame())
    return seed, seconds, _peak() - before


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
