"""Predictions of many rows beside scikit-learn's MLPRegressor, a mean, and NGBoost, one Gaussian a row."""

import numpy as np
from sklearn.neural_network import MLPRegressor

from benchmarks.measure import Row, print_table, times_ms
from ebreg import EnergyRegressor, MixtureDensityRegressor


def _data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, 10))
    sign = np.where(rng.uniform(size=n) < 0.5, 1, -1)
    return X, X[:, 0] + sign * (1 + X[:, 1] ** 2) + 0.3 * rng.standard_normal(n)


def run(n_rows: int = 5000) -> list[Row]:
    from ngboost import NGBRegressor  # of the extra "bench"

    X, y = _data(1000, 0)
    rows, _ = _data(n_rows, 1)
    # How well they are trained does not change what a prediction costs.
    regressors = [
        EnergyRegressor(max_iter=20, random_state=0, verbose=False),
        MixtureDensityRegressor(max_iter=20, random_state=0, verbose=False),
    ]
    mlp = MLPRegressor(hidden_layer_sizes=(64, 64), max_iter=50, early_stopping=True, random_state=0)
    ngb = NGBRegressor(random_state=0, verbose=False)
    for regressor in [*regressors, mlp, ngb]:
        regressor.fit(X, y)
    found = []
    for model in regressors:
        name = type(model).__name__
        mean, theirs = times_ms(lambda m=model: m.predict(rows), lambda: mlp.predict(rows), turns=3)
        found.append(Row(f"{name}.predict beside MLPRegressor.predict, {n_rows:,} rows", mean, theirs))
        interval, theirs = times_ms(
            lambda m=model: m.predict_interval(rows),
            lambda: ngb.pred_dist(rows).dist.interval(0.9),
            turns=3,
        )
        found.append(Row(f"{name}.predict_interval beside NGBRegressor, {n_rows:,} rows", interval, theirs))
    return found


if __name__ == "__main__":
    print_table(run())
