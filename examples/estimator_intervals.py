"""Intervals and modes of a regressor, and their evaluation on new data."""

import numpy as np

from ebreg import EnergyRegressor, metrics


def journeys(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Minutes to work by distance: three of four people cycle, the others take the bus."""
    rng = np.random.default_rng(seed)
    km = rng.uniform(1, 12, n)
    bicycle = 4.5 * km + rng.normal(0, 1.5, n)
    bus = 5 + 1.2 * km + rng.gamma(2, 1.5, n)
    return km[:, None], np.where(rng.random(n) < 0.75, bicycle, bus)


X, y = journeys(600, seed=0)
X_test, y_test = journeys(250, seed=1)
model = EnergyRegressor(max_iter=20, random_state=0, verbose=False).fit(X, y)  # quick

p = model.predict_distribution([[2.0], [10.0]])
for row, km in enumerate((2, 10)):
    modes = p.modes()[row]
    print(f"{km} km: 90 % interval {p.interval(0.9)[row].round(1)}")
    print(f"  modes {modes.locations.round(1)} with masses {modes.masses.round(2)}")
    print(f"  smallest region with 90 %: {p.highest_density_region(0.9).intervals[row].round(1).tolist()}")

test = model.predict_distribution(X_test)
print(f"coverage of the 90 % intervals {metrics.coverage(test, y_test, 0.9):.2f}")
print(f"CRPS {metrics.crps(test, y_test).mean():.2f} minutes, NLL {metrics.nll(test, y_test).mean():.2f}")
print(f"unreliable rows: {test.unreliable.sum()} of {len(test)}")
