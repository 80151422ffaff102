"""Calibration plots, from the probability integral transform.

The probability integral transform of an observed target is u = P(Y <= y | x). If the targets are draws from
the predictions, the u are draws from the uniform distribution on [0, 1].
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ebreg._utils import checks
from ebreg.plots import canvas, inputs
from ebreg.plots.inputs import OneTarget, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAND = 0.95  # probability of the grey band for a calibrated model
_LEVELS = np.arange(1, 20) / 20
_DIAGONAL = "ebreg-diagonal"


def pit_histogram(dist: Any, y: Values, ax: "Axes | None" = None, bins: int = 20) -> "Axes":
    """Histogram of the probability integral transform of observed targets.

    The histogram of a calibrated model is flat. It is high at both ends if the predictions are too narrow,
    high in the middle if they are too wide, rises if they are too low and falls if they are too high. Each
    bar of a calibrated model lies in the grey band with a probability of 95 %.

    Args:
        dist: Prediction of one target for n inputs.
        y: Observed targets, shape (n,) or (n, 1).
        ax: Where to draw; a new figure if None.
        bins: Number of bars, at least 2.

    Returns:
        The axes.
    """
    u = _pit(dist, y)
    bins = checks.at_least("bins", bins, 2)
    counts, edges = np.histogram(u, bins, (0, 1))
    flat = len(u) / bins
    low, high = (float(end) for end in _binomial_interval(len(u), np.array(1 / bins)))
    ax = canvas.axes(ax)
    ax.bar(edges[:-1], counts / flat, 1 / bins, align="edge", color=canvas.COLORS[2], edgecolor="white")
    # Translucent and on top of the bars, so that both stay visible.
    ax.axhspan(
        low / flat, high / flat, color=canvas.GREY, alpha=0.28, linewidth=0, label="95 % if calibrated"
    )
    ax.axhline(1, color=canvas.INK, linewidth=1.2)
    ax.set_xlim(0, 1)
    canvas.legend(ax)
    return canvas.name_axes(ax, "predicted probability of a lower target", "density")


def calibration(
    dist: Any,
    y: Values,
    ax: "Axes | None" = None,
    levels: Sequence[float] | np.ndarray | None = None,
    *,
    label: str | None = None,
    color: str = canvas.INK,
) -> "Axes":
    """Calibration curve: how often targets lie below the predicted quantiles.

    The curve of a calibrated model is the diagonal. The grey band holds each of its points with a probability
    of 95 %; neighbouring points are correlated. The legend gives the calibration error, which is the mean
    distance from the diagonal. Several models can be drawn on one ``ax``, each with its label and colour.

    Args:
        dist: Prediction of one target for n inputs.
        y: Observed targets, shape (n,) or (n, 1).
        ax: Where to draw; a new figure if None.
        levels: Probabilities of the quantiles, in (0, 1); if None 0.05, 0.1, ..., 0.95.
        label: Name of the model in the legend.
        color: Any matplotlib colour.

    Returns:
        The axes.
    """
    nominal = inputs.probabilities("levels", _LEVELS if levels is None else levels)
    u = _pit(dist, y)
    observed = np.searchsorted(np.sort(u), nominal, side="right") / len(u)
    error = np.abs(observed - nominal).mean()
    ax = canvas.axes(ax, 4.0, 4.0)
    if not any(line.get_gid() == _DIAGONAL for line in ax.lines):  # once for all models
        _draw_diagonal(ax, len(u))
    name = f"{label}: error {error:.3f}" if label else f"calibration error {error:.3f}"
    ax.plot(nominal, observed, "o-", color=color, linewidth=1.4, markersize=3.5, label=name)
    canvas.legend(ax, loc="upper left")
    return canvas.name_axes(ax, "nominal frequency", "observed frequency")


def _pit(dist: Any, y: Values) -> np.ndarray:
    """Shape (n,), in [0, 1]."""
    rows = OneTarget(dist)
    return np.clip(rows.cdf(inputs.vector_of(len(rows), "y", y, "dist has rows")), 0, 1)


def _draw_diagonal(ax: "Axes", n: int) -> None:
    p = np.linspace(0, 1, 101)
    low, high = _binomial_interval(n, p)
    ax.fill_between(p, low / n, high / n, color=canvas.PALE, linewidth=0, label="95 % if calibrated")
    ax.plot([0, 1], [0, 1], color=canvas.GREY, linewidth=1, gid=_DIAGONAL)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")


def _binomial_interval(n: int, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed interval of the number of successes in n trials, for each probability p."""
    from scipy.stats import binom  # a dependency of scikit-learn; slow to import

    return binom.interval(_BAND, n, p)
