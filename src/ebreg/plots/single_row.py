"""The density of a single row, with its modes and its region."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ebreg._utils import checks
from ebreg.plots import canvas, inputs
from ebreg.plots.inputs import OneTarget

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMED_MASS = 0.01  # probability of a mode below which it is not written


def row(dist: Any, i: int = 0, ax: "Axes | None" = None, mass: float = 0.9, y: float | None = None) -> "Axes":
    """The density of one row, with its modes, its mean and its highest-density region.

    The number above each mode is the probability of the region around it.

    Args:
        dist: Prediction of one target for n inputs.
        i: Which row, from -n to n - 1.
        ax: Where to draw; a new figure if None.
        mass: Probability of the shaded highest-density region, in (0, 1).
        y: The observed target; None if there is none.

    Returns:
        The axes.
    """
    rows = OneTarget(dist)
    n = len(rows)
    if checks.at_least("i", i, -n) >= n:
        raise ValueError(f"i must be a row of dist, at most {n - 1}; got {i}")
    ax = draw_row(rows, i % n, ax, mass, y)
    canvas.legend(ax)
    return canvas.name_axes(ax, "y", "density")


def draw_row(
    rows: OneTarget, i: int, ax: "Axes | None" = None, mass: float = 0.9, y: float | None = None
) -> "Axes":
    """Draw as :func:`row` does, without a legend and labels of the axes."""
    mass = checks.fraction("mass", mass)
    observed = None if y is None else _observed(y)
    one = rows.row(i)
    region, (locations, masses, log_tops) = one.region(mass), one.modes()
    grid = _fine_grid(one, np.concatenate([region.ravel(), locations]), observed)
    p = np.exp(one.log_prob(grid)[:, 0])

    ax = canvas.axes(ax)
    (curve,) = ax.plot(grid, p, color=canvas.INK, linewidth=1.5)
    curve.sticky_edges.y.append(0)  # no margin below 0, also when another row is drawn on top
    ax.margins(x=0, y=0.14)
    _shade(ax, grid, p, region, f"{canvas.percent(mass)} region")
    ax.axvline(one.mean[0], color=canvas.GREY, linewidth=1.2, linestyle=(0, (4, 2)), label="mean")
    if observed is not None:
        ax.axvline(observed, color=canvas.ACCENT, linewidth=1.5, label="observed")
    _mark_modes(ax, locations, masses, np.exp(log_tops))
    return ax


def _fine_grid(one: OneTarget, corners: np.ndarray, observed: float | None) -> np.ndarray:
    """Targets at which the density of a single row is drawn: rising, including the corners.

    Half of them are quantiles, so that a narrow mode has enough points.
    """
    others = np.empty(0) if observed is None else np.array([observed])
    low, high = one.range(corners, others)
    quantiles = one.icdf(np.linspace(0, 1, 402)[1:-1])[:, 0]
    return np.unique(np.concatenate([np.linspace(low, high, 400), quantiles, corners]))


def _observed(y: float) -> float:
    return inputs.vector_of(1, "y", inputs.array("y", y).reshape(-1), "rows in the plot")[0]


def _shade(ax: "Axes", grid: np.ndarray, p: np.ndarray, region: np.ndarray, label: str) -> None:
    """Fill below the curve in each interval of the region; their ends are points of the grid."""
    for k, (low, high) in enumerate(region):
        inside = (grid >= low) & (grid <= high)
        ax.fill_between(
            grid[inside], p[inside], color=canvas.light()(0.2), linewidth=0, label=None if k else label
        )


def _mark_modes(ax: "Axes", locations: np.ndarray, masses: np.ndarray, tops: np.ndarray) -> None:
    ax.plot(locations, tops, "o", color=canvas.INK, markersize=4.5, markeredgecolor="white", zorder=3)
    for location, top, mass in zip(locations, tops, masses, strict=True):
        if mass >= _NAMED_MASS:
            ax.annotate(
                f"{100 * mass:.0f} %",
                (location, top),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                color=canvas.INK,
                fontsize="small",
                bbox={"color": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
            )
