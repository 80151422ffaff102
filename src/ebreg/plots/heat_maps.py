"""Heat maps of p(y | x), and points of data."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ebreg._utils import checks
from ebreg.plots import canvas, inputs
from ebreg.plots.inputs import OneTarget, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

_DARK_MASS = 0.2  # share of a column's mass that takes the darkest colour


def density(
    x: Values,
    y: Values,
    log_p: Values,
    ax: "Axes | None" = None,
    *,
    gamma: float = 0.5,
    cmap: "str | Colormap | None" = None,
) -> "Axes":
    """Heat map of p(y | x) over a grid.

    Each column is divided by the density of its own densest part, so a wide density is as dark as a narrow
    one, and raised to the power ``gamma``, so that a minor mode stays visible. The colours therefore compare
    targets at one input, not inputs with each other. Log values need no normaliser.

    Args:
        x: Inputs in rising order, shape (B,) or (B, 1).
        y: Targets in rising order, shape (G,) or (G, 1).
        log_p: Log density up to a constant per column, shape (G, B); -inf where there is none.
        ax: Where to draw; a new figure if None.
        gamma: Exponent of the relative density; 1 for a linear scale.
        cmap: Colour map; if None, one that starts from white.

    Returns:
        The axes.
    """
    x_edges, y_edges = _edges("x", x), _edges("y", y)
    shade = _relative_density(log_p, y_edges, len(x_edges) - 1) ** checks.positive("gamma", gamma)
    ax = canvas.axes(ax)
    # Rasterised: as vectors, one rectangle per grid point would be a huge file with seams.
    ax.pcolormesh(x_edges, y_edges, shade, cmap=cmap or canvas.light(), vmin=0, vmax=1, rasterized=True)
    # Fixed limits, so that points drawn here or on shared axes do not add an empty border.
    ax.set(xlim=x_edges[[0, -1]], ylim=y_edges[[0, -1]])
    return canvas.name_axes(ax)


def scatter(
    x: Values,
    y: Values,
    ax: "Axes | None" = None,
    *,
    color: str = canvas.INK,
    size: float = 5.0,
    alpha: float = 0.45,
    label: str | None = None,
) -> "Axes":
    """Scatter plot of data or samples, with small translucent points.

    Args:
        x: Inputs, shape (n,) or (n, 1).
        y: Targets, shape (n,) or (n, 1).
        ax: Where to draw; a new figure if None.
        color: Any matplotlib colour.
        size: Area of a point, in square points.
        alpha: Opacity of a point.
        label: Name for a legend.

    Returns:
        The axes.
    """
    x, y = inputs.vector("x", x), inputs.vector("y", y)
    if len(x) != len(y):
        raise ValueError(f"y must have as many values as x, which has {len(x)}; got {len(y)}")
    ax = canvas.axes(ax)
    ax.scatter(x, y, s=size, color=color, alpha=alpha, linewidths=0, label=label, rasterized=True)
    return canvas.name_axes(ax)


def conditional(
    dist: Any,
    x: Values,
    x_data: Values | None = None,
    y_data: Values | None = None,
    ax: "Axes | None" = None,
    *,
    n_y: int = 400,
    y_range: tuple[float, float] | None = None,
    gamma: float = 0.5,
    cmap: "str | Colormap | None" = None,
) -> "Axes":
    """Heat map of p(y | x) along one input, with the data on top.

    Predict at inputs that differ in one column, for example at 200 values of it with the other columns at
    their medians. The colours are those of :func:`density`.

    Args:
        dist: Prediction of one target for n inputs.
        x: The column that varies, in rising order, shape (n,) or (n, 1).
        x_data: The same column of the data, shape (m,) or (m, 1); None for no data.
        y_data: Targets of the data, shape (m,) or (m, 1).
        ax: Where to draw; a new figure if None.
        n_y: Number of targets at which the density is evaluated.
        y_range: Lowest and highest target shown; if None, wide enough for 99.5 % of each row and for the
            data.
        gamma: Exponent of the relative density; 1 for a linear scale.
        cmap: Colour map; if None, one that starts from white.

    Returns:
        The axes.
    """
    rows = OneTarget(dist)
    x = inputs.vector_of(len(rows), "x", x, "dist has rows")
    _edges("x", x)  # requires rising values, before the work
    points = _points(x_data, y_data)
    low, high = rows.range(points[1]) if y_range is None else _checked_range(y_range)
    y = np.linspace(low, high, checks.at_least("n_y", n_y, 2))
    ax = density(x, y, rows.log_prob(y), ax, gamma=gamma, cmap=cmap)
    if len(points[0]):
        # White rims separate the points from each other and from the map, also without colour.
        size = np.clip(4000 / len(points[0]), 3, 9)
        rim = {"edgecolors": "white", "linewidths": 0.03 * size}
        ax.scatter(*points, s=size, color=canvas.ACCENT, rasterized=True, **rim)
    return ax


def _edges(name: str, values: Values) -> np.ndarray:
    """Edges of the grid cells, half-way between neighbours; the outer ones are the outer points."""
    centres = inputs.vector(name, values)
    if len(centres) < 2 or not (np.diff(centres) > 0).all():
        raise ValueError(f"{name} must hold at least 2 values in rising order, got {len(centres)} values")
    return np.concatenate([centres[:1], (centres[1:] + centres[:-1]) / 2, centres[-1:]])


def _relative_density(log_p: Values, y_edges: np.ndarray, n_x: int) -> np.ndarray:
    """Density relative to a high level of its own column, at most 1, shape (G, B); 0 where there is no mass.

    The level is that above which ``_DARK_MASS`` of the column lies. It is not the peak: a single grid point
    at a pole of the density, or at a spike, would leave the rest of its column blank.
    """
    values = inputs.array("log_p", log_p)
    if values.shape != (len(y_edges) - 1, n_x):
        raise ValueError(f"log_p must have shape {(len(y_edges) - 1, n_x)}: (G, B), got {values.shape}")
    if np.isnan(values).any() or np.isposinf(values).any():
        raise ValueError("log_p must be finite or -inf, got NaN or +inf")
    peak = values.max(axis=0)
    p = np.exp(values - np.where(np.isneginf(peak), 0, peak))
    falling = np.argsort(-p, axis=0)
    mass = np.cumsum(np.take_along_axis(p * np.diff(y_edges)[:, None], falling, axis=0), axis=0)
    at = np.argmax(mass >= _DARK_MASS * mass[-1], axis=0)
    level = p[falling[at, np.arange(n_x)], np.arange(n_x)]
    return np.minimum(p / np.where(level > 0, level, 1), 1)


def _points(x: Values | None, y: Values | None) -> tuple[np.ndarray, np.ndarray]:
    """The data, both of shape (m,); empty arrays without data."""
    if x is None and y is None:
        return np.empty(0), np.empty(0)
    if x is None or y is None:
        raise ValueError("x_data and y_data must be given together, got one without the other")
    x_data = inputs.vector("x_data", x)
    return x_data, inputs.vector_of(len(x_data), "y_data", y, "x_data has")


def _checked_range(y_range: tuple[float, float]) -> tuple[float, float]:
    low, high = y_range
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"y_range must be a lower and a higher finite number, got {y_range}")
    return low, high
