"""An experiment: one training of a setting on a data set, its evaluation and its record."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ebreg._utils.random_state import seeded
from ebreg._version import __version__
from ebreg.corrections import in_turn
from ebreg.errors import EbregError, TrainingError
from ebreg.experiments import records
from ebreg.experiments.settings import Setting
from ebreg.methods import Method
from ebreg.models import Model
from ebreg.saving import checkpoints
from ebreg.training import Training, fit
from ebreg.training.config import TrainingConfig
from ebreg.training.correction import fit_correction

# What runs had before these were settings.
_LATER = {"patience_growth": 0.0, "n_members": 1, "dropout": []}


@dataclass(frozen=True)
class Experiment(ABC):
    """One training, its evaluation and its record. It can be pickled and run in another process.

    Attributes:
        setting: The row of the table.
        source: Where the data come from; its ``name`` is that of the data set.
        seed: Of the weights, the order of the data and the draws.
    """

    setting: Setting
    source: Any
    seed: int

    @property
    @abstractmethod
    def config(self) -> TrainingConfig:
        """Settings of the training loop."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that the result depends on, as JSON reads it back."""

    @abstractmethod
    def data(self) -> tuple[Any, Any]:
        """Training data and validation data (or None), as ``fit`` takes them."""

    @abstractmethod
    def build(self) -> Method:
        """Build the method, with weights from torch's random state."""

    @abstractmethod
    def evaluate(self, model: Model) -> dict[str, float]:
        """Metrics of a trained model: ``records.PAPER_METRIC``, the paper's, and others."""

    def prepare(self) -> None:
        """Load the data, so that loading is no part of the training time."""
        self.data()

    def check(self) -> None:
        """Raise what the training would raise, before anything is written."""
        _ = self.settings
        self.method()

    @property
    def key(self) -> str:
        """Its name among all runs of a table, and the stem of its files."""
        return f"{self.source.name}.{self.setting.name}.{self.seed:02d}"

    def method(self) -> Method:
        """A new method, with weights by the seed."""
        with seeded(self.seed):
            return self.build()

    def train(
        self,
        device: str = "cpu",
        checkpoint: Path | None = None,
        resume: bool = False,
        progress: bool = False,
        after_epoch: Callable[[Any, int], None] | None = None,
    ) -> tuple[Any, Training]:
        """Train a new model; see :func:`ebreg.training.fit`. ``after_epoch`` gets the model and the epoch.

        With validation data a correction is trained after its proposal, with a checkpoint of its own.
        """
        method = self.method().to(device)
        data, validation = self.data()
        first, correction = (method, None) if validation is None else in_turn(method)
        shared: dict[str, Any] = {"resume": resume, "progress": progress, "identity": self.settings}
        training = fit(
            first,
            data,
            validation,
            config=self.config,
            checkpoint=checkpoint,
            after_epoch=None if after_epoch is None else lambda epoch: after_epoch(method.model, epoch),
            **shared,
        )
        if correction is not None and not training.interrupted:
            path = None if checkpoint is None else correction_checkpoint(checkpoint)
            training = fit_correction(
                correction, data, validation, self.config, training, 1, checkpoint=path, **shared
            )
        return method.model, training

    def record_path(self, folder: Path) -> Path:
        """The record of the run in a folder."""
        return folder / f"{self.key}.json"

    def weights_path(self, folder: Path) -> Path:
        """The trained weights of the run in a folder."""
        return folder / f"{self.key}.safetensors"

    def read(self, folder: Path) -> dict[str, Any] | None:
        """The record of a finished run; None if there is none.

        Raises:
            EbregError: If it is damaged, or was made with other settings.
        """
        record = records.read(self.record_path(folder))
        if record is None:
            return None
        made_with = _LATER | record["settings"]
        for name, value in self.settings.items():
            if made_with.get(name) != value:
                raise EbregError(
                    f"the record {self.key} in {folder} was made with {name} = {made_with.get(name)!r}, and "
                    f"now it is {value!r}; give another folder, or the settings that it was made with"
                )
        return record

    def run(self, folder: Path) -> dict[str, Any]:
        """Train, evaluate and write the record; a run that has one is not repeated. Returns the record.

        Raises:
            TrainingError: If anything fails but the training itself; a failed training is a result.
        """
        record = self.read(folder)
        if record is not None:
            return record
        try:
            with one_thread():
                self.prepare()
                record, model = self._train_and_evaluate()
            if model is not None:  # before the record: a run that has one has weights too
                folder.mkdir(parents=True, exist_ok=True)
                checkpoints.write(
                    self.weights_path(folder), model.state_dict(), {"settings": record["settings"]}
                )
            records.write(self.record_path(folder), record)
        except Exception as error:
            raise TrainingError(
                f"the run {self.key} failed: {type(error).__name__}: {error}; finished runs are recorded in "
                f"{folder}, and the same command continues"
            ) from error
        return record

    def re_evaluate(self, folder: Path) -> dict[str, Any]:
        """Evaluate the trained weights of a finished run again, and update its record. Returns the record.

        A run whose training failed has no weights, and keeps its record.

        Raises:
            EbregError: If there is no record, or no weights of the same settings.
        """
        record, path = self.read(folder), self.weights_path(folder)
        if record is None:
            raise EbregError(f"{folder} holds no record of the run {self.key}; run it first")
        if "failure" in record and not path.exists():
            return record
        with one_thread():
            self.prepare()
            evaluated = self._evaluate(self._load(path, record["settings"]))
        record = {name: record[name] for name in records.TRAINING if name in record} | evaluated
        records.write(self.record_path(folder), record, overwrite=True)
        return record

    def _load(self, path: Path, settings: dict[str, Any]) -> Model:
        if not path.exists():
            raise EbregError(
                f"{path} does not exist, so it cannot be evaluated; delete its record to train it"
            )
        tensors, facts = checkpoints.read(path)
        if facts.get("settings") != settings:
            raise EbregError(f"{path} is of other settings than the record beside it; delete both")
        model = self.method().model
        checkpoints.check_fits(model, tensors, path)
        model.load_state_dict(tensors)
        return model

    def _train_and_evaluate(self) -> tuple[dict[str, Any], Model | None]:
        # The record, and the model; None where the training failed.
        versions = {"ebreg": __version__, "torch": str(torch.__version__)}
        record: dict[str, Any] = {"settings": self.settings, "versions": versions}
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            model, training = self.train()
        except EbregError as error:
            return record | {"failure": str(error)}, None
        if training.interrupted:
            raise KeyboardInterrupt
        record["seconds"] = round(time.perf_counter() - wall, 2)
        record["cpu_seconds"] = round(time.process_time() - cpu, 2)
        return record | self._evaluate(model), model

    def _evaluate(self, model: Model) -> dict[str, Any]:
        # The metrics as a record holds them.
        try:
            metrics = records.finite_or_none(self.evaluate(model))
        except EbregError as error:  # weights that are not finite
            return {"failure": str(error)}
        if metrics[records.PAPER_METRIC] is None:
            return {"failure": "the paper's metric is not finite", **metrics}
        return dict(metrics)


def correction_checkpoint(checkpoint: Path) -> Path:
    """The checkpoint of a correction, beside that of its proposal."""
    return checkpoint.with_name(f"correction-{checkpoint.name}")


class Result(NamedTuple):
    """A finished run."""

    experiment: Experiment
    record: dict[str, Any]


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: parallel runs compete for cores, and small networks gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
