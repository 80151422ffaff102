"""Runs: a method on a split of a table with a seed, and the CSV file that holds the finished ones.

Written with the standard library alone, so that an older version of ebreg can be measured.
"""

import contextlib
import csv
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.tabular import registry
from benchmarks.tabular.predicted import Method
from benchmarks.tabular.scores import Answers, Scores
from benchmarks.tabular.tables import Table

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@dataclass(frozen=True)
class Key:
    """What a run is known by."""

    table: str
    split: int
    method: str
    seed: int


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        key: What it is known by.
        n_train: Number of training rows.
        n_test: Number of test rows.
        scores: Of the test rows.
        fit_seconds: CPU seconds of fit, with the choice of iterations.
        predict_seconds: CPU seconds of the mean, the log density and 219 quantiles of all test rows.
        versions: Packages.
        settings: Of the method.
    """

    key: Key
    n_train: int
    n_test: int
    scores: Scores
    fit_seconds: float
    predict_seconds: float
    versions: str
    settings: str

    def as_row(self) -> dict[str, str]:
        """A row of the CSV file."""
        row = {**asdict(self.key), **asdict(self)} | asdict(self.scores)
        return {name: _text(row[name]) for name in COLUMNS}

    @classmethod
    def from_row(cls, row: dict[str, str]) -> "Run":
        """The inverse of as_row."""
        scores = Scores(**{name: float(row[name]) for name in _SCORES})
        key = Key(row["table"], int(row["split"]), row["method"], int(row["seed"]))
        seconds = float(row["fit_seconds"]), float(row["predict_seconds"])
        sizes = int(row["n_train"]), int(row["n_test"])
        return cls(key, *sizes, scores, *seconds, row["versions"], row["settings"])


_SCORES = [each.name for each in fields(Scores)]
_OTHERS = [each.name for each in fields(Run) if each.name not in ("key", "scores")]
COLUMNS = [*(each.name for each in fields(Key)), *_OTHERS[:2], *_SCORES, *_OTHERS[2:]]


def _text(value: Any) -> str:
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def measure(table: Table, split: int, method: Method, seed: int) -> Run:
    """Fit a method and score it on the test rows."""
    train, test = table.split(split)
    begin = time.process_time()
    predict = method.fit(train.X, train.y, seed)
    fitted = time.process_time()
    answers = Answers.of(predict(test.X), test.y)
    end = time.process_time()
    return Run(
        Key(table.name, split, method.name, seed),
        len(train.y),
        len(test.y),
        Scores.of(answers, test.y),
        fitted - begin,
        end - fitted,
        registry.versions(method),
        registry.settings(method),
    )


class Store:
    """The finished runs in ``runs.csv`` of a folder; several processes may add to it.

    Args:
        folder: It is made if it does not exist.
    """

    def __init__(self, folder: Path):
        self.path = folder / "runs.csv"
        folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> dict[Key, Run]:
        """All finished runs.

        Raises:
            ValueError: If the file is not one of these.
        """
        if not self.path.exists():
            return {}
        with open(self.path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != COLUMNS:
                raise ValueError(f"{self.path} has other columns than this benchmark; give another --out")
            runs = [Run.from_row(row) for row in reader]
        return {run.key: run for run in runs}

    def add(self, run: Run) -> None:
        """Add a finished run; after a crash at any moment the file is the old one or the new one."""
        with self._locked():
            runs = {**self.read(), run.key: run}
            write_rows(self.path, COLUMNS, (each.as_row() for each in runs.values()))

    def check_settings(self, method: Method) -> None:
        """Refuse to mix runs of one method with different settings.

        Raises:
            ValueError: If a finished run of the method has other settings.
        """
        settings = registry.settings(method)
        for run in self.read().values():
            if run.key.method == method.name and run.settings != settings:
                raise ValueError(
                    f"{self.path} has runs of {method.name} with other settings ({run.settings}) than now "
                    f"({settings}); remove those rows, or give another --out"
                )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if fcntl is None:
            yield
            return
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def write_rows(path: Path, columns: list[str], rows: Iterable[dict[str, str]]) -> None:
    """Write a CSV file and put it in the place of the old one."""
    with _replacing(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_text(path: Path, text: str) -> None:
    """Write a text file and put it in the place of the old one."""
    with _replacing(path) as file:
        file.write(text)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", newline="", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)  # mkstemp makes files that others cannot read
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
