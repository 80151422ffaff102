"""Quantile regression with scikit-learn's HistGradientBoostingRegressor, a model for each level."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.tabular.predicted import Predict, QuantileFunction


@dataclass(frozen=True)
class BoostedQuantiles:
    """Models at 21 levels, sorted for each row, and one of squared errors for the mean.

    For each model a tenth of the training rows decides the number of iterations; then it is fitted again to
    all training rows. There is no density, hence no NLL.
    """

    levels: tuple[float, ...] = (0.01, *(i / 20 for i in range(1, 20)), 0.99)
    max_iter: int = 1000
    learning_rate: float = 0.1
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    name = "HistGradientBoosting quantiles"
    packages = ("scikit-learn",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Fit a model for each level."""
        quantiles = [self._fit(X, y, seed, loss="quantile", quantile=level) for level in self.levels]
        mean = self._fit(X, y, seed, loss="squared_error")

        def predict(X: np.ndarray) -> QuantileFunction:
            values = np.stack([model.predict(X) for model in quantiles])
            return QuantileFunction(np.array(self.levels), values, mean.predict(X))

        return predict

    def _fit(self, X: np.ndarray, y: np.ndarray, seed: int, **loss: Any) -> HistGradientBoostingRegressor:
        common = {"learning_rate": self.learning_rate, "random_state": seed, **loss}
        stopped = HistGradientBoostingRegressor(
            max_iter=self.max_iter,
            early_stopping=True,
            validation_fraction=self.validation_fraction,
            n_iter_no_change=self.n_iter_no_change,
            **common,
        ).fit(X, y)
        return HistGradientBoostingRegressor(max_iter=stopped.n_iter_, early_stopping=False, **common).fit(
            X, y
        )
