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
        path: The file; it and its folder are made with the first run.
        kind: The dataclass of a run; its fields are the columns.
    """

    def __init__(self, path: Path, kind: type[R]):
        self.path, self.kind = path, kind
        self._columns = {field.name: field.type for field in fields(kind)}

    def read(self) -> dict[Hashable, R]:
        """All finished runs, by their keys.

        Raises:
            ValueError: If the file has other columns.
        """
        lines = self._lines()
        if not lines:
            return {}
        reader = csv.DictReader(lines)
        if reader.fieldnames != list(self._columns):
            raise ValueError(f"{self.path} has other columns than this benchmark; give another --out")
        runs = [self._run(row) for row in reader]
        return {run.key: run for run in runs}

    def add(self, run: R) -> None:
        """Append a finished run to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._lines()
        with self.path.open("w", newline="", encoding="utf-8") as file:
            file.writelines(lines)
            writer = csv.writer(file, lineterminator="\n")
            if not lines:
                writer.writerow(self._columns)
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in asdict(run).values()])

    def _lines(self) -> list[str]:
        # But for a last one that was cut off.
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [line for line in lines if line.endswith("\n")]

    def _run(self, row: dict[str, str]) -> R:
        return self.kind(**{name: kind(row[name]) for name, kind in self._columns.items()})  # type: ignore[operator]
