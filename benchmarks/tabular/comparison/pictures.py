"""What both pictures share: files that are the same each time, and the colours of ours."""

from pathlib import Path

from matplotlib.figure import Figure

INK, GREY, OURS = "#222222", "#7a7a7a", "#1565c0"


def save(figure: Figure, path: Path) -> None:
    """Write a PNG; the same picture gives the same bytes."""
    figure.savefig(path, dpi=130, metadata={"Software": None}, pil_kwargs={"optimize": True})
