"""Data sets: 1-D toy tasks, the paper's image tasks, and synthetic images."""

from ebreg.datasets.toy import TASKS, ToyTask, brando, gustafsson

__all__ = ["TASKS", "ToyTask", "brando", "gustafsson"]
