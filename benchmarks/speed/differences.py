"""How far answers are from those with 16 times the nodes."""

import numpy as np

from benchmarks.speed.data import Sizes, table
from ebreg import EnergyRegressor
from ebreg.predictive import Accuracy

FINE = Accuracy(n_nodes=2048)


def differences(model: EnergyRegressor, sizes: Sizes) -> list[list[str]]:
    """Rows of a table: the largest difference and the 99.9 % quantile over rows, in standard deviations."""
    X, _ = table(sizes.n_predicted, seed=1, n_columns=sizes.n_columns)
    p, fine = (model.predict_distribution(X, accuracy=accuracy) for accuracy in (None, FINE))
    found = {
        "mean": np.abs(p.mean - fine.mean) / fine.stddev,
        "ends of the interval": np.abs(p.interval() - fine.interval()).max(axis=1) / fine.stddev,
    }
    return [[name, f"{off.max():.2g}", f"{np.quantile(off, 0.999):.2g}"] for name, off in found.items()]
