r"""Scores of a method on the test rows, from the same questions to every method.

* ``nll``: mean of -log p(y), in nats and in the units of y; NaN for a method without a density.
* ``crps``: mean CRPS, in the units of y. The integral of twice the pinball loss over the levels, by the
  midpoint rule with 200 levels, for every method: for a normal distribution it is within 0.3 % of the closed
  form. Quantiles of methods that give a few levels are interpolated linearly.
* ``rmse``: of the means.
* ``coverage``, ``width``: of the interval between the quantiles at 5 % and 95 %: share of the targets inside,
  and mean width in the units of y.
* ``calibration_error``: mean distance between the share of targets below a quantile and its level, over the
  levels 0.05, 0.10, ..., 0.95. For a continuous distribution this is the distance of the distribution of the
  PIT values from the uniform one. With n test rows a perfect model has about 0.3 / sqrt(n).
* ``worst_nll``, ``worst_crps``: of the worst row.
* ``correction``: mean of |log p - log q| at the targets, for a method whose density corrects a proposal q.
"""

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.tabular.predicted import Predicted

N_CRPS_LEVELS = 200
CRPS_LEVELS = (np.arange(N_CRPS_LEVELS) + 0.5) / N_CRPS_LEVELS
CALIBRATION_LEVELS = np.arange(1, 20) / 20


@dataclass(frozen=True)
class Answers:
    """All that the scores need of n rows.

    Attributes:
        mean: Shape (n,).
        log_prob: Log density at the targets, shape (n,), or None.
        crps_quantiles: At CRPS_LEVELS, shape (200, n).
        calibration_quantiles: At CALIBRATION_LEVELS, shape (19, n).
        log_q: Log density of the proposal at the targets, shape (n,), or None.
    """

    mean: np.ndarray
    log_prob: np.ndarray | None
    crps_quantiles: np.ndarray
    calibration_quantiles: np.ndarray
    log_q: np.ndarray | None = None

    @classmethod
    def of(cls, predicted: Predicted, y: np.ndarray) -> "Answers":
        """Ask a method; ``y`` (n,) is used for the log density alone."""
        quantiles = predicted.quantile(np.concatenate([CRPS_LEVELS, CALIBRATION_LEVELS]))
        log_q = getattr(predicted, "proposal_log_prob", lambda y: None)(y)
        return cls(predicted.mean, predicted.log_prob(y), *np.split(quantiles, [N_CRPS_LEVELS]), log_q)


@dataclass(frozen=True)
class Scores:
    """Of all test rows; less is better except for ``coverage``, which should be 0.9."""

    nll: float
    crps: float
    rmse: float
    coverage: float
    width: float
    calibration_error: float
    worst_nll: float
    worst_crps: float
    correction: float = math.nan

    @classmethod
    def of(cls, answers: Answers, y: np.ndarray) -> "Scores":
        """Of answers about the targets y, shape (n,)."""
        nll = np.array([math.nan]) if answers.log_prob is None else -answers.log_prob
        crps = crps_of(answers.crps_quantiles, y)
        low, high = answers.calibration_quantiles[[0, -1]]
        below = (y <= answers.calibration_quantiles).mean(axis=1)
        return cls(
            nll=nll.mean(),
            crps=crps.mean(),
            rmse=math.sqrt(np.square(answers.mean - y).mean()),
            coverage=((low <= y) & (y <= high)).mean(),
            width=(high - low).mean(),
            calibration_error=np.abs(below - CALIBRATION_LEVELS).mean(),
            worst_nll=nll.max(),
            worst_crps=crps.max(),
            correction=math.nan if answers.log_q is None else np.abs(nll + answers.log_q).mean(),
        )


def crps_of(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """CRPS of each row: quantiles at CRPS_LEVELS (200, n) and targets (n,) -> (n,)."""
    above, levels = y - quantiles, CRPS_LEVELS[:, None]
    return 2 * np.maximum(levels * above, (levels - 1) * above).mean(axis=0)
