"""Quantile regression with scikit-learn's HistGradientBoostingRegressor, a model for each level."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor as Regressor

from benchmarks.tabular.predicted import Predict, QuantileFunction
from benchmarks.tabular.rivals.validation import hold_out
from benchmarks.tabular.scores import CRPS_LEVELS, crps_of

FEW_LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class BoostedQuantiles:
    """Models at 21 levels, sorted for each row, and one of squared errors for the mean.

    A tenth of the training rows chooses the smallest size of a leaf by the CRPS of the quantiles at three
    levels. For each model, another tenth decides the number of iterations; then it is fitted again to all
    training rows. There is no density, hence no NLL.
    """

    levels: tuple[float, ...] = (0.01, *(i / 20 for i in range(1, 20)), 0.99)
    min_samples_leaf: tuple[int, ...] = (5, 20)
    max_iter: int = 1000
    learning_rate: float = 0.1
    validation_share: float = 0.1
    n_iter_no_change: int = 10
    name = "HistGradientBoosting quantiles"
    packages = ("scikit-learn",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Choose the size of a leaf, then fit a model for each level."""
        X_fit, y_fit, X_validation, y_validation = hold_out(X, y, self.validation_share, seed)

        def validation_crps(leaf: int) -> float:
            losses = [{"loss": "quantile", "quantile": level} for level in FEW_LEVELS]
            models = [self._stopped(X_fit, y_fit, leaf, seed, **loss) for loss in losses]
            values = np.stack([model.predict(X_validation) for model in models])
            predicted = QuantileFunction(np.array(FEW_LEVELS), values, mean=values.mean(axis=0))
            return crps_of(predicted.quantile(CRPS_LEVELS), y_validation).mean()

        leaf = min(self.min_samples_leaf, key=validation_crps)
        quantiles = [self._fit(X, y, leaf, seed, loss="quantile", quantile=level) for level in self.levels]
        mean = self._fit(X, y, leaf, seed, loss="squared_error")

        def predict(X: np.ndarray) -> QuantileFunction:
            values = np.stack([model.predict(X) for model in quantiles])
            return QuantileFunction(np.array(self.levels), values, mean.predict(X))

        return predict

    def _fit(self, X: np.ndarray, y: np.ndarray, leaf: int, seed: int, **loss: Any) -> Regressor:
        n_iter = self._stopped(X, y, leaf, seed, **loss).n_iter_
        return self._regressor(leaf, seed, max_iter=n_iter, early_stopping=False, **loss).fit(X, y)

    def _stopped(self, X: np.ndarray, y: np.ndarray, leaf: int, seed: int, **loss: Any) -> Regressor:
        settings = {
            "max_iter": self.max_iter,
            "early_stopping": True,
            "validation_fraction": self.validation_share,
            "n_iter_no_change": self.n_iter_no_change,
        }
        return self._regressor(leaf, seed, **settings, **loss).fit(X, y)

    def _regressor(self, leaf: int, seed: int, **settings: Any) -> Regressor:
        rate = self.learning_rate
        return Regressor(min_samples_leaf=leaf, learning_rate=rate, random_state=seed, **settings)
