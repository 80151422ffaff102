"""Warnings of answers that are not accurate."""

import warnings

import numpy as np
import torch
from torch import Tensor

from ebreg._utils.stack_level import stack_level
from ebreg.errors import TrustWarning
from ebreg.predictive import Predictive, WeightedDraws

# Draws beyond a quantile, below which it is inaccurate.
_FEWEST_BEYOND = 5
_N_NAMED = 10


def warn_of_unreliable(unreliable: np.ndarray, by_draws: bool) -> None:
    """Name the rows that are unreliable, if there are any.

    Args:
        unreliable: Which rows are, shape (n,).
        by_draws: Whether they are answered by draws, not by nodes.
    """
    rows = np.flatnonzero(unreliable)
    if not len(rows):
        return
    some = ", ".join(map(str, rows[:_N_NAMED])) + (", ..." if len(rows) > _N_NAMED else "")
    why, more = (
        ("the effective sample size is small, or log Z inaccurate,", "n_draws")
        if by_draws
        else ("the nodes do not resolve the density", "n_nodes")
    )
    warnings.warn(
        f"{why} in {len(rows)} of {len(unreliable)} rows ({some}): their answers are unreliable. Look at "
        f"effective_sample_size and log_partition_error. A larger {more} may help, by "
        f"accuracy=Accuracy({more}=...) in predict_distribution, or a longer training. Such rows are "
        "often far from the training data, or have modes so narrow that others like them could be missed: "
        "if the model has no others, Accuracy(search=False) leaves that doubt out.",
        TrustWarning,
        stacklevel=stack_level(),
    )


def is_extreme(tail: float, p: Predictive) -> Tensor:
    """Rows, (B,), in which few draws lie beyond a quantile with a share ``tail`` of the mass beyond it."""
    if not isinstance(p, WeightedDraws):
        return torch.zeros_like(p.unreliable)
    return (p.effective_sample_size * tail < _FEWEST_BEYOND) & ~p.unreliable


def warn_of_extremes(tail: float, n_extreme: int, n_rows: int) -> None:
    """Say in how many rows, if any, quantiles are one of the last few weighted draws."""
    if n_extreme:
        warnings.warn(
            f"quantiles at a level of {tail:g} from 0 or 1 rest on fewer than {_FEWEST_BEYOND} draws in "
            f"{n_extreme} of {n_rows} rows; pass accuracy=Accuracy(n_draws=...) with more draws to "
            "predict_distribution for better ones",
            TrustWarning,
            stacklevel=stack_level(),
        )
