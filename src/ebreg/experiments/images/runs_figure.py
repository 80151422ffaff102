"""A figure of all runs of a table of images: a row of points for each setting and metric."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebreg.experiments.records import PAPER_METRIC
from ebreg.experiments.summaries import Summary
from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_METRICS = {
    PAPER_METRIC: "NLL on the paper's grid",
    "predictive": "NLL",
    "rounded_nll": "NLL of the rounding interval",
    "crps": "CRPS",
}


def draw(summaries: Sequence[Summary]) -> "Figure":
    """A row for each data set, a panel for each metric: all runs, their median, and the paper's NLL."""
    datasets = list(dict.fromkeys(summary.dataset for summary in summaries))
    metrics = {name: title for name, title in _METRICS.items() if any(s.values[name] for s in summaries)}
    most = max(sum(s.dataset == dataset for s in summaries) for dataset in datasets)
    figure, axes = canvas.pyplot().subplots(
        len(datasets),
        len(metrics),
        figsize=(1.6 + 2.8 * len(metrics), (0.9 + 0.28 * most) * len(datasets)),
        squeeze=False,
        layout="constrained",
    )
    for line, dataset in zip(axes, datasets, strict=True):
        shown = [summary for summary in summaries if summary.dataset == dataset]
        line[0].set_title(dataset, loc="left")
        for ax, (name, title) in zip(line, metrics.items(), strict=True):
            if not any(summary.values[name] for summary in shown):
                ax.set_axis_off()  # a metric of other data sets
                continue
            _draw_points(ax, shown, name)
            ax.set_xlabel(title)
        line[0].set_yticks(range(len(shown)), [f"{s.setting.group}, {s.setting.label}" for s in shown])
        for i, summary in enumerate(shown):
            if summary.paper is not None:
                line[0].plot(summary.paper.mean, i, "s", color=canvas.GREY, markersize=4)
    return figure


def _draw_points(ax: "Axes", summaries: Sequence[Summary], metric: str) -> None:
    for i, summary in enumerate(summaries):
        values = [value for value in summary.values[metric] if math.isfinite(value)]
        ax.plot(values, [i] * len(values), "o", color=canvas.INK, alpha=0.5, markersize=5, markeredgewidth=0)
        median = summary.median(metric)
        if median is not None and math.isfinite(median):
            ax.plot([median] * 2, [i - 0.3, i + 0.3], color=canvas.ACCENT, linewidth=2)
    ax.set_ylim(len(summaries) - 0.5, -0.5)
    ax.set_yticks(range(len(summaries)), [""] * len(summaries))
    ax.grid(axis="y", color=canvas.PALE, linewidth=0.8)
    ax.set_axisbelow(True)
