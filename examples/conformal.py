"""Intervals and regions with guaranteed coverage, for a table with two branches."""

import numpy as np

from ebreg import EnergyRegressor


def branches(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets near x or near -x, at random."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, n)
    return x[:, None], rng.choice([-1, 1], n) * x + rng.normal(0, 1, n)


X, y = branches(400, seed=0)
X_calibration, y_calibration = branches(199, seed=1)
X_test, y_test = branches(500, seed=2)
model = EnergyRegressor(preset="fast", max_iter=10, random_state=0, verbose=False).fit(X, y)  # quick

for what in ("as the model says", "calibrated"):
    low, high = model.predict_interval(X_test, coverage=0.9).T
    covered = np.mean((low <= y_test) & (y_test <= high))
    print(f"{what}: intervals of 90 % cover {covered:.3f}, mean length {np.mean(high - low):.1f}")
    region = model.predict_region(X_test, coverage=0.9)
    length = np.mean([np.diff(parts).sum() for parts in region.intervals])
    print(f"{what}: regions of 90 % cover {region.contains(y_test).mean():.3f}, mean length {length:.1f}")
    model.conformalize(X_calibration, y_calibration)
