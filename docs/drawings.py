"""Draws the two training schemes of docs/method.md: python docs/drawings.py."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

plt.switch_backend("Agg")
plt.rcParams.update({"svg.hashsalt": "ebreg", "font.family": "DejaVu Sans", "mathtext.fontset": "dejavusans"})
HERE = Path(__file__).parent / "images"

INK, GREY, RED = "#222222", "#7a7a7a", "#c62828"
ENERGY, MIXTURE = "#2e7d32", "#1565c0"
FILL = {ENERGY: "#e6f2e6", MIXTURE: "#e3eefa", INK: "#f3f3f3"}
HEIGHT = 0.74  # of a box

Point = tuple[float, float]


def box(ax: Axes, at: Point, text: str, color: str = INK, width: float = 1.9, height: float = HEIGHT) -> None:
    """A box with a text, centred at a point."""
    corner = at[0] - width / 2, at[1] - height / 2
    style = "round,pad=0,rounding_size=0.1"
    ax.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=style, fc=FILL[color], ec=color, lw=1.5, zorder=3)
    )
    ax.text(*at, text, ha="center", va="center", color=INK, fontsize=11.5, zorder=4, linespacing=1.35)


def arrow(ax: Axes, start: Point, end: Point, color: str = INK, bend: float = 0.0) -> None:
    """An arrow of values; its colour says which loss sends a gradient back along it."""
    style = f"arc3,rad={bend}"
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=13, color=color, lw=1.9, connectionstyle=style,
            shrinkA=0, shrinkB=1, zorder=2,
        )
    )  # fmt: skip


def stopped(ax: Axes, start: Point, end: Point, bar: float = 0.5) -> None:
    """An arrow of values without a gradient, with a bar at that share of its way."""
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=13, color=GREY, lw=1.4, linestyle=(0, (4, 2.5)),
            shrinkA=0, shrinkB=1, zorder=1,
        )
    )  # fmt: skip
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx**2 + dy**2) ** 0.5
    x, y = start[0] + bar * dx, start[1] + bar * dy
    half = 0.13
    nx, ny = -dy / length * half, dx / length * half
    for shift in (-0.035, 0.035):
        sx, sy = shift * dx / length, shift * dy / length
        ends = [x + sx - nx, x + sx + nx], [y + sy - ny, y + sy + ny]
        ax.plot(*ends, color=RED, lw=2.0, solid_capstyle="butt", zorder=5)


def label(ax: Axes, at: Point, text: str, color: str = INK, **style: object) -> None:
    """A text beside an arrow."""
    ax.text(*at, text, **{"ha": "center", "va": "center", "color": color, "fontsize": 10.5, **style})


def legend(ax: Axes, y: float, of_energy: str, of_mixture: str) -> None:
    """What the three kinds of arrows mean."""
    arrow(ax, (0.1, y), (0.75, y), ENERGY)
    label(ax, (0.9, y), of_energy, ha="left")
    arrow(ax, (3.9, y), (4.55, y), MIXTURE)
    label(ax, (4.7, y), of_mixture, ha="left")
    stopped(ax, (7.75, y), (8.4, y))
    label(ax, (8.55, y), "values only, gradient stopped", ha="left")


def canvas(height: float) -> tuple[plt.Figure, Axes]:
    """A drawing area 11.2 wide, in units of its boxes."""
    figure = plt.figure(figsize=(10.4, 10.4 * height / 11.2))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 11.2), ylim=(0, height))
    ax.axis("off")
    return figure, ax


def between_heads(ax: Axes, x: float, top: float, bottom: float) -> None:
    """The draws, from the mixture to the energy, which are not differentiated; and the target."""
    middle = (top + bottom) / 2
    half = HEIGHT / 2
    box(ax, (x, middle), "$M$ draws  $y^{(m)}$", MIXTURE, width=1.75, height=0.56)
    stopped(ax, (x, bottom + half), (x, middle - 0.28), bar=0.42)
    arrow(ax, (x, middle + 0.28), (x, top - half))
    box(ax, (x, top + 1.0), "target  $y$", width=1.3, height=0.5)
    arrow(ax, (x, top + 0.75), (x, top + half))


def to_losses(ax: Axes, x: float, end: float, top: float, bottom: float) -> None:
    """The arrows from the two heads to the two losses."""
    arrow(ax, (x, top), (end, top), ENERGY)
    label(ax, ((x + end) / 2, top + 0.25), r"$f(x, y),\ f(x, y^{(m)})$")
    arrow(ax, (x, bottom), (end, bottom), MIXTURE)
    stopped(ax, (x, top - 0.22), (end, bottom + 0.22), bar=0.3)
    stopped(ax, (x, bottom + 0.22), (end, top - 0.22), bar=0.3)
    label(ax, (x + 0.45, top - 0.4), r"$f(x, y^{(m)})$", ha="left")
    label(ax, (x + 0.45, bottom + 0.4), r"$\log q(y),\ \log q(y^{(m)})$", ha="left")


def joint_training() -> plt.Figure:
    """NCE for f with q as the noise, the importance-sampled log Z for q: one backbone, two heads."""
    figure, ax = canvas(5.6)
    top, bottom, x_head, x_loss = 4.05, 1.35, 4.7, 9.75
    middle = (top + bottom) / 2
    box(ax, (0.65, middle), "input  $x$", width=1.1, height=0.5)
    box(ax, (2.35, middle), "backbone", ENERGY, width=1.35)
    arrow(ax, (1.2, middle), (1.68, middle))
    box(ax, (x_head, top), "energy head\n$f(x, y)$", ENERGY)
    box(ax, (x_head, bottom), "mixture head\n$q(y \\mid x)$", MIXTURE)
    arrow(ax, (3.02, middle + 0.2), (x_head - 0.95, top - 0.1), ENERGY)
    stopped(ax, (3.02, middle - 0.2), (x_head - 0.95, bottom + 0.1))
    label(ax, (3.1, middle + 0.82), "$h$")
    label(ax, (3.1, middle - 0.82), "$h$")
    between_heads(ax, x_head, top, bottom)
    to_losses(ax, x_head + 0.95, x_loss - 1.3, top, bottom)
    label(ax, (x_head / 2 + x_loss / 2 - 0.17, bottom - 0.25), r"$\log q(y^{(m)} \mid x)$")
    box(ax, (x_loss, top), "NCE, Eq. (6)\nwhich one is the target?", ENERGY, width=2.6)
    box(ax, (x_loss, bottom), "$\\log \\hat Z(x)$, Eq. (5)\nfollows KL$(p \\,\\|\\, q)$", MIXTURE, width=2.6)
    label(ax, (x_loss, top + 0.62), "trains energy head, backbone", ENERGY)
    label(ax, (x_loss, bottom - 0.6), "trains the mixture head alone", MIXTURE)
    legend(ax, 0.27, "gradient of the NCE loss", r"gradient of $\log \hat Z$")
    return figure


def teacher() -> plt.Figure:
    """A mixture density network as the student of an energy: two networks, each with its own loss."""
    figure, ax = canvas(5.6)
    top, bottom, x_head, x_loss = 4.05, 1.35, 4.7, 9.75
    middle = (top + bottom) / 2
    box(ax, (0.65, middle), "input  $x$", width=1.1, height=0.5)
    box(ax, (2.2, top), "backbone", ENERGY, width=1.35)
    box(ax, (2.2, bottom), "backbone", MIXTURE, width=1.35)
    arrow(ax, (0.75, middle + 0.25), (1.52, top - 0.1))
    arrow(ax, (0.75, middle - 0.25), (1.52, bottom + 0.1))
    box(ax, (x_head, top), "energy head\n$f(x, y)$", ENERGY)
    box(ax, (x_head, bottom), "mixture head\n$q(y \\mid x)$", MIXTURE)
    arrow(ax, (2.88, top), (x_head - 0.95, top), ENERGY)
    arrow(ax, (2.88, bottom), (x_head - 0.95, bottom), MIXTURE)
    label(ax, (2.2, top + 0.62), "teacher: discarded after training", ENERGY)
    label(ax, (2.2, bottom - 0.62), "student: the model that is kept", MIXTURE)
    between_heads(ax, x_head, top, bottom)
    to_losses(ax, x_head + 0.95, x_loss - 1.3, top, bottom)
    label(ax, (x_head / 2 + x_loss / 2 - 0.17, bottom - 0.25), r"$\log q(y \mid x),\ \log q(y^{(m)} \mid x)$")
    box(ax, (x_loss, top), "NCE, Eq. (6)\nwhich one is the target?", ENERGY, width=2.6)
    eight = "Eq. (8)\n$\\frac{1}{2}\\log \\hat Z(x) - \\frac{1}{2}\\log q(y \\mid x)$"
    box(ax, (x_loss, bottom), eight, MIXTURE, width=2.6, height=0.86)
    label(ax, (x_loss, top + 0.62), "trains the teacher", ENERGY)
    label(ax, (x_loss, bottom - 0.6), "trains the student", MIXTURE)
    legend(ax, 0.27, "gradient of the NCE loss", "gradient of Eq. (8)")
    return figure


def main() -> None:
    """Write both, the same bytes each time."""
    for name, figure in (("joint-training", joint_training()), ("teacher", teacher())):
        figure.savefig(HERE / f"{name}.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
