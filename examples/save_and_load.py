"""A fitted regressor as a folder, and back; also with a backbone of your own."""

from pathlib import Path

import numpy as np
from torch import nn

import ebreg
from ebreg import EnergyRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 2))
y = X[:, 0] + rng.gamma(2, 0.5, 400)

model = EnergyRegressor(max_iter=5, random_state=0, verbose=False).fit(X, y)  # to be quick
model.save("model", overwrite=True)
again = ebreg.load("model")  # wherever it was trained, it now predicts on the CPU
print("files:", sorted(path.name for path in Path("model").iterdir()))
print("same intervals:", np.array_equal(again.predict_interval(X), model.predict_interval(X)))


def backbone() -> nn.Module:
    """Code is not saved: it is handed in again, and the weights come from the folder."""
    return nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())


model = EnergyRegressor(backbone=backbone(), max_iter=5, random_state=0, verbose=False).fit(X, y)
model.save("model_with_backbone", overwrite=True)
again = ebreg.load("model_with_backbone", backbone=backbone())
print("same intervals:", np.allclose(again.predict_interval(X), model.predict_interval(X)))
