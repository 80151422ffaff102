"""What the pictures share: matplotlib when it is needed, colours, axes, and arrays of the right length."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

Values = Tensor | np.ndarray

# White to indigo with lightness falling evenly, so that equal steps of density look equal and the page
# stays light where there is nothing.
COLORS = ("#ffffff", "#cfe6f3", "#9dcae6", "#70acd9", "#538ccb", "#466bb5", "#414c97", "#392f73")
INK = "#2b2a72"
# For what must stand out from the blues: a warm hue that is also lighter than the darkest of them.
ACCENT = "#e2711d"
# For lines and bands that other things are compared with.
GREY, PALE = "#6f7380", "#dfe1e6"


def available() -> bool:
    """Whether pictures can be drawn here."""
    try:
        pyplot()
    except ImportError:
        return False
    return True


def require_matplotlib() -> None:
    """Raise the ImportError that says what to install, before long work rather than after it."""
    pyplot()


def pyplot() -> ModuleType:
    """``matplotlib.pyplot``, imported now."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install ebreg[plots]") from error
    return plt


def save(figure: "Figure", path: Path, dpi: int = 150) -> None:
    """Write a picture, and let go of its figure."""
    figure.savefig(path, dpi=dpi)
    close(figure)


def close(figure: "Figure") -> None:
    """Let go of a figure that was saved."""
    pyplot().close(figure)


def light() -> "Colormap":
    """The colours as a map that starts from white."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ebreg_light", COLORS)


def axes(ax: "Axes | None", width: float = 4.8, height: float = 3.6) -> "Axes":
    """The axes given, or those of a new figure of that size in inches."""
    return pyplot().subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


def name_axes(ax: "Axes", x: str = "x", y: str = "y") -> "Axes":
    """Name both axes; names that the caller has set already are kept."""
    if not ax.get_xlabel():
        ax.set_xlabel(x)
    if not ax.get_ylabel():
        ax.set_ylabel(y)
    return ax


def legend(ax: "Axes", **options: Any) -> None:
    """A legend without a border that stays legible where it has to lie on the data."""
    ax.legend(**{"framealpha": 0.85, "edgecolor": "none", "fontsize": "small"} | options)


def array(values: Any) -> np.ndarray:
    """In float64, off the graph and off the device."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def vector(name: str, values: Values) -> np.ndarray:
    """Shape (n,), from (n,) or (n, 1)."""
    values = array(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (n,) or (n, 1), got {values.shape}")
    return values


def vector_of(n: int, name: str, values: Values, whose: str) -> np.ndarray:
    """Finite values, one for each of the n that ``whose`` names: a new array (n,).

    New, because torch warns of arrays that cannot be written to and refuses those that run backwards.
    """
    values = vector(name, values).copy()
    if len(values) != n:
        raise ValueError(f"{name} must have as many values as {whose}, {n}; got {len(values)}")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(f"{name} must be finite, got {values[bad[0]]} at index {bad[0]}")
    return values


def check_prediction(dist: Any) -> None:
    """Refuse, with a sentence, what no estimator's ``predict_distribution`` returns, and one of no rows."""
    if not hasattr(dist, "n_targets") or hasattr(dist, "event_shape"):  # a torch Distribution
        raise TypeError(
            "dist must be a prediction, as predict_distribution of an estimator returns it; "
            f"got {type(dist).__name__}. For log densities on a grid there is plots.density"
        )
    if not len(dist):
        raise ValueError("dist must have at least 1 row, got none")


class OneTarget:
    """The prediction of one target, asked and answered without an axis for the target.

    Targets that were given as (n, 1) have made it keep that axis; those given as (n,) have not.

    Args:
        dist: What an estimator's ``predict_distribution`` returns; anything else is refused with a sentence.
    """

    def __init__(self, dist: Any):
        check_prediction(dist)
        if dist.n_targets != 1:
            raise ValueError(
                f"this picture is of one target, and dist has {dist.n_targets}; fit an estimator to one of "
                "them, or draw samples of one: plots.scatter(x, dist.sample(1)[0, :, 0])"
            )
        self._dist = dist
        self._has_axis = np.ndim(dist[:1].mean) == 2  # of one row only: that is cheap

    def __len__(self) -> int:
        return len(self._dist)

    def row(self, i: int) -> "OneTarget":
        """Row i alone."""
        return OneTarget(self._dist[i : i + 1])

    @property
    def mean(self) -> np.ndarray:
        """Shape (n,)."""
        return np.reshape(self._dist.mean, len(self))

    def icdf(self, q: np.ndarray) -> np.ndarray:
        """Levels (Q,) -> (Q, n)."""
        return np.reshape(self._dist.icdf(q), (len(q), len(self)))

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """The same targets for every row: (G,) -> (G, n)."""
        # Not broadcast: torch warns of arrays that cannot be written to.
        return self._dist.log_prob(self._with_axis(np.tile(y[:, None], len(self))))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """One target for each row: (n,) -> (n,)."""
        return self._dist.cdf(self._with_axis(y))

    def modes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Locations, masses and log densities of the modes of the first row, each of shape (n_modes,)."""
        modes = self._dist.modes()[0]
        return np.reshape(modes.locations, -1), modes.masses, modes.log_densities

    def region(self, mass: float) -> np.ndarray:
        """Highest-density region of the first row, shape (n_intervals, 2)."""
        return self._dist.highest_density_region(mass).intervals[0]

    def _with_axis(self, y: np.ndarray) -> np.ndarray:
        return y[..., None] if self._has_axis else y


def probabilities(name: str, values: Any) -> np.ndarray:
    """Probabilities strictly between 0 and 1 in rising order, shape (n,) with n >= 1."""
    values = np.sort(np.atleast_1d(array(values)))
    if values.ndim != 1 or not len(values) or not ((values > 0) & (values < 1)).all():
        raise ValueError(f"{name} must be numbers in (0, 1), at least one; got {values.tolist()}")
    return values


def percent(share: float) -> str:
    """A share as people read it: 0.9 is "90 %"."""
    return f"{100 * share:.3g} %"
