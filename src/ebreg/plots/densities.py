"""Pictures of densities, intervals and data."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ebreg._utils import checks
from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

_DARK_MASS = 0.2  # share of a column's mass that takes the darkest colour
_SEEN_MASS = 0.995  # of each row, in the range of targets that a picture chooses for itself
_MARGIN = 0.04  # of that range, free on either side
_NAMED_MASS = 0.01  # of a mode, below which its share is not written


def density(
    x: canvas.Values,
    y: canvas.Values,
    log_p: canvas.Values,
    ax: "Axes | None" = None,
    *,
    gamma: float = 0.5,
    cmap: "str | Colormap | None" = None,
) -> "Axes":
    """Heat map of p(y | x) over a grid.

    Each column is measured against its own densest part, so a wide density is as dark as a narrow one, and
    raised to ``gamma``, so that a minor mode stays visible beside a major one. The colours therefore
    compare targets at one input, not inputs with each other. Log values need no normaliser.

    Args:
        x: Inputs in rising order, shape (B,) or (B, 1).
        y: Targets in rising order, shape (G,) or (G, 1).
        log_p: Log density up to a constant per column, shape (G, B); -inf where there is none.
        ax: Where to draw; a new figure if None.
        gamma: Exponent of the relative density; 1 shows it as it is.
        cmap: Colour map; if None, one that starts from white.

    Returns:
        The axes.
    """
    x_edges, y_edges = _edges("x", x), _edges("y", y)
    shade = _relative_density(log_p, y_edges, len(x_edges) - 1) ** checks.positive("gamma", gamma)
    ax = canvas.axes(ax)
    # Rasterised: as vectors, one rectangle per cell would be a huge file with seams.
    ax.pcolormesh(x_edges, y_edges, shade, cmap=cmap or canvas.light(), vmin=0, vmax=1, rasterized=True)
    # Fixed, so that points drawn here or on shared axes do not leave the map with an empty border.
    ax.set(xlim=x_edges[[0, -1]], ylim=y_edges[[0, -1]])
    return canvas.name_axes(ax)


def scatter(
    x: canvas.Values,
    y: canvas.Values,
    ax: "Axes | None" = None,
    *,
    color: str = canvas.INK,
    size: float = 5.0,
    alpha: float = 0.45,
    label: str | None = None,
) -> "Axes":
    """Points of data or samples, small and translucent so that thousands still show where they crowd.

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
    x, y = canvas.vector("x", x), canvas.vector("y", y)
    if len(x) != len(y):
        raise ValueError(f"y must have as many values as x, which has {len(x)}; got {len(y)}")
    ax = canvas.axes(ax)
    ax.scatter(x, y, s=size, color=color, alpha=alpha, linewidths=0, label=label, rasterized=True)
    return canvas.name_axes(ax)


def side_by_side(
    panels: "Mapping[str, Callable[[Axes], object]]", *, width: float = 4.0, height: float = 3.2
) -> "tuple[Figure, np.ndarray]":
    """Titled panels in a row that share both axes.

    For example ``side_by_side({"Data": lambda ax: scatter(x, y, ax), "Model": lambda ax: density(...,
    ax=ax)})``.

    Args:
        panels: Title to a function that draws on the axes it is given; drawn from left to right.
        width: Of one panel, in inches.
        height: Of the row, in inches.

    Returns:
        The figure, and an array with its axes, shape (n_panels,).
    """
    figure, axes = panel_grid({"": panels}, width=width, height=height)
    return figure, axes[0]


