"""Records: one JSON file for each finished run, written atomically."""

import math
from pathlib import Path
from typing import Any

from ebreg.errors import EbregError
from ebreg.saving import records

# The first metric of every table; a record without it is one of a failed run.
PAPER_METRIC = "on_grid"
# What a record holds beside metrics; these stay when a model is evaluated again.
TRAINING = ("settings", "versions", "seconds", "cpu_seconds")


def write(path: Path, record: dict[str, Any], overwrite: bool = False) -> None:
    """Write a record; one that exists stays, unless it shall be overwritten."""
    if overwrite:
        records.replace(path, record)
    else:
        records.write(path, record)


def read(path: Path) -> dict[str, Any] | None:
    """Read and validate a record; None if there is none.

    Raises:
        EbregError: If it cannot be read, or is damaged.
    """
    try:
        record = records.read(path)
    except FileNotFoundError:
        return None
    if not _is_record(record):
        raise EbregError(f"{path} is damaged, or not a record; delete it to repeat its run")
    return record


def finite_or_none(metrics: dict[str, float]) -> dict[str, float | None]:
    """Metrics as JSON can hold them: None for NaN and infinity."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def _is_record(record: dict[str, Any]) -> bool:
    if not all(isinstance(record.get(name), dict) for name in ("settings", "versions")):
        return False
    if "failure" in record:
        return isinstance(record["failure"], str) and record.get(PAPER_METRIC) is None
    numbers = {name: value for name, value in record.items() if name not in ("settings", "versions")}
    required = (numbers.get(name) for name in (PAPER_METRIC, "seconds", "cpu_seconds"))
    return all(map(_is_number, required)) and all(v is None or _is_number(v) for v in numbers.values())


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)
