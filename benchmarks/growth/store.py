"""The CSV file of the finished measurements."""

import csv
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.growth.case import Case, Times

KEY = [field.name for field in fields(Case)]
COLUMNS = [*KEY, *(field.name for field in fields(Times))]


class Store:
    """The finished measurements in ``runs.csv`` of a folder, which is made if it does not exist.

    Raises:
        ValueError: If the file has other columns.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "runs.csv"
        self._found: dict[tuple[str, ...], Times] = {}
        if not self.path.exists():
            return
        with self.path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != COLUMNS:
                raise ValueError(f"{self.path} has other columns than this benchmark; give another --out")
            self._found = {tuple(row[name] for name in KEY): _times(row) for row in reader}

    def __contains__(self, case: Case) -> bool:
        return _key(case) in self._found

    def __getitem__(self, case: Case) -> Times:
        return self._found[_key(case)]

    def add(self, case: Case, times: Times) -> None:
        """Append a finished measurement to the file."""
        is_new = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(COLUMNS)
            writer.writerow([*_key(case), *map(_text, asdict(times).values())])
        self._found[_key(case)] = times


def _key(case: Case) -> tuple[str, ...]:
    return tuple(map(_text, asdict(case).values()))


def _text(value: str | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _times(row: dict[str, str]) -> Times:
    corrected = int(row["corrected"]) if row["corrected"] else None
    return Times(
        float(row["fit"]), float(row["predict_interval"]), float(row["epochs"]), int(row["fits"]), corrected
    )
