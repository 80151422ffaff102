"""A model that is asked about inputs it has never seen the like of."""

import numpy as np

from ebreg import MixtureDensityRegressor

rng = np.random.default_rng(0)
temperature = rng.uniform(5, 35, 400)
humidity = np.clip(90 - 2 * temperature + rng.normal(0, 6, 400), 5, 100)
X = np.column_stack([temperature, humidity])
demand = 300 + (temperature - 18) ** 2 + rng.normal(0, 10, 400)
model = MixtureDensityRegressor(preset="fast", max_iter=20, random_state=0, verbose=False).fit(
    X, demand
)  # quick

asked = {
    "as in the training": [20, 50],
    "hotter than any day": [60, 10],
    "each usual, not together": [33, 78],
}
p = model.predict_distribution(list(asked.values()))
for what, row, flag, score, share in zip(
    asked, asked.values(), p.unusual, p.unusual_score, p.epistemic_share, strict=True
):
    print(f"{row}, {what}: unusual {flag}, score {score:.1f}, the members disagree about {share:.0%}")
