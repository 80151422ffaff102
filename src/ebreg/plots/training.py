"""Training curves: losses by epoch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Epochs = Sequence[Mapping[str, float]]

_NLL = "validation_nll"
_MEMBER = re.compile(rf"{_NLL}_\d+")  # of one of several members
_PANEL, _FIRST_PANEL = 1.1, 2.0  # heights in inches
_GAP = 0.2  # between panels placed by hand, in the same unit
_REACH = 2.0  # a panel shows at most this many widths of the middle 60 % of the values beyond them


def training_curves(
    history: Any,
    ax: "Axes | None" = None,
    best_epoch: int | Sequence[int] | None = None,
    *,
    names: Sequence[str] | None = None,
    label: str | None = None,
    color: str = canvas.INK,
) -> "Axes":
    """Loss by epoch, one panel for each loss, with the best epoch marked.

    The losses have different units, so each has its own scale; ``validation_nll`` comes first and is the
    largest panel. A few values far from all others, as in the first epochs, are cut off, so that they do not
    flatten the rest. Where a loss was not computed in every epoch, lines join those in which it was. With
    ``names=["validation_nll"]`` there is one panel, on which several trainings can be drawn, each with its
    label and colour.

    Trainings one after the other, such as that of a correction after its mixture, are not joined, and every
    other one is shaded.

    The validation NLL of several members is a thin line for each, with a mark at the epoch whose weights it
    kept, and a thick one for their mean.

    Args:
        history: One mapping from names to losses per epoch, a fitted estimator (``history_``,
            ``best_epoch_``), or the result of ``ebreg.fit`` (``history``, ``best_epoch``).
        ax: Where to draw: its area is divided among the panels. A new figure if None.
        best_epoch: The epoch to mark, counted from 0, or one for each member; if None that of the estimator
            or, for a list, the one with the lowest validation NLL, if there is one.
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
        _draw_panel(panel, epochs, name, best, color) for panel, name in zip(panels, names, strict=True)
    ]
    found_best = [_best_text(epochs, names[0], best)] if best else []
    if label is not None:
        curves[0].set_label(", ".join([label, *found_best]))
        canvas.legend(ax)
    elif best:
        _write_at_top(ax, best, *found_best)
    if not panels[-1].get_xlabel():
        panels[-1].set_xlabel("epoch")
    return ax


def _unpack(history: Any) -> tuple[Epochs, Any]:
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


def _values(epochs: Epochs, name: str) -> np.ndarray:
    """One loss by epoch, NaN where it is missing, shape (n_epochs,)."""
    return np.array([entry.get(name, np.nan) for entry in epochs], dtype=np.float64)


def _stages(epochs: Epochs) -> np.ndarray:
    """Numbers of the trainings that the epochs belong to, (n_epochs,): another one shares no loss."""
    losses = [{name for name in entry if not name.startswith(_NLL)} for entry in epochs]
    return np.cumsum([False, *(a.isdisjoint(b) for a, b in pairwise(losses))])[: len(epochs)]


def _members(epochs: Epochs) -> list[str]:
    """Names of the validation NLLs of the members, in their order; none of a single one."""
    members = {name for entry in epochs for name in entry if _MEMBER.fullmatch(name)}
    return sorted(members, key=lambda name: int(name.removeprefix(f"{_NLL}_")))


def _names(epochs: Epochs, names: Sequence[str] | None) -> list[str]:
    known = list(dict.fromkeys(name for entry in epochs for name in entry))
    if names is None:
        panels = [name for name in known if not _MEMBER.fullmatch(name)]
        return sorted(panels, key=lambda name: name != _NLL)  # the others keep their order
    wanted = [names] if isinstance(names, str) else list(names)
    if not wanted or not set(wanted) <= set(known):
        raise ValueError(f"names must be some of {', '.join(map(repr, known))}; got {wanted}")
    return wanted


def _best(epochs: Epochs, best_epoch: int | Sequence[int] | None) -> list[int]:
    """The epochs to mark: none, one, or one for each member."""
    members = _members(epochs)
    if best_epoch is None:
        nlls = [_values(epochs, name) for name in members or [_NLL]]
        return [int(np.nanargmin(nll)) for nll in nlls if not np.isnan(nll).all()]
    best = np.atleast_1d(best_epoch).tolist()
    if len(best) not in (1, len(members)):
        raise ValueError(
            f"best_epoch must be an epoch, or one for each of {len(members)} members; got {len(best)} epochs"
        )
    for epoch in best:
        if not 0 <= epoch < len(epochs):
            raise ValueError(f"best_epoch must lie in 0 ... {len(epochs) - 1}, got {epoch}")
    return best


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


