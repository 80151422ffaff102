"""A run from beginning to end: train a cell on a data set with a seed, judge it, and say so in a record."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ebreg import checkpoints
from ebreg.config import TrainingConfig
from ebreg.datasets import ToyTask
from ebreg.errors import EbregError
from ebreg.randomness import seeded
from ebreg.reproduce.cells import Cell, Run
from ebreg.reproduce.recipes import RECIPES
from ebreg.reproduce.records import Records
from ebreg.reproduce.tasks import load, measure
from ebreg.training import fit


@dataclass(frozen=True)
class Job:
    """Does runs and keeps their records; it travels to other processes and machines.

    Attributes:
        records: Folder of the records.
        points: Folder with the authors' points of the first set; None: points of the same law.
        epochs: In place of a recipe's own, for a quick look.
    """

    records: Path
    points: Path | None = None
    epochs: int | None = None

    def __call__(self, run: Run) -> dict[str, Any]:
        """Do a run, or find its record; the record is written here and returned."""
        records = Records(self.records)
        record = records.read(run.key)
        if record is None:
            record = self._do(run)
            records.write(run.key, record)
        return record

    def check(self, run: Run, record: dict[str, Any]) -> None:
        """Require that a record was made with the settings that the run has now.

        Raises:
            EbregError: Naming the first difference.
        """
        here, there = self.settings(run), record.get("settings", {})
        for name, value in here.items():
            if there.get(name) != value:
                raise EbregError(
                    f"the record {run.key} in {self.records} was made with {name} = {there.get(name)!r}, "
                    f"and now it is {value!r}; give another folder, or delete that record to do its run again"
                )

    def settings(self, run: Run) -> dict[str, Any]:
        """All that the outcome of a run depends on, as JSON holds it."""
        recipe = RECIPES[run.cell.recipe]
        config = self._config(run)
        cell = {name: value for name, value in asdict(run.cell).items() if name not in _NOT_OF_A_RUN}
        return {
            "dataset": run.dataset,
            "points": _fingerprint(load(run.dataset, self.points)),
            **{"cell" if name == "name" else name: value for name, value in cell.items()},
            "network": recipe.network,
            "network_settings": dict(recipe.network_settings),
            "n_draws": recipe.n_draws,
            "draws": recipe.draws,
            **asdict(config),
        }

    def weights(self, run: Run) -> Path:
        """Where the trained networks of a run are: they can be judged anew without training."""
        return self.records / f"{run.key}.safetensors"

    def _config(self, run: Run) -> TrainingConfig:
        config = replace(RECIPES[run.cell.recipe].configs[run.dataset], seed=run.seed)
        return config if self.epochs is None else replace(config, epochs=self.epochs)

    def _do(self, run: Run) -> dict[str, Any]:
        record: dict[str, Any] = {"settings": self.settings(run)}
        task = load(run.dataset, self.points)
        with _one_thread():
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                model = train(run.cell, task, self._config(run))
                record["seconds"] = round(time.perf_counter() - wall, 2)
                record["cpu_seconds"] = round(time.process_time() - cpu, 2)
                checkpoints.write(self.weights(run), model.state_dict(), {"settings": record["settings"]})
                record |= {name: _plain(value) for name, value in asdict(measure(task, model)).items()}
            except EbregError as error:
                record["failure"] = str(error)
        return record


# Facts of a table rather than of a run.
_NOT_OF_A_RUN = ("group", "n_runs", "published")


def train(
    cell: Cell,
    task: ToyTask,
    config: TrainingConfig,
    look: Callable[[Any, int], None] | None = None,
    progress: bool = False,
) -> Any:
    """Train a cell on a data set; returns the model.

    Args:
        cell: The setting.
        task: The data set.
        config: Of the training; its seed is that of the weights too.
        look: Called after each epoch with the model and the number of epochs finished.
        progress: Whether to show a progress bar.
    """
    with seeded(config.seed):
        method = RECIPES[cell.recipe].method(cell, task)
    after_epoch = None if look is None else lambda epoch: look(method.model, epoch)
    data = (task.x_train, task.y_train)
    fit(method, data, config=config, progress=progress, after_epoch=after_epoch)
    return method.model


def _fingerprint(task: ToyTask) -> str:
    points = torch.cat([task.x_train, task.y_train], dim=1).numpy()
    return hashlib.sha256(points.tobytes()).hexdigest()[:12]


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON knows neither NaN nor infinity


@contextmanager
def _one_thread() -> Iterator[None]:
    # Networks this small gain nothing from more, and runs side by side would fight over them.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
