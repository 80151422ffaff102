"""Matplotlib, imported when it is needed: figures, axes, colours and legends."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

# White to indigo with lightness falling evenly, so that equal steps of density look equal and the page
# stays light where there is nothing.
COLORS = ("#ffffff", "#cfe6f3", "#9dcae6", "#70acd9", "#538ccb", "#466bb5", "#414c97", "#392f73")
INK = "#2b2a72"
# For data on top of the blues: a warm hue that is also lighter than the darkest of them.
ACCENT = "#e2711d"
# For reference lines and bands.
GREY, PALE = "#6f7380", "#dfe1e6"


def available() -> bool:
    """Whether matplotlib is installed."""
    try:
        pyplot()
    except ImportError:
        return False
    return True


def require_matplotlib() -> None:
    """Raise an ImportError now, before long work, if matplotlib is not installed."""
    pyplot()


def pyplot() -> ModuleType:
    """The module ``matplotlib.pyplot``."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install ebreg[plots]") from error
    return plt


def save(figure: "Figure", path: Path, dpi: int = 150) -> None:
    """Save a figure to a file, and close it."""
    figure.savefig(path, dpi=dpi)
    close(figure)


def close(figure: "Figure") -> None:
    """Close a figure, which frees its memory."""
    pyplot().close(figure)


def light() -> "Colormap":
    """Colour map from white to indigo."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ebreg_light", COLORS)


def axes(ax: "Axes | None", width: float = 4.8, height: float = 3.6) -> "Axes":
    """The given axes, or those of a new figure of that size in inches."""
    return pyplot().subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


def name_axes(ax: "Axes", x: str = "x", y: str = "y") -> "Axes":
    """Label both axes; labels that are already set are kept."""
    if not ax.get_xlabel():
        ax.set_xlabel(x)
    if not ax.get_ylabel():
        ax.set_ylabel(y)
    return ax


def legend(ax: "Axes", **options: Any) -> None:
    """Add a legend without a border, legible on top of data."""
    ax.legend(**{"framealpha": 0.85, "edgecolor": "none", "fontsize": "small"} | options)


def percent(share: float) -> str:
    """A fraction as text: 0.9 is "90 %"."""
    return f"{100 * share:.3g} %"
