"""Machines of which several rows were measured, and intervals for machines that are not among them."""

import numpy as np

from ebreg import MixtureDensityRegressor, metrics


def machines(n_machines: int, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Wear by load: each machine has an offset of its own, and two columns by which it can be recognised."""
    rng = np.random.default_rng(seed)
    machine = np.repeat(np.arange(n_machines), n_rows)
    offset, marks = rng.normal(0, 1, n_machines), rng.normal(0, 1, (n_machines, 2))
    load = rng.uniform(0, 4, len(machine))
    wear = 2 + load + offset[machine] + rng.normal(0, 0.3, len(machine))
    return np.column_stack([load, marks[machine]]), wear, machine


X, y, machine = machines(30, 10, seed=0)
X_new, y_new, _ = machines(200, 2, seed=1)
model = MixtureDensityRegressor(preset="fast", max_iter=40, random_state=0, verbose=False)  # quick

for name, groups in (("rows at random", None), ("whole machines", machine)):
    p = model.fit(X, y, groups=groups).predict_distribution(X_new)
    width = np.diff(p.interval(0.9), axis=1).mean()
    share = metrics.coverage(p, y_new, 0.9)
    print(f"validated on {name}: 90 % intervals of width {width:.1f} cover {share:.2f} of new machines")
