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
from torch import Tensor

from ebreg import checkpoints
from ebreg._version import __version__
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
        record = self.recorded(run)
        if record is not None:
            return record
        try:
            record, tensors = self._do(run)
        except Exception as error:
            raise EbregError(f"the run {run.key} cannot be done: {type(error).__name__}: {error}") from error
        # Of two commands in one folder the first to finish a run keeps both files.
        if records.write(run.key, record) and tensors:
            checkpoints.write(self.weights(run), tensors, {"settings": record["settings"]})
        return record

    def recorded(self, run: Run) -> dict[str, Any] | None:
        """The record of a run, if there is one.

        Raises:
            EbregError: If it is damaged, or was made with other settings than the run has now.
        """
        record = Records(self.records).read(run.key)
        if record is None:
            return None
        there = record.get("settings")
        if not isinstance(there, dict) or not _is_whole(record):
            raise EbregError(
                f"the record {run.key} in {self.records} is damaged; delete it to do its run again"
            )
        # A setting that a record does not name came later, and what it did then is its default.
        there = asdict(TrainingConfig()) | there
        for name, value in self.settings(run).items():
            if there.get(name) != value:
                raise EbregError(
                    f"the record {run.key} in {self.records} was made with {name} = {there.get(name)!r}, "
                    f"and now it is {value!r}; give another folder, or delete that record to do its run again"
                )
        return record

    def settings(self, run: Run) -> dict[str, Any]:
        """All that the outcome of a run depends on, as JSON holds it."""
        recipe = RECIPES[run.cell.recipe]
        config = self._config(run)
        cell = {name: value for name, value in asdict(run.cell).items() if name not in _NOT_OF_A_RUN}
        return {
            "dataset": run.dataset,
            "points": _fingerprint(load(run.dataset, self.points)),
            **{"cell" if name == "name" else name: value for name, value in cell.items()},
            "sigmas": _listed(recipe.sigmas(run.cell)),
            "units": recipe.units,
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

    def _do(self, run: Run) -> tuple[dict[str, Any], dict[str, Tensor]]:
        # The record, and the weights, of which a training that failed has none.
        versions = {"ebreg": __version__, "torch": str(torch.__version__)}
        record: dict[str, Any] = {"settings": self.settings(run), "versions": versions}
        task = load(run.dataset, self.points)
        with one_thread():
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                model = train(run.cell, task, self._config(run))
            except EbregError as error:
                return record | {"failure": str(error)}, {}
            record["seconds"] = round(time.perf_counter() - wall, 2)
            record["cpu_seconds"] = round(time.process_time() - cpu, 2)
            try:
                measured = asdict(measure(task, model))
            except (EbregError, ValueError) as error:  # its weights are not finite
                return record | {"failure": str(error)}, model.state_dict()
        return record | {name: _plain(value) for name, value in measured.items()}, model.state_dict()


# Facts of a table rather than of a run.
_NOT_OF_A_RUN = ("group", "n_runs", "published", "sigma")


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

    Raises:
        KeyboardInterrupt: After Ctrl-C: half a training is none.
    """
    with seeded(config.seed):
        method = RECIPES[cell.recipe].method(cell, task)
    after_epoch = None if look is None else lambda epoch: look(method.model, epoch)
    data = (task.x_train, task.y_train)
    if fit(method, data, config=config, progress=progress, after_epoch=after_epoch).interrupted:
        raise KeyboardInterrupt
    return method.model


def _fingerprint(task: ToyTask) -> str:
    points = torch.cat([task.x_train, task.y_train], dim=1).numpy()
    return hashlib.sha256(points.tobytes()).hexdigest()[:12]


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON knows neither NaN nor infinity


def _listed(values: tuple[float, ...] | None) -> list[float] | None:
    return None if values is None else list(values)  # as JSON gives it back


def _is_whole(record: dict[str, Any]) -> bool:
    if "failure" in record:
        return True
    numbers = [record.get(name) for name in ("on_grid", "own")]
    times = [record.get(name) for name in ("seconds", "cpu_seconds")]
    return all(isinstance(v, float | int | None) for v in numbers) and all(
        isinstance(v, float | int) for v in times
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks this small gain nothing from more threads, and runs side by side would fight over them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
