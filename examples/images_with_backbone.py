"""Regression on images: your own convolutional network computes the features."""

import numpy as np
import torch
from torch import nn

from ebreg import EnergyRegressor, metrics


def bars(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 1, 12, 12) of a bar through the centre, and noisy measurements of its angle."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.2, np.pi - 0.2, n)
    side = np.linspace(-1, 1, 12)
    distance = np.cos(angle)[:, None, None] * side + np.sin(angle)[:, None, None] * side[:, None]
    images = np.exp(-8 * distance**2)[:, None] + rng.normal(0, 0.1, (n, 1, 12, 12))
    return images, angle + rng.normal(0, 0.05 + 0.1 * (angle > np.pi / 2))


torch.manual_seed(0)
backbone = nn.Sequential(
    nn.Conv2d(1, 8, kernel_size=3, stride=2),
    nn.ReLU(),
    nn.Conv2d(8, 16, kernel_size=3, stride=2),
    nn.ReLU(),
    nn.Flatten(),  # (B, 64)
)
X, y = bars(600, seed=0)
X_test, y_test = bars(200, seed=1)
model = EnergyRegressor(backbone=backbone, max_iter=20, random_state=0, verbose=False).fit(X, y)  # quick

p = model.predict_distribution(X_test)
left = y_test < np.pi / 2
print(f"R2 {model.score(X_test, y_test):.2f}")
print(f"deviation {p[left].stddev.mean():.2f} where measurements are good, else {p[~left].stddev.mean():.2f}")
print(f"coverage of the 90 % intervals {metrics.coverage(p, y_test, 0.9):.2f}")
