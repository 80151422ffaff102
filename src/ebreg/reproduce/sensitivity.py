"""How much a method depends on its setting: the noise of NCE, the components of the proposal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ebreg.plots import canvas
from ebreg.reproduce.cells import Run
from ebreg.reproduce.report import Summary
from ebreg.reproduce.tasks import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUPS = {"NCE": "sigma", "Ours": "n_components"}
_TITLES = {"NCE": "NCE: noise set by hand", "Ours": "learned proposal"}
_NAMES = {"sigma": r"$\sigma_1$", "n_components": "K"}


def draw(
    summaries: Sequence[Summary], runs: Sequence[Run], records: Sequence[dict[str, Any] | None]
) -> "Figure":
    """A row for each data set: all runs as points, the mean of the best five, and the paper's dashed."""
    datasets = [name for name in METRICS if any(summary.dataset == name for summary in summaries)]
    figure, axes = canvas.pyplot().subplots(
        len(datasets),
        2,
        figsize=(8.0, 3.2 * len(datasets)),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for line, dataset in zip(axes, datasets, strict=True):
        line[0].set_ylabel(f"{METRICS[dataset]}, {dataset}")
        for ax, (group, setting) in zip(line, _GROUPS.items(), strict=True):
            found = [s for s in summaries if s.dataset == dataset and s.group == group]
            cells = {run.cell.name: getattr(run.cell, setting) for run in runs}
            _draw_runs(ax, dataset, {s.cell: cells[s.cell] for s in found}, runs, records)
            at = [cells[s.cell] for s in found]
            ax.plot(at, [s.best_5 for s in found], "o-", color=canvas.ACCENT, label="mean of the best 5")
            ax.plot(at, [s.paper for s in found], "s--", color=canvas.GREY, label="the paper's")
            ax.set(xscale="log", xlabel=_NAMES[setting])
            ax.set_xticks(at, [f"{value:g}" for value in at])
            ax.minorticks_off()
    for ax, title in zip(axes[0], _TITLES.values(), strict=True):
        ax.set_title(title)
    canvas.legend(axes[0, 0])
    return figure


def _draw_runs(
    ax: "Axes",
    dataset: str,
    settings: dict[str, float],
    runs: Sequence[Run],
    records: Sequence[dict[str, Any] | None],
) -> None:
    points = [
        (settings[run.cell.name], record["on_grid"])
        for run, record in zip(runs, records, strict=True)
        if run.dataset == dataset
        and run.cell.name in settings
        and record is not None
        and record.get("on_grid") is not None
    ]
    if points:
        x, y = zip(*points, strict=True)
        ax.scatter(x, y, s=8, color=canvas.INK, alpha=0.35, linewidths=0, label="a run")
        ax.set_ylim(top=_seen(y))


def _seen(values: Sequence[float]) -> float:
    # A few runs that went astray would squeeze the rest to the floor.
    ordered = sorted(values)
    return 1.1 * ordered[int(0.97 * (len(ordered) - 1))]
