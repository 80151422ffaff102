"""Synthetic images with known targets: cells to count, and a solid in a random pose."""

from ebreg.datasets.synthetic.cells import cells
from ebreg.datasets.synthetic.poses import PITCH, ROLL, YAW, equivalent_poses, mark_is_hidden, rotation
from ebreg.datasets.synthetic.rendering import Scene, render
from ebreg.datasets.synthetic.solid import solid

__all__ = [
    "PITCH",
    "ROLL",
    "YAW",
    "Scene",
    "cells",
    "equivalent_poses",
    "mark_is_hidden",
    "render",
    "rotation",
    "solid",
]
