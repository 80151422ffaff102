"""Draws the two training schemes of docs/method.md: python docs/drawings.py."""

from pathlib import Path
from typing import Any

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
SIZE = 11.2, 5.6  # of a drawing
# Rows of the energy, of the draws and of the mixture; columns of the heads and of the losses.
TOP, MIDDLE, BOTTOM = 4.05, 2.7, 1.35
X_HEAD, X_LOSS = 4.7, 9.75

Point = tuple[float, float]


def box(ax: Axes, at: Point, text: str, color: str = INK, width: float = 1.9, height: float = HEIGHT) -> None:
    """A box with a text, centred at a point."""
    corner = at[0] - width / 2, at[1] - height / 2
    style = "round,pad=0,rounding_size=0.1"
    ax.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=style, fc=FILL[color], ec=color, lw=1.5, zorder=3)
    )
    ax.text(*at, text, ha="center", va="center", color=INK, fontsize=11.5, zorder=4, linespacing=1.35)


def arrow(ax: Axes, start: Point, end: Point, color: str = INK, **style: Any) -> None:
    """An arrow of values; its colour says which loss sends a gradient back along it."""
    style = {"arrowstyle": "-|>", "mutation_scale": 13, "lw": 1.9, "shrinkA": 0, "shrinkB": 1, **style}
    ax.add_patch(FancyArrowPatch(start, end, color=color, zorder=2, **style))


def stopped(ax: Axes, start: Point, end: Point, bar: float = 0.5) -> None:
    """An arrow of values without a gradient, with a bar at that share of its way."""
    arrow(ax, start, end, GREY, lw=1.4, linestyle=(0, (4, 2.5)))
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx**2 + dy**2) ** 0.5
    x, y = start[0] + bar * dx, start[1] + bar * dy
    half = 0.13
    nx, ny = -dy / length * half, dx / length * half
    for shift in (-0.035, 0.035):
        sx, sy = shift * dx / length, shift * dy / length
        ends = [x + sx - nx, x + sx + nx], [y + sy - ny, y + sy + ny]
        ax.plot(*ends, color=RED, lw=2.0, solid_capstyle="butt", zorder=5)


def label(ax: Axes, at: Point, text: str, color: str = INK, **style: Any) -> None:
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


def canvas() -> tuple[plt.Figure, Axes]:
    """A drawing area, in units of the boxes."""
    figure = plt.figure(figsize=(10.4, 10.4 * SIZE[1] / SIZE[0]))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, SIZE[0]), ylim=(0, SIZE[1]))
    ax.axis("off")
    return figure, ax


