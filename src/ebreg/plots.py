"""Pictures of conditional densities and data: functions that take and return matplotlib Axes.

Matplotlib is imported when a picture is asked for, so that importing ebreg does not need it.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ebreg import checks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

# White to indigo with lightness falling evenly, so that equal steps of density look equal and the page
# stays light where there is nothing.
_COLORS = ("#ffffff", "#cfe6f3", "#9dcae6", "#70acd9", "#538ccb", "#466bb5", "#414c97", "#392f73")
_INK = "#2b2a72"
_DARK_MASS = 0.2  # share of a column's mass that takes the darkest colour


def density(
    x: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    log_p: Tensor | np.ndarray,
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
    ax = _axes(ax)
    # Rasterised: as vectors, one rectangle per cell would be a huge file with seams.
    ax.pcolormesh(x_edges, y_edges, shade, cmap=cmap or _light(), vmin=0, vmax=1, rasterized=True)
    # Fixed, so that points drawn here or on shared axes do not leave the map with an empty border.
    ax.set(xlim=x_edges[[0, -1]], ylim=y_edges[[0, -1]])
    return _name_axes(ax)


def scatter(
    x: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    ax: "Axes | None" = None,
    *,
    color: str = _INK,
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
    x, y = _vector("x", x), _vector("y", y)
    if len(x) != len(y):
        raise ValueError(f"y must have as many values as x, which has {len(x)}; got {len(y)}")
    ax = _axes(ax)
    ax.scatter(x, y, s=size, color=color, alpha=alpha, linewidths=0, label=label, rasterized=True)
    return _name_axes(ax)


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
    if not panels:
        raise ValueError("panels must hold at least one title and drawing function, got none")
    width, height = checks.positive("width", width), checks.positive("height", height)
    figure, axes = _pyplot().subplots(
        1,
        len(panels),
        figsize=(width * len(panels), height),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for ax, (title, draw) in zip(axes[0], panels.items(), strict=True):
        draw(ax)
        ax.set_title(title)
        ax.label_outer()
    return figure, axes[0]


def require_matplotlib() -> None:
    """Raise the ImportError that says what to install, before long work rather than after it."""
    _pyplot()


def _pyplot() -> ModuleType:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install ebreg[plots]") from error
    return plt


def _light() -> "Colormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ebreg_light", _COLORS)


def _axes(ax: "Axes | None") -> "Axes":
    return _pyplot().subplots(figsize=(4.8, 3.6), layout="constrained")[1] if ax is None else ax


def _name_axes(ax: "Axes") -> "Axes":
    # Names that the caller has set already are kept.
    if not ax.get_xlabel():
        ax.set_xlabel("x")
    if not ax.get_ylabel():
        ax.set_ylabel("y")
    return ax


def _array(values: Tensor | np.ndarray) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def _vector(name: str, values: Tensor | np.ndarray) -> np.ndarray:
    array = _array(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (n,) or (n, 1), got {array.shape}")
    return array


def _edges(name: str, values: Tensor | np.ndarray) -> np.ndarray:
    """Cell borders half-way between neighbours; the outer cells end at their own points."""
    centres = _vector(name, values)
    if len(centres) < 2 or not (np.diff(centres) > 0).all():
        raise ValueError(f"{name} must hold at least 2 values in rising order, got {len(centres)} values")
    return np.concatenate([centres[:1], (centres[1:] + centres[:-1]) / 2, centres[-1:]])


def _relative_density(log_p: Tensor | np.ndarray, y_edges: np.ndarray, n_x: int) -> np.ndarray:
    """Density over a high level of its own column, at most 1, shape (G, B); 0 in a column without any.

    The level is the one that ``_DARK_MASS`` of the column lies above, not the peak: one cell beside a pole
    of the density, or one spike of a model, would otherwise leave the rest of its column blank.
    """
    values = _array(log_p)
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
