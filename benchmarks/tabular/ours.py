"""Ours: the estimators of ebreg, with their defaults and with other arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.tabular.predicted import Predict


@dataclass(frozen=True)
class Ours:
    """An estimator of ebreg; all arguments but these are its defaults.

    Attributes:
        estimator: Its name in ebreg.
        arguments: What differs from the defaults.
        label: Added to the name, for the version.
    """

    estimator: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    packages = ("ebreg",)

    @property
    def name(self) -> str:
        """As it is called in Python, with its label."""
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.estimator}{f'({inside})' if inside else ''} {self.label}".rstrip()

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Fit on the CPU."""
        import ebreg

        estimator = getattr(ebreg, self.estimator)
        regressor = estimator(**self.arguments, device="cpu", random_state=seed, verbose=False)
        return regressor.fit(X, y).predict_distribution


def ours(label: str = "") -> list[Ours]:
    """A row for each estimator and each set of arguments."""
    return [
        Ours("EnergyRegressor", {}, label),
        Ours("MixtureDensityRegressor", {}, label),
        Ours("EnergyRegressor", {"preset": "fast"}, label),
        Ours("MixtureDensityRegressor", {"preset": "fast"}, label),
        Ours("EnergyRegressor", {"preset": "best"}, label),
        Ours("EnergyRegressor", {"method": "joint-nce"}, label),
        Ours("MixtureDensityRegressor", {"teacher": "energy"}, label),
        Ours("MixtureDensityRegressor", {"teacher": None}, label),  # the default now, but not in version 0.1
    ]