def scheme(ax: Axes, log_q: str, loss: str, energy_trains: str, loss_trains: str, name: str) -> None:
    """What both schemes have: two heads, the draws between them, and two losses.

    Args:
        ax: Where to draw.
        log_q: The densities that the mixture gives to its own loss.
        loss: The loss of the mixture.
        energy_trains: What the NCE loss trains.
        loss_trains: What the loss of the mixture trains.
        name: Name of the loss of the mixture in the legend.
    """
    half, x, end = HEIGHT / 2, X_HEAD + 0.95, X_LOSS - 1.3
    box(ax, (0.65, MIDDLE), "input  $x$", width=1.1, height=0.5)
    box(ax, (X_HEAD, TOP), "energy head\n$f(x, y)$", ENERGY)
    box(ax, (X_HEAD, BOTTOM), "mixture head\n$q(y \\mid x)$", MIXTURE)
    # Draws go from the mixture to the energy and are not differentiated.
    box(ax, (X_HEAD, MIDDLE), "$M$ draws  $y^{(m)}$", MIXTURE, width=1.75, height=0.56)
    stopped(ax, (X_HEAD, BOTTOM + half), (X_HEAD, MIDDLE - 0.28), bar=0.42)
    arrow(ax, (X_HEAD, MIDDLE + 0.28), (X_HEAD, TOP - half))
    box(ax, (X_HEAD, TOP + 1.0), "target  $y$", width=1.3, height=0.5)
    arrow(ax, (X_HEAD, TOP + 0.75), (X_HEAD, TOP + half))
    # Each head goes to both losses, and learns from one.
    box(ax, (X_LOSS, TOP), "NCE, Eq. (6)\nwhich one is the target?", ENERGY, width=2.6)
    box(ax, (X_LOSS, BOTTOM), loss, MIXTURE, width=2.6, height=0.84)
    arrow(ax, (x, TOP), (end, TOP), ENERGY)
    label(ax, ((x + end) / 2, TOP + 0.25), r"$f(x, y),\ f(x, y^{(m)})$")
    arrow(ax, (x, BOTTOM), (end, BOTTOM), MIXTURE)
    label(ax, ((x + end) / 2, BOTTOM - 0.25), log_q)
    stopped(ax, (x, TOP - 0.22), (end, BOTTOM + 0.22), bar=0.3)
    stopped(ax, (x, BOTTOM + 0.22), (end, TOP - 0.22), bar=0.3)
    label(ax, (x + 0.45, TOP - 0.4), r"$f(x, y^{(m)})$", ha="left")
    label(ax, (x + 0.45, BOTTOM + 0.4), r"$\log q(y),\ \log q(y^{(m)})$", ha="left")
    label(ax, (X_LOSS, TOP + 0.62), f"trains {energy_trains}", ENERGY)
    label(ax, (X_LOSS, BOTTOM - 0.62), f"trains {loss_trains}", MIXTURE)
    legend(ax, 0.27, "gradient of the NCE loss", f"gradient of {name}")


def joint_training() -> plt.Figure:
    """One backbone, two heads: NCE for f with q as the noise, the importance-sampled log Z for q."""
    figure, ax = canvas()
    scheme(
        ax,
        r"$\log q(y^{(m)} \mid x)$",
        "$\\log \\hat Z(x)$, Eq. (5)\nfollows KL$(p \\,\\|\\, q)$",
        "energy head, backbone",
        "the mixture head alone",
        r"$\log \hat Z$",
    )
    box(ax, (2.35, MIDDLE), "backbone", ENERGY, width=1.35)
    arrow(ax, (1.2, MIDDLE), (1.68, MIDDLE))
    arrow(ax, (3.02, MIDDLE + 0.2), (X_HEAD - 0.95, TOP - 0.1), ENERGY)
    stopped(ax, (3.02, MIDDLE - 0.2), (X_HEAD - 0.95, BOTTOM + 0.1))
    for side in (-1, 1):
        label(ax, (3.1, MIDDLE + 0.82 * side), "$h$")
    return figure


def teacher() -> plt.Figure:
    """Two networks: a mixture density network as the student of an energy."""
    figure, ax = canvas()
    scheme(
        ax,
        r"$\log q(y \mid x),\ \log q(y^{(m)} \mid x)$",
        "Eq. (8)\n$\\frac{1}{2}\\log \\hat Z(x) - \\frac{1}{2}\\log q(y \\mid x)$",
        "the teacher",
        "the student",
        "Eq. (8)",
    )
    roles = {ENERGY: "teacher: discarded after training", MIXTURE: "student: the model that is kept"}
    for side, (color, role) in zip((1, -1), roles.items(), strict=True):
        y = TOP if side == 1 else BOTTOM
        box(ax, (2.2, y), "backbone", color, width=1.35)
        arrow(ax, (0.75, MIDDLE + 0.25 * side), (1.52, y - 0.1 * side))
        arrow(ax, (2.88, y), (X_HEAD - 0.95, y), color)
        label(ax, (2.2, y + 0.62 * side), role, color)
    return figure


def main() -> None:
    """Write both, the same bytes each time."""
    for name, figure in (("joint-training", joint_training()), ("teacher", teacher())):
        figure.savefig(HERE / f"{name}.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
