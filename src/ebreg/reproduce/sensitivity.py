"""How much a method depends on its setting: the noise of NCE, the components of the proposal."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebreg.plots import canvas
from ebreg.reproduce.report import Summary
from ebreg.reproduce.tasks import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The group of cells of a column, its title, and the name of its setting.
_COLUMNS = (("NCE", "NCE: noise set by hand", r"$\sigma_1$"), ("Ours", "learned proposal", "K"))


def draw(summaries: Sequence[Summary]) -> "Figure":
    """A row for each data set: all runs, their median, the mean of the best 5, and the paper's dashed."""
    datasets = [name for name in METRICS if any(summary.dataset == name for summary in summaries)]
    figure, axes = canvas.pyplot().subplots(
        len(datasets),
        len(_COLUMNS),
        figsize=(8.0, 3.2 * len(datasets)),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for line, dataset in zip(axes, datasets, strict=True):
        line[0].set_ylabel(f"{METRICS[dataset]}, {dataset}")
        for ax, (group, title, setting) in zip(line, _COLUMNS, strict=True):
            _draw_group(ax, [s for s in summaries if (s.dataset, s.cell.group) == (dataset, group)])
            ax.set_xlabel(setting)
            if dataset == datasets[0]:
                ax.set_title(title)
        line[0].set_ylim(*_seen([s for s in summaries if s.dataset == dataset]))
    canvas.legend(axes[0, 0])
    return figure


def _draw_group(ax: "Axes", summaries: Sequence[Summary]) -> None:
    at = [s.cell.setting for s in summaries]
    x = [s.cell.setting for s in summaries for _ in s.first]
    y = [value for s in summaries for value in s.first]
    ax.scatter(x, y, s=8, color=canvas.INK, alpha=0.35, linewidths=0, label="a run")
    measure = next((name for s in summaries for name in s.values), "")
    lines = (
        ("the paper's", [s.paper for s in summaries], "s--", canvas.GREY),
        ("mean of the best 5 of 20", [s.best_5 for s in summaries], "o-", canvas.ACCENT),
        ("median", [s.median(measure) for s in summaries], "-", canvas.INK),
    )
    for label, values, style, color in lines:
        ax.plot(at, [*map(_number, values)], style, color=color, markersize=5, label=label)
    ax.set_xscale("log")
    ax.set_xticks(at, [f"{value:g}" for value in at])
    ax.minorticks_off()


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _seen(summaries: Sequence[Summary]) -> tuple[float, float]:
    # A few runs that went astray would squeeze the rest to the floor.
    groups = [group for group, _, _ in _COLUMNS]
    values = sorted(value for s in summaries if s.cell.group in groups for value in s.first)
    values = values[: 1 + int(0.97 * len(values))]
    values += [s.paper for s in summaries if s.paper is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin
