"""Fan charts: bands of prediction intervals around the median."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ebreg.plots import canvas, inputs
from ebreg.plots.inputs import OneTarget, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def fan(
    dist: Any,
    x: Values | None = None,
    levels: Sequence[float] = (0.5, 0.8, 0.95),
    ax: "Axes | None" = None,
    y: Values | None = None,
) -> "Axes":
    """Fan chart: bands of equal-tailed intervals around the median.

    A density with several modes can be empty inside such a band; :func:`conditional` shows that.

    Args:
        dist: Prediction of one target for n inputs.
        x: Values on the x axis, in any order, shape (n,) or (n, 1); if None each row is a column, in the
            order of dist.
        levels: Probabilities of the intervals, in (0, 1).
        ax: Where to draw; a new figure if None.
        y: Observed targets of the rows, shape (n,) or (n, 1); None for no points.

    Returns:
        The axes.
    """
    rows = OneTarget(dist)
    n = len(rows)
    shares = inputs.probabilities("levels", levels)[::-1]
    at = np.arange(n, dtype=np.float64) if x is None else inputs.vector_of(n, "x", x, "dist has rows")
    if x is not None and n == 1:
        raise ValueError("x needs at least 2 rows for a band; draw a single row with plots.row(dist)")
    points = None if y is None else inputs.vector_of(n, "y", y, "dist has rows")
    quantiles = rows.icdf(np.concatenate([(1 - shares) / 2, [0.5], (1 + shares) / 2]))
    order = np.argsort(at, kind="stable")
    along, quantiles = (at[order], quantiles[:, order]) if x is not None else _columns(at, quantiles)
    # Bands leave no corner free: in a new figure the legend is placed beside them.
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if ax is None else {}
    ax = canvas.axes(ax, 5.6)
    _draw_bands(ax, along, quantiles, shares)
    if points is not None:
        ax.scatter(
            at, points, s=9, color=canvas.ACCENT, linewidths=0, label="observed", rasterized=True, zorder=3
        )
    canvas.legend(ax, **place)
    return canvas.name_axes(ax, "row" if x is None else "x")


def _draw_bands(ax: "Axes", x: np.ndarray, quantiles: np.ndarray, levels: np.ndarray) -> None:
    """Draw quantiles (2 L + 1, n): the lower ends, widest interval first, the median and the upper ends."""
    L = len(levels)
    colors = canvas.light()(np.linspace(0.14, 0.5, L) if L > 1 else [0.25])
    for level, color, low, high in zip(levels, colors, quantiles[:L], quantiles[L + 1 :], strict=True):
        ax.fill_between(x, low, high, color=color, linewidth=0, label=canvas.percent(level))
    ax.plot(x, quantiles[L], color=canvas.INK, linewidth=1.5, solid_capstyle="butt", label="median")
    ax.margins(x=0)


def _columns(x: np.ndarray, quantiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as columns with vertical sides, separated by NaN, so that nothing is drawn between rows."""
    half = 0.4 if len(x) <= 60 else 0.5  # no gaps between many columns
    sides = np.stack([x - half, x + half, np.full_like(x, np.nan)], axis=1)
    return sides.ravel(), np.repeat(quantiles, 3, axis=1)
