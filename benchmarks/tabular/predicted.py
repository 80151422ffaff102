"""Predicted: what a method says about the test rows, and the forms in which methods say it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


class Predicted(Protocol):
    """The predictive distributions of n rows, in the units of y. A prediction of ebreg is one."""

    @property
    def mean(self) -> np.ndarray:
        """Shape (n,)."""

    def log_prob(self, y: np.ndarray) -> np.ndarray | None:
        """Log density of the targets, shape (n,); None for a method without a density."""

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles at the levels (Q,), shape (Q, n)."""


Predict = Callable[[np.ndarray], Predicted]
"""From inputs (n, d) to the distributions of n rows."""


class Method(Protocol):
    """A way to fit a predictive distribution; a frozen dataclass whose fields are the settings."""

    @property
    def name(self) -> str:
        """Its name in results and options."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages, as pip names them, without which it cannot run."""

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Fit to the inputs (n, d) and targets (n,) in one thread."""


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution a row; mean and std have shape (n,)."""

    mean: np.ndarray
    std: np.ndarray

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """Log density, shape (n,)."""
        return self._normal().logpdf(y)

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """Shape (Q, n)."""
        return self._normal().ppf(np.asarray(levels)[:, None])

    def _normal(self) -> Any:
        from scipy.stats import norm

        return norm(self.mean, self.std)


@dataclass(frozen=True)
class QuantileFunction:
    """Quantiles at some levels, linear between them and constant beyond; there is no density.

    Attributes:
        levels: Increasing, shape (L,).
        values: The quantiles; they are sorted, so that they increase with the level. Shape (L, n).
        mean: Shape (n,).
    """

    levels: np.ndarray
    values: np.ndarray
    mean: np.ndarray
    _sorted: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sorted", np.sort(self.values, axis=0))

    def log_prob(self, y: np.ndarray) -> None:
        """None."""

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """Shape (Q, n)."""
        above = np.clip(np.searchsorted(self.levels, levels), 1, len(self.levels) - 1)
        low, high = self.levels[above - 1], self.levels[above]
        share = np.clip((levels - low) / (high - low), 0.0, 1.0)[:, None]
        return (1 - share) * self._sorted[above - 1] + share * self._sorted[above]
