"""Metrics of predictive distributions: proper scores, calibration, and divergences on a grid.

Scores and calibration take the result of an estimator's ``predict_distribution`` with targets (n,) or (n, D),
and return numpy arrays. They also take any :class:`ebreg.predictive.Predictive` with a tensor (B, D), and
then return tensors. A score has one value for each row; lower is better. Take its mean over the rows.
"""

from ebreg.metrics.calibration import calibration_curve, calibration_error, coverage, pit
from ebreg.metrics.grid import kl_on_grid, log_normalize_on_grid, nll_on_grid
from ebreg.metrics.scorers import crps_scorer, nll_scorer
from ebreg.metrics.scores import crps, energy_score, interval_score, nll, pinball, rounded_nll

__all__ = [
    "calibration_curve",
    "calibration_error",
    "coverage",
    "crps",
    "crps_scorer",
    "energy_score",
    "interval_score",
    "kl_on_grid",
    "log_normalize_on_grid",
    "nll",
    "nll_on_grid",
    "nll_scorer",
    "pinball",
    "pit",
    "rounded_nll",
]