def _draw_panel(ax: "Axes", epochs: Epochs, name: str, best: Sequence[int], color: str) -> "Line2D":
    members = _members(epochs) if name == _NLL else []
    curve = _draw_curve(ax, epochs, name, color=color, linewidth=1.8 if members else 1.4, zorder=2.5)
    for member in members:
        _draw_curve(ax, epochs, member, color=color, linewidth=0.8, alpha=0.4)
    stages = _stages(epochs)
    for stage in range(1, stages.max(initial=0) + 1, 2):
        first, *_, last = np.flatnonzero(stages == stage)[[0, -1]]
        ax.axvspan(first - 0.5, last + 0.5, color=canvas.GREY, alpha=0.12, linewidth=0, zorder=0)
    ax.margins(x=0.02)
    ax.locator_params("x", integer=True)
    if not ax.get_ylabel():
        ax.set_ylabel("validation NLL" if name == _NLL else name)
    if len(best) == 1:  # behind the curve, in every panel
        ax.axvline(best[0], color=canvas.GREY, linewidth=1, linestyle=(0, (4, 2)), zorder=1)
    marks = _at_best(epochs, name, best)
    if len(marks):
        ax.plot(best, marks, "o", color=canvas.ACCENT, markersize=5 - (len(best) > 1), zorder=3)
    _limit(ax, np.concatenate([_values(epochs, each) for each in (name, *members)]), marks)
    return curve


def _draw_curve(ax: "Axes", epochs: Epochs, name: str, **style: Any) -> "Line2D":
    # Through the epochs that have a value, be it one that is not finite; not from one training to another.
    known = np.flatnonzero([name in entry for entry in epochs])
    values, stages = _values(epochs, name)[known], _stages(epochs)[known]
    breaks = np.flatnonzero(np.diff(stages)) + 1
    is_seen = all(len(part) > 1 for part in np.split(known, breaks))  # a line through one point is not
    x, y = (np.insert(part.astype(float), breaks, np.nan) for part in (known, values))
    (curve,) = ax.plot(x, y, marker=None if is_seen else ".", **style)
    return curve


def _at_best(epochs: Epochs, name: str, best: Sequence[int]) -> np.ndarray:
    """The values at the best epochs; of several members those of their NLL, and none of the mean losses."""
    if len(best) > 1 and name != _NLL:
        return np.empty(0)
    curves = [name] if len(best) == 1 else _members(epochs)
    return np.array([_values(epochs, curve)[epoch] for epoch, curve in zip(best, curves, strict=True)])


def _best_text(epochs: Epochs, name: str, best: Sequence[int]) -> str:
    value = f"{_at_best(epochs, name, best).mean():.3f} in " if name == _NLL else ""
    first, last = min(best), max(best)
    return f"best: {value}" + (f"epoch {first}" if first == last else f"epochs {first} to {last}")


def _write_at_top(ax: "Axes", best: Sequence[int], text: str) -> None:
    """Write where a falling loss leaves space: at the right, or on the wider side of a single epoch."""
    low, high = ax.get_xlim()
    x = best[0] if len(best) == 1 else high
    left = 2 * x < low + high
    ax.annotate(
        text,
        (x, 1),
        xycoords=("data", "axes fraction"),
        xytext=(5 if left else -5, -4),
        textcoords="offset points",
        ha="left" if left else "right",
        va="top",
        color=canvas.GREY,
        fontsize="small",
    )


def _limit(ax: "Axes", values: np.ndarray, best: np.ndarray) -> None:
    """Set the y limits by most of the values and the best ones; limits of an earlier training are kept."""
    finite, best = values[np.isfinite(values)], best[np.isfinite(best)]
    if not len(finite):
        return
    q_low, q_high = np.quantile(finite, [0.2, 0.8])
    reach = _REACH * (q_high - q_low)
    low, high = max(finite.min(), q_low - reach), min(finite.max(), q_high + reach)
    low, high = min(low, *best, high), max(low, *best, high)
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin
    if not ax.get_autoscaley_on():
        low, high = min(low, ax.get_ylim()[0]), max(high, ax.get_ylim()[1])
    if low < high:
        ax.set_ylim(low, high)