def panel_grid(
    rows: "Mapping[str, Mapping[str, Callable[[Axes], object]]]", *, width: float = 4.0, height: float = 3.2
) -> "tuple[Figure, np.ndarray]":
    """Rows of titled panels that share all axes; titles stand above the first row.

    Args:
        rows: What is written on the left of a row, to its panels as in :func:`side_by_side`.
        width: Of one panel, in inches.
        height: Of a row, in inches.

    Returns:
        The figure, and an array with its axes, shape (n_rows, n_panels).
    """
    if not rows or not all(rows.values()):
        raise ValueError("panels must hold at least one title and drawing function, got none")
    width, height = checks.positive("width", width), checks.positive("height", height)
    n_panels = max(map(len, rows.values()))
    figure, axes = canvas.pyplot().subplots(
        len(rows),
        n_panels,
        figsize=(width * n_panels, height * len(rows)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for i, (name, panels) in enumerate(rows.items()):
        for ax, (title, draw) in zip(axes[i], panels.items(), strict=False):
            draw(ax)
            if i == 0:
                ax.set_title(title)
            ax.label_outer()
        if name:
            axes[i, 0].set_ylabel(name)
    return figure, axes


def conditional(
    dist: Any,
    x: canvas.Values,
    x_data: canvas.Values | None = None,
    y_data: canvas.Values | None = None,
    ax: "Axes | None" = None,
    *,
    n_y: int = 400,
    y_range: tuple[float, float] | None = None,
    gamma: float = 0.5,
    cmap: "str | Colormap | None" = None,
) -> "Axes":
    """Heat map of p(y | x) along one input, with the data on top.

    Predict at inputs that differ in one column, for example 200 values of it with the others at their
    medians. The colours are those of :func:`density`.

    Args:
        dist: Prediction of one target for n inputs.
        x: The column that varies, in rising order, shape (n,) or (n, 1).
        x_data: The same column of the data, shape (m,) or (m, 1); None for no data.
        y_data: Targets of the data, shape (m,) or (m, 1).
        ax: Where to draw; a new figure if None.
        n_y: Number of targets at which the density is evaluated.
        y_range: Lowest and highest target shown; if None, wide enough for 99.5 % of each row and for the
            data.
        gamma: Exponent of the relative density; 1 shows it as it is.
        cmap: Colour map; if None, one that starts from white.

    Returns:
        The axes.
    """
    rows = canvas.OneTarget(dist)
    x = canvas.vector_of(len(rows), "x", x, "dist has rows")
    _edges("x", x)  # refuses what does not rise, before the work
    points = _points(x_data, y_data)
    low, high = _range_of(rows, points[1]) if y_range is None else _checked_range(y_range)
    y = np.linspace(low, high, checks.at_least("n_y", n_y, 2))
    ax = density(x, y, rows.log_prob(y), ax, gamma=gamma, cmap=cmap)
    if len(points[0]):
        # White rims part the points from each other and from the map, also in a print without colour.
        size = np.clip(4000 / len(points[0]), 3, 9)
        rim = {"edgecolors": "white", "linewidths": 0.03 * size}
        ax.scatter(*points, s=size, color=canvas.ACCENT, rasterized=True, **rim)
    return ax


def fan(
    dist: Any,
    x: canvas.Values | None = None,
    levels: Sequence[float] = (0.5, 0.8, 0.95),
    ax: "Axes | None" = None,
    y: canvas.Values | None = None,
) -> "Axes":
    """Bands of equal-tailed intervals around the median, against an input or row by row.

    A density with several modes can be empty inside such a band: look at it by :func:`conditional` too.

    Args:
        dist: Prediction of one target for n inputs.
        x: What the rows are drawn against, in any order, shape (n,) or (n, 1); if None each row has a
            column of its own, in the order of dist.
        levels: Probabilities of the intervals, in (0, 1).
        ax: Where to draw; a new figure if None.
        y: Observed targets of the rows, shape (n,) or (n, 1); None for no points.

    Returns:
        The axes.
    """
    rows = canvas.OneTarget(dist)
    n = len(rows)
    shares = canvas.probabilities("levels", levels)[::-1]
    at = np.arange(n, dtype=np.float64) if x is None else canvas.vector_of(n, "x", x, "dist has rows")
    if x is not None and n == 1:
        raise ValueError("x needs at least 2 rows to draw a band along; draw a single one by plots.row(dist)")
    points = None if y is None else canvas.vector_of(n, "y", y, "dist has rows")
    quantiles = rows.icdf(np.concatenate([(1 - shares) / 2, [0.5], (1 + shares) / 2]))
    order = np.argsort(at, kind="stable")
    along, quantiles = (at[order], quantiles[:, order]) if x is not None else _columns(at, quantiles)
    # Bands leave no corner free: in a figure of our own the legend gets room beside them.
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if ax is None else {}
    ax = canvas.axes(ax, 5.6)
    _draw_bands(ax, along, quantiles, shares)
    if points is not None:
        ax.scatter(
            at, points, s=9, color=canvas.ACCENT, linewidths=0, label="observed", rasterized=True, zorder=3
        )
    canvas.legend(ax, **place)
    return canvas.name_axes(ax, "row" if x is None else "x")


def row(dist: Any, i: int = 0, ax: "Axes | None" = None, mass: float = 0.9, y: float | None = None) -> "Axes":
    """The density of one row, with its modes, its mean and its highest-density region.

    Beside each mode stands the probability of the hill that belongs to it.

    Args:
        dist: Prediction of one target for n inputs.
        i: Which row, from -n to n - 1.
        ax: Where to draw; a new figure if None.
        mass: Probability of the shaded region, in (0, 1): the smallest set of targets that holds it.
        y: The observed target; None if there is none.

    Returns:
        The axes.
    """
    rows = canvas.OneTarget(dist)
    n = len(rows)
    if checks.at_least("i", i, -n) >= n:
        raise ValueError(f"i must be a row of dist, at most {n - 1}; got {i}")
    ax = draw_row(rows, i % n, ax, mass, y)
    canvas.legend(ax)
    return canvas.name_axes(ax, "y", "density")


def draw_row(
    rows: canvas.OneTarget, i: int, ax: "Axes | None" = None, mass: float = 0.9, y: float | None = None
) -> "Axes":
    """What :func:`row` draws, without a legend and names of the axes."""
    (mass,) = canvas.probabilities("mass", [mass])
    observed = None if y is None else _observed(y)
    one = rows.row(i)
    region, (locations, masses, log_tops) = one.region(mass), one.modes()
    grid = _fine_grid(one, np.concatenate([region.ravel(), locations]), observed)
    p = np.exp(one.log_prob(grid)[:, 0])

    ax = canvas.axes(ax)
    (curve,) = ax.plot(grid, p, color=canvas.INK, linewidth=1.5)
    curve.sticky_edges.y.append(0)  # the density stands on the axis, also when another row is drawn on top
    ax.margins(x=0, y=0.14)
    _shade(ax, grid, p, region, f"{canvas.percent(mass)} region")
    ax.axvline(one.mean[0], color=canvas.GREY, linewidth=1.2, linestyle=(0, (4, 2)), label="mean")
    if observed is not None:
        ax.axvline(observed, color=canvas.ACCENT, linewidth=1.5, label="observed")
    _mark_modes(ax, locations, masses, np.exp(log_tops))
    return ax


def _edges(name: str, values: canvas.Values) -> np.ndarray:
    """Cell borders half-way between neighbours; the outer cells end at their own points."""
    centres = canvas.vector(name, values)
    if len(centres) < 2 or not (np.diff(centres) > 0).all():
        raise ValueError(f"{name} must hold at least 2 values in rising order, got {len(centres)} values")
    return np.concatenate([centres[:1], (centres[1:] + centres[:-1]) / 2, centres[-1:]])


def _relative_density(log_p: canvas.Values, y_edges: np.ndarray, n_x: int) -> np.ndarray:
    """Density over a high level of its own column, at most 1, shape (G, B); 0 in a column without any.

    The level is the one that ``_DARK_MASS`` of the column lies above, not the peak: one cell beside a pole
    of the density, or one spike of a model, would otherwise leave the rest of its column blank.
    """
    values = canvas.array(log_p)
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


def _points(x: canvas.Values | None, y: canvas.Values | None) -> tuple[np.ndarray, np.ndarray]:
    """The data, both of shape (m,); empty without any."""
    if x is None and y is None:
        return np.empty(0), np.empty(0)
    if x is None or y is None:
        raise ValueError("x_data and y_data must be given together, got one without the other")
    inputs = canvas.vector("x_data", x)
    return inputs, canvas.vector_of(len(inputs), "y_data", y, "x_data has")


def _range_of(rows: canvas.OneTarget, *others: np.ndarray) -> tuple[float, float]:
    """Lowest and highest target that a picture should show: nearly all mass of each row, and ``others``."""
    tail = (1 - _SEEN_MASS) / 2
    seen = np.concatenate([rows.icdf(np.array([tail, 1 - tail])).ravel(), *others])
    low, high = seen.min(), seen.max()
    margin = _MARGIN * (high - low)
    return low - margin, high + margin


def _observed(y: float) -> float:
    return canvas.vector_of(1, "y", np.reshape(canvas.array(y), -1), "there are rows in the picture")[0]


def _checked_range(y_range: tuple[float, float]) -> tuple[float, float]:
    low, high = y_range
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"y_range must be a lower and a higher finite number, got {y_range}")
    return low, high


def _draw_bands(ax: "Axes", x: np.ndarray, quantiles: np.ndarray, levels: np.ndarray) -> None:
    """The quantiles (2 L + 1, n) are the lower ends, widest interval first, the median and the upper ends."""
    L = len(levels)
    colors = canvas.light()(np.linspace(0.14, 0.5, L) if L > 1 else [0.25])
    for level, color, low, high in zip(levels, colors, quantiles[:L], quantiles[L + 1 :], strict=True):
        ax.fill_between(x, low, high, color=color, linewidth=0, label=canvas.percent(level))
    ax.plot(x, quantiles[L], color=canvas.INK, linewidth=1.5, solid_capstyle="butt", label="median")
    ax.margins(x=0)


def _columns(x: np.ndarray, quantiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as columns with both sides upright; NaN parts them, so that nothing is drawn between rows."""
    half = 0.4 if len(x) <= 60 else 0.5  # gaps between many columns would only flicker
    sides = np.stack([x - half, x + half, np.full_like(x, np.nan)], axis=1)
    return sides.ravel(), np.repeat(quantiles, 3, axis=1)


def _fine_grid(one: canvas.OneTarget, corners: np.ndarray, observed: float | None) -> np.ndarray:
    """Targets at which the density of a single row is drawn: rising, with each of the corners among them.

    Half of them are quantiles, so that a narrow mode has its share of points.
    """
    others = np.empty(0) if observed is None else np.array([observed])
    low, high = _range_of(one, corners, others)
    quantiles = one.icdf(np.linspace(0, 1, 402)[1:-1])[:, 0]
    return np.unique(np.concatenate([np.linspace(low, high, 400), quantiles, corners]))


def _shade(ax: "Axes", grid: np.ndarray, p: np.ndarray, region: np.ndarray, label: str) -> None:
    """Below the curve, in each interval of the region; their ends are points of the grid."""
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
