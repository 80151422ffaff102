"""Critical-difference diagrams (Demšar, 2006): average ranks, and bars over methods that do not differ."""

import math
from collections.abc import Collection, Mapping, Sequence, Sized

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.tabular.comparison.pictures import GREY, INK, OURS
from benchmarks.tabular.comparison.ranking import Ranking

# Lengths in inches.
AXIS = 4.6
CHARACTER = 0.094  # width of a character of a name
TOP, BAR, GAP, LINE, BOTTOM = 1.1, 0.14, 0.15, 0.28, 0.25  # above the axis; a bar; a gap; a name; below
INDENT = 0.25  # from the end of the axis to a name


def draw(rankings: Mapping[str, Ranking], bold: Collection[str] = ()) -> Figure:
    """A panel for each score.

    Args:
        rankings: By the title of the panel.
        bold: Names of methods that are emphasised.
    """
    heights = [_height(ranking) for ranking in rankings.values()]
    names = [list(ranking.average) for ranking in rankings.values()]
    left = _width([name for of_panel in names for name in of_panel[: _n_left(of_panel)]])
    right = _width([name for of_panel in names for name in of_panel[_n_left(of_panel) :]])
    figure = Figure(figsize=(left + AXIS + right, sum(heights)))
    top = 1.0
    for (title, ranking), height in zip(rankings.items(), heights, strict=True):
        share = height / sum(heights)
        top -= share
        ax = figure.add_axes((0, top, 1, share))
        ax.set(xlim=(-left, AXIS + right), ylim=(height, 0))
        ax.axis("off")
        _panel(ax, title, ranking, bold)
    return figure


def _height(ranking: Ranking) -> float:
    return _first_line(ranking) + LINE * (_n_left(ranking.average) - 1) + BOTTOM


def _n_left(names: Sized) -> int:
    # The better half has its names on the left.
    return math.ceil(len(names) / 2)


def _width(names: Sequence[str]) -> float:
    return INDENT + CHARACTER * max(len(_label(name, 10.0)) for name in names)


def _first_line(ranking: Ranking) -> float:
    return TOP + BAR * (len(ranking.groups) + 1) + GAP


def _label(name: str, rank: float) -> str:
    return f"{name}  {rank:.2f}"


def _panel(ax: Axes, title: str, ranking: Ranking, bold: Collection[str]) -> None:
    average, n_methods = ranking.average, len(ranking.average)

    def x(rank: float) -> float:
        return AXIS * (rank - 1) / (n_methods - 1)

    text = f"{title}: average rank over {len(ranking.by_table)} tables, the best is left"
    ax.text(ax.get_xlim()[0] + 0.15, 0.3, text, fontsize=13, fontweight="bold", color=INK, va="center")
    ax.plot([0, AXIS], [TOP, TOP], color=INK, lw=1.2)
    for tick in range(1, n_methods + 1):
        ax.plot([x(tick)] * 2, [TOP - 0.07, TOP], color=INK, lw=1.2)
        ax.text(x(tick), TOP - 0.1, str(tick), ha="center", va="bottom", fontsize=11, color=INK)
    _ruler(ax, x(1 + ranking.critical_difference), ranking.critical_difference)
    n_left, first = _n_left(average), _first_line(ranking)
    for i, (name, rank) in enumerate(average.items()):
        left = i < n_left
        y = first + LINE * (i if left else n_methods - 1 - i)
        end, side, gap = (0.1 - INDENT, "right", -0.06) if left else (AXIS + INDENT - 0.1, "left", 0.06)
        color = OURS if name in bold else INK
        ax.plot([x(rank), x(rank), end], [TOP, y, y], color=color, lw=1.1, solid_joinstyle="round")
        label = _label(name, rank) if left else f"{rank:.2f}  {name}"
        weight = "bold" if name in bold else "normal"
        ax.text(end + gap, y, label, ha=side, va="center", fontsize=11, color=color, fontweight=weight)
    for i, group in enumerate(ranking.groups):
        ends = x(average[group[0]]) - 0.05, x(average[group[-1]]) + 0.05
        ax.plot(ends, [TOP + BAR * (i + 1)] * 2, color=INK, lw=4, solid_capstyle="butt", zorder=3)


def _ruler(ax: Axes, end: float, difference: float) -> None:
    # The critical difference, drawn above the axis to scale.
    y = TOP - 0.42
    ax.plot([0, end], [y, y], color=GREY, lw=1.6)
    for at in (0, end):
        ax.plot([at, at], [y - 0.06, y + 0.06], color=GREY, lw=1.6)
    text = f"critical difference {difference:.2f}"
    ax.text(end + 0.1, y, text, ha="left", va="center", fontsize=11, color=GREY)
