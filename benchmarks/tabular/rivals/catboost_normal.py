"""CatBoost with the loss RMSEWithUncertainty: the mean and the variance of a normal distribution."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.tabular.predicted import Gaussian, Predict
from benchmarks.tabular.rivals.validation import hold_out


@dataclass(frozen=True)
class CatBoostNormal:
    """CatBoost's defaults but for the loss and the number of trees.

    A tenth of the training rows decides the number of trees; then the model is fitted again to all of them.
    The target is standardised: this loss starts from a normal distribution with mean 0 and variance 1.
    """

    iterations: int = 5000
    learning_rate: float = 0.03
    depth: int = 6
    validation_share: float = 0.1
    patience: int = 100
    name = "CatBoost"
    packages = ("catboost",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Choose the number of trees, then fit to all rows."""
        shift, scale = y.mean(), y.std()
        target = (y - shift) / scale
        X_fit, y_fit, X_validation, y_validation = hold_out(X, target, self.validation_share, seed)
        stopped = self._regressor(self.iterations, seed).fit(
            X_fit, y_fit, eval_set=(X_validation, y_validation), early_stopping_rounds=self.patience
        )
        regressor = self._regressor(max(1, stopped.tree_count_), seed).fit(X, target)

        def predict(X: np.ndarray) -> Gaussian:
            mean, variance = regressor.predict(X, prediction_type="RMSEWithUncertainty", thread_count=1).T
            return Gaussian(shift + scale * mean, scale * np.sqrt(variance))

        return predict

    def _regressor(self, iterations: int, seed: int) -> Any:
        from catboost import CatBoostRegressor

        return CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            iterations=iterations,
            learning_rate=self.learning_rate,
            depth=self.depth,
            random_seed=seed,
            thread_count=1,
            allow_writing_files=False,
            logging_level="Silent",
        )
