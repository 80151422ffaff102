"""Figures of several titled panels."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ebreg._utils import checks
from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def side_by_side(
    panels: "Mapping[str, Callable[[Axes], object]]", *, width: float = 4.0, height: float = 3.2
) -> "tuple[Figure, np.ndarray]":
    """A row of titled panels with shared axes.

    For example ``side_by_side({"Data": lambda ax: scatter(x, y, ax), "Model": lambda ax: density(...,
    ax=ax)})``.

    Args:
        panels: Map from titles to functions that draw on the given axes; from left to right.
        width: Width of a panel, in inches.
        height: Height of the row, in inches.

    Returns:
        The figure, and an array with its axes, shape (n_panels,).
    """
    figure, axes = panel_grid({"": panels}, width=width, height=height)
    return figure, axes[0]


def panel_grid(
    rows: "Mapping[str, Mapping[str, Callable[[Axes], object]]]", *, width: float = 4.0, height: float = 3.2
) -> "tuple[Figure, np.ndarray]":
    """Rows of titled panels with shared axes; the titles are above the first row.

    Args:
        rows: Map from the label of a row to its panels, as in :func:`side_by_side`.
        width: Width of a panel, in inches.
        height: Height of a row, in inches.

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
