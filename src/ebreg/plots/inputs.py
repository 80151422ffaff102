"""Inputs of the plots: arrays, and the prediction of one target."""

from typing import Any

import numpy as np
from torch import Tensor

from ebreg._utils import checks

Values = Tensor | np.ndarray

_SEEN_MASS = 0.995  # of each row, in the range of targets that a plot chooses by itself
_MARGIN = 0.04  # of that range, empty on either side


def array(name: str, values: Any) -> np.ndarray:
    """An array in float64, from a tensor on any device, an array or lists."""
    return checks.numbers(name, values).detach().cpu().double().numpy()


def vector(name: str, values: Values) -> np.ndarray:
    """An array (n,), from (n,) or (n, 1)."""
    values = array(name, values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (n,) or (n, 1), got {values.shape}")
    return values


def vector_of(n: int, name: str, values: Values, other: str) -> np.ndarray:
    """A copy of n finite values, shape (n,); the message for another n names ``other``."""
    values = vector(name, values).copy()
    if len(values) != n:
        raise ValueError(f"{name} must have as many values as {other}, {n}; got {len(values)}")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(f"{name} must be finite, got {values[bad[0]]} at index {bad[0]}")
    return values


def probabilities(name: str, values: Any) -> np.ndarray:
    """Probabilities in (0, 1) in rising order, shape (n,) with n >= 1."""
    levels = checks.levels(name, values)
    if levels.dim() > 1:
        raise ValueError(f"{name} must be one number or a list of numbers, got shape {tuple(levels.shape)}")
    return np.sort(levels.cpu().numpy().reshape(-1))


def check_prediction(dist: Any) -> None:
    """Require the result of an estimator's ``predict_distribution``, with at least one row."""
    if not hasattr(dist, "n_targets") or hasattr(dist, "event_shape"):  # a torch Distribution
        raise TypeError(
            "dist must be a prediction, as predict_distribution of an estimator returns it; "
            f"got {type(dist).__name__}. For log densities on a grid use plots.density"
        )
    if not len(dist):
        raise ValueError("dist must have at least 1 row, got none")


class OneTarget:
    """The prediction of one target, with all arrays without an axis for the target.

    The prediction itself has that axis if the estimator was fitted to targets (n, 1), and not if (n,).

    Args:
        dist: The result of an estimator's ``predict_distribution``; anything else is an error.
    """

    def __init__(self, dist: Any):
        check_prediction(dist)
        if dist.n_targets != 1:
            raise ValueError(
                f"this plot is for one target, and dist has {dist.n_targets}; fit an estimator to one of "
                "them, or draw samples of one: plots.scatter(x, dist.sample(1)[0, :, 0])"
            )
        self._dist = dist
        self._has_axis = np.ndim(dist[:1].mean) == 2  # of a single row, which is cheap

    def __len__(self) -> int:
        return len(self._dist)

    def row(self, i: int) -> "OneTarget":
        """Row i alone."""
        return OneTarget(self._dist[i : i + 1])

    @property
    def mean(self) -> np.ndarray:
        """Shape (n,)."""
        return np.reshape(self._dist.mean, len(self))

    def icdf(self, q: np.ndarray) -> np.ndarray:
        """Levels (Q,) -> (Q, n)."""
        return np.reshape(self._dist.icdf(q), (len(q), len(self)))

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """The same targets for every row: (G,) -> (G, n)."""
        # Not broadcast: torch warns of read-only arrays.
        return self._dist.log_prob(self._with_axis(np.tile(y[:, None], len(self))))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """One target for each row: (n,) -> (n,)."""
        return self._dist.cdf(self._with_axis(y))

    def modes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Locations, masses and log densities of the modes of the first row, each of shape (n_modes,)."""
        modes = self._dist.modes()[0]
        return np.reshape(modes.locations, -1), modes.masses, modes.log_densities

    def region(self, mass: float) -> np.ndarray:
        """Highest-density region of the first row, shape (n_intervals, 2)."""
        return self._dist.highest_density_region(mass).intervals[0]

    def range(self, *others: np.ndarray) -> tuple[float, float]:
        """Lowest and highest target of a plot: nearly all mass of each row, and ``others``."""
        tail = (1 - _SEEN_MASS) / 2
        seen = np.concatenate([self.icdf(np.array([tail, 1 - tail])).ravel(), *others])
        low, high = seen.min(), seen.max()
        margin = _MARGIN * (high - low)
        return low - margin, high + margin

    def _with_axis(self, y: np.ndarray) -> np.ndarray:
        return y[..., None] if self._has_axis else y
