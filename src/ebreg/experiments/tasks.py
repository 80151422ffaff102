"""The two data sets, and how well a model does on them: on the paper's grids, and by its own answers."""

import copy
import csv
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebreg import metrics
from ebreg._utils import checks
from ebreg.datasets import TASKS, ToyTask
from ebreg.models import EnergyModel, Model

# The authors drew the points of the first set without a seed; this is the file in which they keep them.
POINTS = "gustafsson_train.csv"
_AUTHORS_POINTS = "c73cbeefe2ec"  # its fingerprint
METRICS = {"gustafsson": "KL", "brando": "NLL"}

_ROWS = 256  # evaluated at once
_FLOOR = 1e-30  # which the authors add to the true probabilities


@dataclass(frozen=True)
class Measured:
    """How far a model is from the truth: KL divergence on the first set, NLL of the second's test points.

    Attributes:
        on_grid: As the paper does it, with the density normalised on its grid.
        own: By the library's predictive distribution, which knows no grid.
    """

    on_grid: float
    own: float


def load(name: str, folder: Path | None = None) -> ToyTask:
    """A data set; the first with the authors' own training points, if a folder with their file is given."""
    checks.one_of("a data set", name, TASKS)
    task = TASKS[name]()
    if folder is None or name != "gustafsson":
        return task
    x, y = _points_of(folder / POINTS)
    low, high = task.x_range
    if x.min() < low or x.max() > high:
        raise ValueError(
            f"{folder / POINTS} must have x from {low:g} to {high:g}, where the set is defined; got "
            f"{x.min().item():g} to {x.max().item():g}"
        )
    return replace(task, x_train=x, y_train=y)


def fingerprint(task: ToyTask) -> str:
    """Of its training points."""
    points = torch.cat([task.x_train, task.y_train], dim=1).numpy()
    return hashlib.sha256(points.tobytes()).hexdigest()[:12]


def has_authors_points(task: ToyTask) -> bool:
    """Whether the training points of the first set are those that the authors drew."""
    return fingerprint(task) == _AUTHORS_POINTS


def _points_of(path: Path) -> tuple[Tensor, Tensor]:
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    return _read_points(path, stamp)


@lru_cache(maxsize=4)  # hundreds of runs ask for the same file
def _read_points(path: Path, stamp: int) -> tuple[Tensor, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: it holds the training points as the authors drew them, with the columns "
            "x and y. Leave the folder out to draw points of the same law."
        )
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must be a table with the columns x and y, of numbers ({type(error).__name__}: {error})"
        ) from error
    points = checks.table("the points", torch.tensor(rows, dtype=torch.float64).reshape(-1, 2))
    checks.at_least(f"the number of points in {path}", len(points), 1)
    checks.finite("the points", points)
    return points[:, :1], points[:, 1:]


@torch.no_grad()
def measure(task: ToyTask, model: Model) -> Measured:
    """Judge a trained model."""
    exact = copy.deepcopy(model).to_float64().eval()
    if task.x_test is None or task.y_test is None:
        return _by_rows(_kl, task, exact, task.x_grid())
    return _by_rows(_nll, task, exact, task.x_test, task.y_test)


def _by_rows(
    question: Callable[..., tuple[Tensor, Tensor]], task: ToyTask, model: Any, *tables: Tensor
) -> Measured:
    parts = zip(*(table.split(_ROWS) for table in tables), strict=True)
    on_grid, own = zip(*(question(task, model, *part) for part in parts), strict=True)
    return Measured(torch.cat(on_grid).mean().item(), torch.cat(own).mean().item())


def _kl(task: ToyTask, model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = task.y_grid()
    log_p = task.log_density(x.T, y)
    on_grid = metrics.kl_on_grid(log_p, _log_f(model, x, y), floor=_FLOOR)
    log_model = model.predictive(x).log_prob(y[:, None].expand(-1, len(x), -1))
    log_ratio = torch.where(log_p == -torch.inf, 0.0, log_p - log_model)
    own = (log_p.exp() * log_ratio).sum(dim=0) * task.y_spacing
    return on_grid, own


def _nll(task: ToyTask, model: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    on_grid = metrics.nll_on_grid(_log_f_at(model, x, y), _log_f(model, x, task.y_grid()), task.y_spacing)
    return on_grid, -model.log_prob(x, y)


def _log_f(model: Any, x: Tensor, y: Tensor) -> Tensor:
    # Unnormalised, (G, B), at targets (G, 1) that all rows share.
    h, y = model.features(x), model.standardize(y)
    if isinstance(model, EnergyModel):
        return model.f_grid(h, y).double()
    return model.q(h).log_prob(y[:, None].expand(-1, len(x), -1)).double()


def _log_f_at(model: Any, x: Tensor, y: Tensor) -> Tensor:
    # The same at one target for each row, (B, 1) -> (B,).
    h, y = model.features(x), model.standardize(y)
    return (model.f(h, y) if isinstance(model, EnergyModel) else model.q(h).log_prob(y)).double()
