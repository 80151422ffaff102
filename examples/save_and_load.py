"""Save a fitted regressor to a folder and load it, also with your own backbone."""

from pathlib import Path

import numpy as np
from torch import nn

import ebreg
from ebreg import EnergyRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 2))
y = X[:, 0] + rng.gamma(2, 0.5, 300)

model = EnergyRegressor(max_iter=3, random_state=0, verbose=False).fit(X, y)  # quick
model.save("model", overwrite=True)
again = ebreg.load("model")  # on the CPU, whatever device it was trained on
print("files:", sorted(path.name for path in Path("model").iterdir()))
print("same intervals:", np.array_equal(again.predict_interval(X), model.predict_interval(X)))


def backbone() -> nn.Module:
    """Code is not saved: pass the module again when loading; the weights come from the folder."""
    return nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())


model = EnergyRegressor(backbone=backbone(), max_iter=3, random_state=0, verbose=False).fit(X, y)
model.save("model_with_backbone", overwrite=True)
again = ebreg.load("model_with_backbone", backbone=backbone())
print("same intervals:", np.allclose(again.predict_interval(X), model.predict_interval(X)))
