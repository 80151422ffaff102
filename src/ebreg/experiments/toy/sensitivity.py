"""A figure of Table 1: how results depend on the noise of NCE, and on the number of components."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebreg.experiments.mean_std import MeanStd
from ebreg.experiments.records import PAPER_METRIC
from ebreg.experiments.summaries import Summary
from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_METRICS = {"gustafsson": "KL", "brando": "NLL"}
# The group of settings of a column, its title, and the number that is varied.
_COLUMNS = (("NCE", "NCE: noise set by hand", r"$\sigma_1$"), ("Ours", "learned proposal", "K"))


def draw(summaries: Sequence[Summary]) -> "Figure":
    """A row for each data set: all runs, their median, the mean of the best 5, and the paper's values."""
    datasets = [name for name in _METRICS if any(summary.dataset == name for summary in summaries)]
    figure, axes = canvas.pyplot().subplots(
        len(datasets),
        len(_COLUMNS),
        figsize=(8.0, 3.2 * len(datasets)),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for line, dataset in zip(axes, datasets, strict=True):
        line[0].set_ylabel(f"{_METRICS[dataset]}, {dataset}")
        for ax, (group, title, varied) in zip(line, _COLUMNS, strict=True):
            _draw_group(ax, [s for s in summaries if (s.dataset, s.setting.group) == (dataset, group)])
            ax.set_xlabel(varied)
            if dataset == datasets[0]:
                ax.set_title(title)
        if _METRICS[dataset] == "KL":
            _log_scale(line[0])  # a few runs are worse by a factor of ten
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _log_scale(ax: "Axes") -> None:
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _draw_group(ax: "Axes", summaries: Sequence[Summary]) -> None:
    at = [s.setting.varied for s in summaries]
    x = [s.setting.varied for s in summaries for _ in s.values[PAPER_METRIC]]
    y = [value for s in summaries for value in s.values[PAPER_METRIC]]
    ax.scatter(x, y, s=8, color=canvas.INK, alpha=0.35, linewidths=0, label="a run")
    lines = (
        ("the paper's", [_mean(s.paper) for s in summaries], "s--", canvas.GREY),
        ("mean of the best 5 of 20", [_mean(s.best_5) for s in summaries], "o-", canvas.ACCENT),
        ("median", [s.median(PAPER_METRIC) for s in summaries], "-", canvas.INK),
    )
    for label, values, style, color in lines:
        ax.plot(at, [*map(_number, values)], style, color=color, markersize=5, label=label)
    ax.set_xscale("log")
    ax.set_xticks(at, [f"{value:g}" for value in at])
    ax.minorticks_off()


def _mean(value: MeanStd | None) -> float | None:
    return None if value is None else value.mean


def _number(value: float | None) -> float:
    return math.nan if value is None else value
