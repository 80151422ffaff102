"""NLL over the CPU seconds of a fit: a panel for each table, a marker for each method."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.tabular.comparison.pictures import INK
from benchmarks.tabular.comparison.selection import TABLES, Selection
from benchmarks.tabular.report import METRICS

Style = tuple[str, str]
# Colours and markers: blues for ours; for the others colours that differ in lightness too.
OURS: tuple[Style, ...] = (
    *(("#0d47a1", "*"), ("#1e88e5", "P"), ("#5c9bd1", "X"), ("#26a69a", "d")),
    *(("#0d47a1", "h"), ("#1e88e5", "p"), ("#5c9bd1", "8"), ("#26a69a", "H")),
)
OTHERS: tuple[Style, ...] = (
    *(("#c62828", "o"), ("#ef6c00", "s"), ("#2e7d32", "^"), ("#6a1b9a", "D")),
    *(("#795548", "v"), ("#ad1457", "<"), ("#616161", ">")),
)
N_COLUMNS = 3


def draw(selection: Selection) -> Figure:
    """All methods with a density; those with fewer splits than the table has are hollow."""
    names = selection.with_value(METRICS["nll"].value)
    styles = _styles(selection, names)
    figure = Figure(figsize=(10.4, 8), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.08, w_pad=0.06)  # type: ignore[call-arg, union-attr]
    axes = figure.subplots(2, len(TABLES) // 2)
    for ax, table in zip(axes.flat, TABLES, strict=True):
        _panel(ax, selection, table, styles)
    for ax in axes[-1]:
        ax.set_xlabel("CPU seconds of a fit", fontsize=12)
    for ax in axes[:, 0]:
        ax.set_ylabel("test NLL, nats", fontsize=12)
    handles = [_handle(name, *style) for name, style in styles.items()]
    if any(_has_fewer(selection, table, name) for table in TABLES for name in names):
        handles.append(_handle("hollow: fewer splits", INK, "o", markerfacecolor="white"))
    figure.legend(handles=handles, loc="outside lower center", ncols=N_COLUMNS, fontsize=12, frameon=False)
    return figure


def _styles(selection: Selection, names: list[str]) -> dict[str, Style]:
    ours, others = iter(OURS * len(names)), iter(OTHERS * len(names))
    return {name: next(ours if name in selection.ours else others) for name in names}


def _handle(name: str, color: str, marker: str, **style: str) -> Line2D:
    return Line2D([], [], ls="", color=color, marker=marker, markersize=10, label=name, **style)  # type: ignore[arg-type]


def _has_fewer(selection: Selection, table: str, name: str) -> bool:
    return len(selection.splits(table, name)) < selection.most_splits(table)


def _panel(ax: Axes, selection: Selection, table: str, styles: dict[str, Style]) -> None:
    for name, (color, marker) in styles.items():
        nll = selection.mean(table, name, METRICS["nll"].value)
        time = selection.mean(table, name, METRICS["fit_seconds"].value)
        ours = name in selection.ours
        ax.errorbar(
            time.mean,
            nll.mean,
            yerr=nll.error if nll.n_splits > 1 else None,
            color=color,
            marker=marker,
            markersize=13 if ours else 8.5,
            markerfacecolor="white" if _has_fewer(selection, table, name) else color,
            markeredgewidth=1.5,
            capsize=3.5,
            zorder=4 if ours else 3,
        )
    ax.set_title(TABLES[table], fontsize=13, color=INK)
    ax.set_xscale("log")
    ax.margins(x=0.12)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.tick_params(labelsize=11)
    ax.grid(color="#e0e0e0", lw=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
