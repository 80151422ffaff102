"""Calibration: how often targets fall where the predictions say."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.metrics.rows import Values, by_row, equal_tails, without_single_target

_DEFAULT_LEVELS = torch.arange(1, 20, dtype=torch.float64) / 20


def pit(dist: Any, y: Any) -> Values:
    r"""Probability integral transform of one target: uniform on [0, 1] if the distribution is the truth.

    .. math:: F(y)

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) or (n, 1).

    Returns:
        Shape (n,).
    """
    # Several targets have a cdf too, but its value at the target is not uniform.
    several = "use coverage(..., region='highest-density') for several targets together"
    return by_row("pit", lambda p, y: p.cdf(y), dist, y, several=several)


def coverage(dist: Any, y: Any, mass: float = 0.9, region: str = "interval") -> float | Values:
    """Share of the targets inside regions of probability ``mass``.

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) for one target or (n, D).
        mass: Probability of the region, in (0, 1).
        region: ``"interval"``: from the quantile (1 - mass) / 2 to (1 + mass) / 2, for each target by itself;
            ``"highest-density"``: the smallest region, for all targets together; it may be in several pieces.

    Returns:
        A number in [0, 1]; for the intervals of D > 1 targets one for each, shape (D,).
    """
    mass = checks.fraction("mass", mass)
    checks.one_of("region", region, ("interval", "highest-density"))

    def inside(p: Any, y: Tensor) -> Tensor:
        if region == "highest-density":
            return p.highest_density_region(mass).contains(y)
        low, high = equal_tails(p, y, mass)
        return without_single_target((low <= y) & (y <= high))

    values: Any = by_row("coverage", inside, dist, y)
    return float(values.mean()) if values.ndim == 1 else values.mean(0)


def calibration_curve(dist: Any, y: Any, levels: Any = None) -> tuple[Values, Values]:
    r"""Calibration curve of one target: nominal levels and observed frequencies.

    .. math:: \hat F(\ell) = \tfrac{1}{n} \textstyle\sum_i 1\{F_i(y_i) \le \ell\}

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) or (n, 1).
        levels: In (0, 1), shape (L,); None: 0.05, 0.10, ..., 0.95.

    Returns:
        The levels and the observed frequencies, both of shape (L,).
    """
    nominal = _DEFAULT_LEVELS.clone() if levels is None else checks.levels("levels", levels).reshape(-1)
    values = pit(dist, y)
    below = torch.as_tensor(values).cpu() <= nominal[:, None]
    observed = below.double().mean(dim=1)
    return (nominal.numpy(), observed.numpy()) if isinstance(values, np.ndarray) else (nominal, observed)


def calibration_error(dist: Any, y: Any, levels: Any = None) -> float:
    r"""Calibration error of one target: mean distance of observed frequencies from nominal levels.

    .. math:: \tfrac{1}{L} \textstyle\sum_\ell |\hat F(\ell) - \ell|

    A perfect model has about :math:`0.3 / \sqrt n`, not 0. Nor does a small error make a good model: one that
    ignores x can be calibrated.

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) or (n, 1).
        levels: In (0, 1), shape (L,); None: 0.05, 0.10, ..., 0.95.
    """
    nominal, observed = (torch.as_tensor(part) for part in calibration_curve(dist, y, levels))
    return (observed - nominal).abs().mean().item()
