"""How good a predictive distribution is: proper scores, calibration, and divergences on a grid.

Scores and calibration take what an estimator's ``predict_distribution`` returns, with targets (n,) or (n, D),
and answer in numpy; they also take any :class:`ebreg.predictive.Predictive` with a tensor (B, D), and
answer in torch. A score has one value for each row, lower is better, and its mean is the caller's.
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
