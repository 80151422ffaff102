"""Quantile regression forests of the package quantile-forest."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.tabular.predicted import Predict
from benchmarks.tabular.rivals.validation import hold_out
from benchmarks.tabular.scores import CRPS_LEVELS, crps_of


@dataclass(frozen=True)
class QuantileForest:
    """A forest whose leaves keep all their targets.

    A tenth of the training rows chooses the smallest size of a leaf by its CRPS; then the forest is grown
    again on all training rows. There is no density, hence no NLL.
    """

    n_estimators: int = 200
    min_samples_leaf: tuple[int, ...] = (1, 5, 10)
    validation_share: float = 0.1
    name = "quantile-forest"
    packages = ("quantile-forest",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Choose the size of a leaf, then fit to all rows."""
        X_fit, y_fit, X_validation, y_validation = hold_out(X, y, self.validation_share, seed)

        def validation_crps(leaf: int) -> float:
            predicted = ForestPredicted(self._forest(leaf, seed).fit(X_fit, y_fit), X_validation)
            return crps_of(predicted.quantile(CRPS_LEVELS), y_validation).mean()

        forest = self._forest(min(self.min_samples_leaf, key=validation_crps), seed).fit(X, y)
        return lambda X: ForestPredicted(forest, X)

    def _forest(self, leaf: int, seed: int) -> Any:
        from quantile_forest import RandomForestQuantileRegressor

        return RandomForestQuantileRegressor(
            n_estimators=self.n_estimators,
            min_samples_leaf=leaf,
            max_samples_leaf=None,
            n_jobs=1,
            random_state=seed,
        )


@dataclass(frozen=True)
class ForestPredicted:
    """The weighted training targets of each row; they have no density."""

    forest: Any
    X: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Shape (n,)."""
        return self.forest.predict(self.X, quantiles="mean")

    def log_prob(self, y: np.ndarray) -> None:
        """None."""

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """Shape (Q, n)."""
        return self.forest.predict(self.X, quantiles=levels.tolist()).T
