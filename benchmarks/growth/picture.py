"""The picture: a panel for each factor."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.growth.case import METHODS, Case, Plan
from benchmarks.growth.store import Store

COLOURS = dict(zip(METHODS, ("tab:blue", "tab:orange", "tab:green"), strict=True))
LABELS = {
    "n_rows": "rows",
    "n_columns": "columns",
    "n_targets": "targets",
    "n_draws": "draws, n_draws",
    "n_members": "members, n_members",
}


def draw(plan: Plan, store: Store) -> Figure:
    """CPU seconds against each factor, on logarithmic axes."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    panels = figure.subplots(2, 3, sharey=True).flat
    for axes, (factor, values) in zip(panels, plan.values.items(), strict=False):
        for method, colour in COLOURS.items():
            _draw_method(axes, plan.cases(factor, method), store, colour)
        axes.set(xscale="log", yscale="log", xlabel=LABELS[factor])
        axes.minorticks_off()
        axes.set_xticks(values, [f"{value:,}" for value in values])
        axes.tick_params(axis="x", labelsize="small")
        axes.grid(alpha=0.3)
    for axes in (panels[0], panels[3]):
        axes.set_ylabel("CPU seconds")
    _draw_legend(panels[5], plan.base.n_predicted)
    return figure


def _draw_method(axes: Axes, cases: dict[int, Case], store: Store, colour: str) -> None:
    values, times = list(cases), [store[case] for case in cases.values()]
    axes.plot(values, [each.fit for each in times], "o-", color=colour, markersize=5)
    axes.plot(values, [each.predict_interval for each in times], "o--", color=colour, markersize=5)
    for value, each in zip(values, times, strict=True):
        if each.corrected == 0:
            axes.plot(value, each.predict_interval, "o", color=colour, markersize=5, markerfacecolor="white")


def _draw_legend(axes: Axes, n_predicted: int) -> None:
    def grey(style: str, face: str = "tab:gray") -> Line2D:
        return Line2D(
            [], [], color="tab:gray", linestyle=style, marker="o", markersize=5, markerfacecolor=face
        )

    lines = {name: Line2D([], [], color=colour, linewidth=3) for name, colour in COLOURS.items()}
    lines["fit"] = grey("-")
    lines[f"predict_interval, {n_predicted:,} rows"] = grey("--")
    lines["the same without a correction:\nthe energy answers as its mixture"] = grey("--", "white")
    axes.axis("off")
    axes.legend(lines.values(), lines.keys(), loc="center left", frameon=False)
