"""NGBoost with a normal distribution: with the library's defaults, and as in its authors' experiments."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from benchmarks.tabular.predicted import Gaussian, Predict
from benchmarks.tabular.rivals.validation import hold_out


@dataclass(frozen=True)
class NGBoostNormal:
    """The defaults of the library: 500 stages, fitted to all rows."""

    n_estimators: int = 500
    learning_rate: float = 0.01
    max_depth: int = 3
    name = "NGBoost, 500 stages"
    packages = ("ngboost",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Fit to all rows."""
        return _predict(_regressor(self, self.n_estimators, seed).fit(X, y))


@dataclass(frozen=True)
class NGBoostStopped:
    """As in the experiments of its authors (Duan et al., 2020).

    At most 2,000 stages; a fifth of the training rows decides the number of stages by its NLL; then the model
    is fitted again to all training rows with that number. They run all stages; here boosting ends when the
    NLL of the held-out rows has not improved for ``patience`` stages.
    """

    n_estimators: int = 2000
    learning_rate: float = 0.01
    max_depth: int = 3
    validation_share: float = 0.2
    patience: int = 100
    name = "NGBoost"
    packages = ("ngboost",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Choose the number of stages, then fit to all rows."""
        held_out = hold_out(X, y, self.validation_share, seed)
        stopped = _regressor(self, self.n_estimators, seed)
        stopped.fit(*held_out, early_stopping_rounds=self.patience)
        return _predict(_regressor(self, stopped.best_val_loss_itr + 1, seed).fit(X, y))


def _regressor(settings: NGBoostNormal | NGBoostStopped, n_estimators: int, seed: int) -> Any:
    from ngboost import NGBRegressor

    return NGBRegressor(
        # The default learner draws from numpy's global generator.
        Base=DecisionTreeRegressor(max_depth=settings.max_depth, random_state=seed),
        n_estimators=n_estimators,
        learning_rate=settings.learning_rate,
        random_state=seed,
        verbose=False,
    )


def _predict(regressor: Any) -> Predict:
    def predict(X: np.ndarray) -> Gaussian:
        normal = regressor.pred_dist(X)
        return Gaussian(normal.loc, normal.scale)

    return predict
