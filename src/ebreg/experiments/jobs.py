"""Jobs: a run from beginning to end, and its record."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ebreg._version import __version__
from ebreg.errors import EbregError
from ebreg.experiments.cells import PAPER_MEASURE, Run
from ebreg.experiments.records import Records
from ebreg.models import Model
from ebreg.saving import checkpoints
from ebreg.training.config import TrainingConfig

# What a record holds beside its measures.
_NOT_MEASURED = ("settings", "versions", "seconds", "cpu_seconds")


@dataclass(frozen=True)
class Job(ABC):
    """Does runs and keeps their records; it travels to other processes and machines.

    Attributes:
        records: Folder of the records.
    """

    records: Path

    @abstractmethod
    def settings(self, run: Run) -> dict[str, Any]:
        """All that the outcome of a run depends on, as JSON holds it."""

    def check(self, run: Run) -> None:
        """Fail where the run would, before anything is written."""
        self.settings(run)
        self.untrained(run)

    def knows(self, run: Run) -> bool:
        """Whether it has what the run needs."""
        return True

    @abstractmethod
    def prepare(self, run: Run) -> None:
        """Do what several runs share, and what is not part of the time of a training."""

    @abstractmethod
    def train(self, run: Run) -> Model:
        """Train; what cannot be trained raises an EbregError."""

    @abstractmethod
    def untrained(self, run: Run) -> Model:
        """The model of a run before its training."""

    @abstractmethod
    def measure(self, run: Run, model: Model) -> dict[str, float]:
        """Judge a trained model: by ``PAPER_MEASURE``, the paper's measure, and by others."""

    def __call__(self, run: Run) -> dict[str, Any]:
        """Do a run, or find its record; the record is written here and returned."""
        record = self.recorded(run)
        if record is not None:
            return record
        try:
            with one_thread():
                self.prepare(run)
                record, model = self._do(run)
        except Exception as error:
            raise EbregError(f"the run {run.key} cannot be done: {type(error).__name__}: {error}") from error
        try:
            self._keep(run, record, model)
        except OSError as error:
            raise EbregError(
                f"the run {run.key} is done and cannot be recorded in {self.records} ({error.strerror}); "
                "make room there, or give another folder"
            ) from error
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
                    f"and now it is {value!r}; give another folder, or the settings that it was made with"
                )
        return record

    def weights(self, run: Run) -> Path:
        """Where the trained networks of a run are."""
        return self.records / f"{run.key}.safetensors"

    def judge_again(self, run: Run) -> None:
        """Measure the networks that a run has left, and put the numbers into its record; times stay.

        A run whose training failed has left none, and keeps its record.

        Raises:
            EbregError: If the networks are not there, or not those of the record.
        """
        record = self.recorded(run)
        if record is None or ("failure" in record and not self.weights(run).exists()):
            return
        with one_thread():
            self.prepare(run)
            model = self._trained(run, record)
            measured = self._measured(run, model)
        kept = {name: record[name] for name in _NOT_MEASURED if name in record}
        Records(self.records).replace(run.key, kept | measured)

    def _trained(self, run: Run, record: dict[str, Any]) -> Model:
        path, model = self.weights(run), self.untrained(run)
        if not path.exists():
            raise EbregError(
                f"{path} is not there, so the run cannot be judged again; delete its record to do it again"
            )
        tensors, facts = checkpoints.read(path)
        checkpoints.check_fits(model, tensors, path)
        if facts.get("settings") != record["settings"]:
            raise EbregError(f"{path} is of other settings than the record beside it; delete both")
        model.load_state_dict(tensors)
        return model

    def _keep(self, run: Run, record: dict[str, Any], model: Model | None) -> None:
        # The record last: what has one has its networks too. Two commands in one folder write the same.
        self.records.mkdir(parents=True, exist_ok=True)
        if model is not None:
            checkpoints.write(self.weights(run), model.state_dict(), {"settings": record["settings"]})
        Records(self.records).write(run.key, record)

    def _do(self, run: Run) -> tuple[dict[str, Any], Model | None]:
        # The record, and the model, of which a training that failed has none.
        versions = {"ebreg": __version__, "torch": str(torch.__version__)}
        record: dict[str, Any] = {"settings": self.settings(run), "versions": versions}
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            model = self.train(run)
        except EbregError as error:
            return record | {"failure": str(error)}, None
        record["seconds"] = round(time.perf_counter() - wall, 2)
        record["cpu_seconds"] = round(time.process_time() - cpu, 2)
        return record | self._measured(run, model), model

    def _measured(self, run: Run, model: Model) -> dict[str, Any]:
        # The part of a record that says how good a model is.
        try:
            measured = self.measure(run, model)
        except EbregError as error:  # its weights are not finite
            return {"failure": str(error)}
        numbers = {name: _plain(value) for name, value in measured.items()}
        if numbers[PAPER_MEASURE] is None:
            return {"failure": "the paper's measure gives no finite number", **numbers}
        return numbers


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON knows neither NaN nor infinity


def _is_whole(record: dict[str, Any]) -> bool:
    if not isinstance(record.get("versions", {}), dict):
        return False
    if "failure" in record:
        return isinstance(record["failure"], str) and record.get(PAPER_MEASURE) is None
    known = (record.get(name) for name in (PAPER_MEASURE, "seconds", "cpu_seconds"))
    rest = (value for name, value in record.items() if name not in ("settings", "versions"))
    return all(map(_is_number, known)) and all(value is None or _is_number(value) for value in rest)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs side by side would fight over threads, and small networks gain nothing from more than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
