"""Data sets, one file for each kind."""

from ebreg.datasets.toy import TASKS, ToyTask, brando, gustafsson

__all__ = ["TASKS", "ToyTask", "brando", "gustafsson"]
