"""Images with known targets, made when they are asked for: cells to count."""

from ebreg.datasets.synthetic.cells import cells

__all__ = ["cells"]
