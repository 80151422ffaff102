"""Pictures of whether predicted probabilities come true.

They rest on the probability integral transform u = P(Y <= y | x) of each observed target: if the targets are
draws from the predictions, the u are draws from the uniform distribution on [0, 1].
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ebreg._utils import checks
from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAND = 0.95  # how often chance alone stays inside the grey
_LEVELS = np.arange(1, 20) / 20
_DIAGONAL = "ebreg-diagonal"


def pit_histogram(dist: Any, y: canvas.Values, ax: "Axes | None" = None, bins: int = 20) -> "Axes":
    """Histogram of the probability integral transform of observed targets.

    Flat for a calibrated model. High ends say that the predictions are too narrow, a hill in the middle that
    they are too wide, a slope that they are too low (it rises) or too high (it falls). Each bar of a
    calibrated model lies in the grey band with a probability of 95 %: one in twenty is outside by chance.

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
    low, high = _binomial_interval(len(u), 1 / bins)
    ax = canvas.axes(ax)
    ax.bar(edges[:-1], counts / flat, 1 / bins, align="edge", color=canvas.COLORS[2], edgecolor="white")
    # Over the bars and translucent, so that the eye can follow the band and the bars through each other.
    ax.axhspan(
        low / flat, high / flat, color=canvas.GREY, alpha=0.28, linewidth=0, label="95 % if calibrated"
    )
    ax.axhline(1, color=canvas.INK, linewidth=1.2)
    ax.set_xlim(0, 1)
    canvas.legend(ax)
    return canvas.name_axes(ax, "predicted probability of a lower target", "density")


def calibration(
    dist: Any,
    y: canvas.Values,
    ax: "Axes | None" = None,
    levels: Sequence[float] | np.ndarray | None = None,
    *,
    label: str | None = None,
    color: str = canvas.INK,
) -> "Axes":
    """Observed against nominal frequency: how often targets lie below the predicted quantiles.

    On the diagonal for a calibrated model. The grey band holds each point of such a model with a probability
    of 95 %; neighbouring points move together. The legend gives the calibration error, which is the mean
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
    nominal = canvas.probabilities("levels", _LEVELS if levels is None else levels)
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


def _pit(dist: Any, y: canvas.Values) -> np.ndarray:
    """Shape (n,), in [0, 1]."""
    rows = canvas.OneTarget(dist)
    return np.clip(rows.cdf(canvas.vector_of(len(rows), "y", y, "dist has rows")), 0, 1)


def _draw_diagonal(ax: "Axes", n: int) -> None:
    p = np.linspace(0, 1, 101)
    low, high = np.array([_binomial_interval(n, level) for level in p]).T / n
    ax.fill_between(p, low, high, color=canvas.PALE, linewidth=0, label="95 % if calibrated")
    ax.plot([0, 1], [0, 1], color=canvas.GREY, linewidth=1, gid=_DIAGONAL)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")


def _binomial_interval(n: int, p: float) -> tuple[int, int]:
    """Quantiles of the number of successes in n trials with equal tails outside."""
    if p <= 0 or p >= 1:
        return (0, 0) if p <= 0 else (n, n)
    k = np.arange(1, n + 1)
    # The ratio of neighbours is (n - k + 1) p / (k (1 - p)); in logarithms nothing underflows on the way.
    log_mass = np.concatenate([[0.0], np.cumsum(np.log((n - k + 1) * p) - np.log(k * (1 - p)))])
    mass = np.exp(log_mass - log_mass.max())
    below = np.cumsum(mass) / mass.sum()
    low, high = np.searchsorted(below, [(1 - _BAND) / 2, (1 + _BAND) / 2])
    return int(low), int(high)
