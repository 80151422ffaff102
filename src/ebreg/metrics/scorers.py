"""Scorers for scikit-learn's model selection: higher is better."""

from typing import Any

import torch

from ebreg._utils import checks
from ebreg.metrics.rows import Values, as_float64
from ebreg.metrics.scores import crps, nll


def nll_scorer(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Mean log density of the targets: a scikit-learn scorer, higher is better.

    Args:
        estimator: A fitted estimator with ``predict_distribution``, or a pipeline or search that ends in one.
        X: Inputs, as the estimator takes them.
        y: Targets, shape (n,) or (n, D).
        sample_weight: Weights of the rows, shape (n,); None for equal weights.
    """
    return -_average(nll(_predict(estimator, X), y), sample_weight)


def crps_scorer(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Minus the mean CRPS of one target: a scikit-learn scorer, higher is better.

    Args:
        estimator: A fitted estimator with ``predict_distribution``, or a pipeline or search that ends in one.
        X: Inputs, as the estimator takes them.
        y: Targets, shape (n,) or (n, 1).
        sample_weight: Weights of the rows, shape (n,); None for equal weights.
    """
    return -_average(crps(_predict(estimator, X), y), sample_weight)


def _predict(estimator: Any, X: Any) -> Any:
    if hasattr(estimator, "predict_distribution"):
        return estimator.predict_distribution(X)
    if hasattr(estimator, "best_estimator_"):  # a search
        return _predict(estimator.best_estimator_, X)
    if hasattr(estimator, "steps"):  # a pipeline, which has only the methods that scikit-learn knows
        return _predict(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    raise TypeError(
        f"estimator must have predict_distribution, as the regressors of ebreg have; "
        f"got {type(estimator).__name__}"
    )


def _average(values: Values, weight: Any) -> float:
    rows = torch.as_tensor(values)
    if weight is None:
        return rows.mean().item()
    weights = as_float64("sample_weight", weight)
    checks.shape("sample_weight", weights, tuple(rows.shape))
    checks.finite("sample_weight", weights)
    if (weights < 0).any() or not (weights > 0).any():
        raise ValueError("sample_weight must be at least 0, and above 0 for at least one row")
    # Rows of weight 0 are left out first: 0 times an infinite score is NaN.
    counted = weights > 0
    rows, weights = rows[counted.to(rows.device)], weights[counted].to(rows.device)
    return ((weights / weights.sum()) * rows).sum().item()
