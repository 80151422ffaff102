"""Records: one small file for every finished run, written whole or not at all."""

from pathlib import Path
from typing import Any

from ebreg.saving import atomic_files, records

_ROOM = 4096  # bytes that a record may take


class Records:
    """The records of runs in a folder, which several processes may write to.

    A record is written under another name and then given its own, so whoever reads sees all of it or nothing,
    and a process that is killed loses the run it was at.

    Args:
        folder: Made with the first record.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder, and fail now rather than with the first record."""
        atomic_files.require_room(self.folder, _ROOM)

    def write(self, key: str, record: dict[str, Any]) -> bool:
        """Keep a record; one that exists is left as it is. Whether it was kept."""
        return records.write(self._path(key), record)

    def replace(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record in place of the one that is there."""
        records.replace(self._path(key), record)

    def keys(self) -> list[str]:
        """Names of all records, in order."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def read(self, key: str) -> dict[str, Any] | None:
        """A record, or None."""
        try:
            return records.read(self._path(key))
        except FileNotFoundError:
            return None

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
