"""All runs of a table of images at a glance: a strip of points for each setting and measure."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebreg.experiments.cells import PAPER_MEASURE
from ebreg.experiments.report import Summary
from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEASURES = {
    PAPER_MEASURE: "NLL on the paper's grid",
    "own": "NLL",
    "cell_nll": "NLL of the rounding cell",
    "crps": "CRPS",
}


def draw(summaries: Sequence[Summary]) -> "Figure":
    """A row for each data set, a panel for each measure: all runs, their median, and the paper's NLL."""
    datasets = list(dict.fromkeys(summary.dataset for summary in summaries))
    measures = {name: title for name, title in _MEASURES.items() if any(s.values[name] for s in summaries)}
    most = max(sum(s.dataset == dataset for s in summaries) for dataset in datasets)
    figure, axes = canvas.pyplot().subplots(
        len(datasets),
        len(measures),
        figsize=(1.6 + 2.8 * len(measures), (0.9 + 0.28 * most) * len(datasets)),
        squeeze=False,
        layout="constrained",
    )
    for line, dataset in zip(axes, datasets, strict=True):
        shown = [summary for summary in summaries if summary.dataset == dataset]
        line[0].set_title(dataset, loc="left")
        for ax, (name, title) in zip(line, measures.items(), strict=True):
            _draw_strips(ax, shown, name)
            ax.set_xlabel(title)
        line[0].set_yticks(range(len(shown)), [f"{s.cell.group}, {s.cell.label}" for s in shown])
        for i, summary in enumerate(shown):
            if summary.paper is not None:
                line[0].plot(summary.paper, i, "s", color=canvas.GREY, markersize=4)
    return figure


def _draw_strips(ax: "Axes", summaries: Sequence[Summary], measure: str) -> None:
    for i, summary in enumerate(summaries):
        values = [value for value in summary.values[measure] if math.isfinite(value)]
        ax.plot(values, [i] * len(values), "o", color=canvas.INK, alpha=0.5, markersize=5, markeredgewidth=0)
        median = summary.median(measure)
        if median is not None and math.isfinite(median):
            ax.plot([median] * 2, [i - 0.3, i + 0.3], color=canvas.ACCENT, linewidth=2)
    ax.set_ylim(len(summaries) - 0.5, -0.5)
    ax.set_yticks(range(len(summaries)), [""] * len(summaries))
    ax.grid(axis="y", color=canvas.PALE, linewidth=0.8)
    ax.set_axisbelow(True)
