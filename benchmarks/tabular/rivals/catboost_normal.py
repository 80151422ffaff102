"""CatBoost with the loss RMSEWithUncertainty: the mean and the variance of a normal distribution."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks.tabular.predicted import Gaussian, Predict
from benchmarks.tabular.rivals.validation import hold_out

LOSS = "RMSEWithUncertainty"


@dataclass(frozen=True)
class CatBoostNormal:
    """CatBoost's defaults but for the fields below.

    A tenth of the training rows chooses the depth, the learning rate and the number of trees by its NLL; then
    the model is fitted again to all of them. The target is standardised: this loss starts from a normal
    distribution with mean 0 and variance 1.
    """

    iterations: int = 5000
    learning_rates: tuple[float, ...] = (0.03, 0.1)
    depths: tuple[int, ...] = (3, 6)
    validation_share: float = 0.1
    patience: int = 100
    name = "CatBoost"
    packages = ("catboost",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Choose the settings, then fit to all rows."""
        shift, scale = y.mean(), y.std()
        target = (y - shift) / scale
        X_fit, y_fit, *validation = hold_out(X, target, self.validation_share, seed)
        tried = [
            self._regressor(seed, iterations=self.iterations, learning_rate=rate, depth=depth).fit(
                X_fit, y_fit, eval_set=tuple(validation), early_stopping_rounds=self.patience
            )
            for rate, depth in product(self.learning_rates, self.depths)
        ]
        best = min(tried, key=lambda stopped: stopped.get_best_score()["validation"][LOSS])
        same = {name: best.get_param(name) for name in ("learning_rate", "depth")}
        regressor = self._regressor(seed, iterations=best.tree_count_, **same).fit(X, target)

        def predict(X: np.ndarray) -> Gaussian:
            mean, variance = regressor.predict(X, prediction_type=LOSS, thread_count=1).T
            return Gaussian(shift + scale * mean, scale * np.sqrt(variance))

        return predict

    def _regressor(self, seed: int, **settings: Any) -> Any:
        from catboost import CatBoostRegressor

        return CatBoostRegressor(
            **settings,
            loss_function=LOSS,
            random_seed=seed,
            thread_count=1,
            allow_writing_files=False,
            logging_level="Silent",
        )
