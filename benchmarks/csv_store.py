"""CsvStore: the finished runs of a benchmark in a CSV file, so that it can be cut off and continued."""

import csv
from collections.abc import Hashable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar


class Run(Protocol):
    """A dataclass of texts and numbers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> Hashable:
        """What there is one run of."""


R = TypeVar("R", bound=Run)


class CsvStore(Generic[R]):
    """Runs of one kind in a file, one row each.

    Args:
        path: The file; its folder is made if it does not exist.
        kind: The dataclass of a run; its fields are the columns.
    """

    def __init__(self, path: Path, kind: type[R]):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.kind = path, kind
        self._columns = {field.name: field.type for field in fields(kind)}

    def read(self) -> dict[Hashable, R]:
        """All finished runs, by their keys.

        Raises:
            ValueError: If the file has other columns.
        """
        if not self.path.exists():
            return {}
        with self.path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != list(self._columns):
                raise ValueError(f"{self.path} has other columns than this benchmark; give another --out")
            runs = [self._run(row) for row in reader]
        return {run.key: run for run in runs}

    def add(self, run: R) -> None:
        """Append a finished run to the file."""
        is_new = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(self._columns)
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in asdict(run).values()])

    def _run(self, row: dict[str, str]) -> R:
        return self.kind(**{name: kind(row[name]) for name, kind in self._columns.items()})  # type: ignore[operator]
