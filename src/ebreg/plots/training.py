"""Training curves: losses by epoch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_NLL = "validation_nll"
_PANEL, _FIRST_PANEL = 1.1, 2.0  # heights in inches
_GAP = 0.2  # between panels placed by hand, in the same unit
_REACH = 2.0  # a panel shows at most this many widths of the middle 60 % of the values beyond them


def training_curves(
    history: Any,
    ax: "Axes | None" = None,
    best_epoch: int | None = None,
    *,
    names: Sequence[str] | None = None,
    label: str | None = None,
    color: str = canvas.INK,
) -> "Axes":
    """Loss by epoch, one panel for each loss, with the best epoch marked.

    The losses have different units, so each has its own scale; ``validation_nll`` comes first and is the
    largest panel. A few values far from all others, as in the first epochs, are cut off, so that they do not
    flatten the rest. With ``names=["validation_nll"]`` there is one panel, on which several trainings can be
    drawn, each with its label and colour.

    Args:
        history: One mapping from names to losses per epoch, a fitted estimator (``history_``,
            ``best_epoch_``), or the result of ``ebreg.fit`` (``history``, ``best_epoch``).
        ax: Where to draw: its area is divided among the panels. A new figure if None.
        best_epoch: The epoch to mark, counted from 0; if None that of the estimator or, for a list, the
            one with the lowest ``validation_nll``, if there is one.
        names: Which losses to draw, from the top down; all of them if None.
        label: Name of the training, for a legend that also gives its best value.
        color: Any matplotlib colour.

    Returns:
        The first panel, which is ``ax`` if it was given.
    """
    epochs, found = _unpack(history)
    names = _names(epochs, names)
    best = _best(epochs, found if best_epoch is None else best_epoch)
    ax = canvas.axes(ax, 4.8, _FIRST_PANEL + _PANEL * (len(names) - 1) + 0.4)
    panels = _split(ax, len(names))
    curves = [
        _draw_curve(panel, name, _values(epochs, name), best, color)
        for panel, name in zip(panels, names, strict=True)
    ]
    found_best = [] if best is None else [_best_text(epochs, names[0], best)]
    if label is not None:
        curves[0].set_label(", ".join([label, *found_best]))
        canvas.legend(ax)
    elif best is not None:
        _write_beside(ax, best, *found_best)
    if not panels[-1].get_xlabel():
        panels[-1].set_xlabel("epoch")
    return ax


def _unpack(history: Any) -> tuple[list[Mapping[str, float]], int | None]:
    """The entries, one per epoch, and the best epoch if the object has one."""
    best = None
    for entries, epoch in (("history_", "best_epoch_"), ("history", "best_epoch")):
        if hasattr(history, entries):
            history, best = getattr(history, entries), getattr(history, epoch, None)
    if not isinstance(history, Iterable) or isinstance(history, str | Mapping):
        raise TypeError(
            "history must be a list with one mapping of losses per epoch, or a fitted estimator; "
            f"got {type(history).__name__}"
        )
    epochs = list(history)
    if not all(isinstance(entry, Mapping) for entry in epochs):
        raise TypeError("history must hold one mapping from names to losses per epoch, got something else")
    if not any(epochs):
        raise ValueError("history must hold at least 1 epoch with losses, got none")
    return epochs, best


def _values(epochs: Sequence[Mapping[str, float]], name: str) -> np.ndarray:
    """One loss by epoch, NaN where it is missing, shape (n_epochs,)."""
    return np.array([entry.get(name, np.nan) for entry in epochs], dtype=np.float64)


def _names(epochs: Sequence[Mapping[str, float]], names: Sequence[str] | None) -> list[str]:
    known = list(dict.fromkeys(name for entry in epochs for name in entry))
    if names is None:
        return sorted(known, key=lambda name: name != _NLL)  # the others keep their order
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted or not set(wanted) <= set(known):
        raise ValueError(f"names must be some of {', '.join(map(repr, known))}; got {wanted}")
    return wanted


def _best(epochs: Sequence[Mapping[str, float]], best_epoch: int | None) -> int | None:
    if best_epoch is None:
        nll = _values(epochs, _NLL)
        return None if np.isnan(nll).all() else int(np.nanargmin(nll))
    if not 0 <= best_epoch < len(epochs):
        raise ValueError(f"best_epoch must lie in 0 ... {len(epochs) - 1}, got {best_epoch}")
    return best_epoch


def _split(ax: "Axes", n: int) -> "list[Axes]":
    """Panels, one below the other, in the area of ``ax``, which becomes the first of them."""
    ratios = [_FIRST_PANEL] + [_PANEL] * (n - 1)
    spec, figure = ax.get_subplotspec(), ax.figure
    if n == 1:
        return [ax]
    if spec is not None:
        grid = spec.subgridspec(n, 1, height_ratios=ratios, hspace=0.05)
        ax.set_subplotspec(grid[0])
        panels = [ax] + [figure.add_subplot(grid[k], sharex=ax) for k in range(1, n)]
    else:  # not in a grid: the others are placed below it by position
        room = ax.get_position()
        unit = room.height / (sum(ratios) + _GAP * (n - 1))
        bottoms = room.y1 - unit * (np.cumsum(ratios) + _GAP * np.arange(n))
        places = [(room.x0, y, room.width, unit * ratio) for y, ratio in zip(bottoms, ratios, strict=True)]
        ax.set_position(places[0])
        panels = [ax] + [figure.add_axes(place, sharex=ax) for place in places[1:]]
    for panel in panels[:-1]:
        panel.tick_params(labelbottom=False)
    figure.align_ylabels(panels)
    return panels


def _draw_curve(ax: "Axes", name: str, values: np.ndarray, best: int | None, color: str) -> "Line2D":
    marker = "." if len(values) == 1 else None  # a line through one point would not be seen
    (curve,) = ax.plot(np.arange(len(values)), values, color=color, linewidth=1.4, marker=marker)
    ax.margins(x=0.02)
    ax.locator_params("x", integer=True)
    if not ax.get_ylabel():
        ax.set_ylabel("validation NLL" if name == _NLL else name)
    if best is not None:
        # Behind the curve, in every panel.
        ax.axvline(best, color=canvas.GREY, linewidth=1, linestyle=(0, (4, 2)), zorder=1)
        ax.plot(best, values[best], "o", color=canvas.ACCENT, markersize=5, zorder=3)
    _limit(ax, values, best)
    return curve


def _best_text(epochs: Sequence[Mapping[str, float]], name: str, best: int) -> str:
    value = f"{epochs[best].get(name, np.nan):.3f} in " if name == _NLL else ""
    return f"best: {value}epoch {best}"


def _write_beside(ax: "Axes", epoch: int, text: str) -> None:
    """Write at the top, where a falling loss leaves space, on the wider side of the epoch."""
    left = epoch < np.mean(ax.get_xlim())
    ax.annotate(
        text,
        (epoch, 1),
        xycoords=("data", "axes fraction"),
        xytext=(5 if left else -5, -4),
        textcoords="offset points",
        ha="left" if left else "right",
        va="top",
        color=canvas.GREY,
        fontsize="small",
    )


def _limit(ax: "Axes", values: np.ndarray, best: int | None) -> None:
    """Set the y limits by most of the values and the best one; limits of an earlier training are kept."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return
    q_low, q_high = np.quantile(finite, [0.2, 0.8])
    reach = _REACH * (q_high - q_low)
    low, high = max(finite.min(), q_low - reach), min(finite.max(), q_high + reach)
    if best is not None and np.isfinite(values[best]):
        low, high = min(low, values[best]), max(high, values[best])
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin
    if not ax.get_autoscaley_on():
        low, high = min(low, ax.get_ylim()[0]), max(high, ax.get_ylim()[1])
    if low < high:
        ax.set_ylim(low, high)
