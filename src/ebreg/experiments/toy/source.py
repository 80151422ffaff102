"""Where the 1-D data sets come from: a generator, or the authors' file."""

import csv
import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.datasets import TASKS, ToyTask

# The authors drew the points of the first set without a seed, and published them in this file.
POINTS = "gustafsson_train.csv"
_AUTHORS_POINTS = "c73cbeefe2ec"  # the fingerprint of its points


@dataclass(frozen=True)
class ToySource:
    """One of the two 1-D data sets.

    Attributes:
        name: A name in ``ebreg.datasets.TASKS``.
        points: Folder with the authors' training points of the first set; None: points from the same
            distribution.
    """

    name: str
    points: Path | None = None

    def __post_init__(self) -> None:
        checks.one_of("a data set", self.name, TASKS)

    def load(self) -> ToyTask:
        """Read or draw the points, once in a process."""
        return _load(self)

    @property
    def fingerprint(self) -> str:
        """A short hash of the training points."""
        task = self.load()
        points = torch.cat([task.x_train, task.y_train], dim=1).numpy()
        return hashlib.sha256(points.tobytes()).hexdigest()[:12]

    @property
    def is_published(self) -> bool:
        """Whether the paper's values can be compared: the points are of the same distribution."""
        return True

    @property
    def description(self) -> str:
        """The training points, for a report."""
        if self.name != "gustafsson":
            return "the points of its authors"
        if self.fingerprint == _AUTHORS_POINTS:
            return f"the authors' points, `{POINTS}` of their repository"
        if self.points is None:
            return "points from the authors' distribution, who set no seed"
        return f"{len(self.load().x_train)} points of a file that is not the authors'"


@lru_cache(maxsize=4)
def _load(source: ToySource) -> ToyTask:
    task = TASKS[source.name]()
    if source.points is None or source.name != "gustafsson":
        return task
    x, y = _read_points(source.points / POINTS)
    low, high = task.x_range
    if x.min() < low or x.max() > high:
        raise ValueError(
            f"{source.points / POINTS} must have x from {low:g} to {high:g}, where the set is defined; got "
            f"{x.min().item():g} to {x.max().item():g}"
        )
    return replace(task, x_train=x, y_train=y)


def _read_points(path: Path) -> tuple[Tensor, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: it holds the authors' training points in the columns x and y. Leave the "
            "folder out to draw points from the same distribution."
        )
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must be a table of numbers with the columns x and y ({type(error).__name__}: {error})"
        ) from error
    checks.at_least(f"the number of points in {path}", len(rows), 1)
    points = torch.tensor(rows, dtype=torch.float64)
    checks.finite("the points", points)
    return points[:, :1], points[:, 1:]
