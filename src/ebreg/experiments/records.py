"""Records: one small file for every finished run, written whole or not at all."""

import json
from pathlib import Path
from typing import Any

from ebreg.errors import EbregError
from ebreg.saving import atomic_files

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
        """Keep a record; one that is there already is left alone. Whether it was kept."""
        path = self._path(key)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with atomic_files.keeping(path) as partial:
                partial.write_text(json.dumps(record, indent=1), encoding="utf-8")
        except FileExistsError:
            return False
        return True

    def replace(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record in place of the one that is there."""
        with atomic_files.replacing(self._path(key)) as partial:
            partial.write_text(json.dumps(record, indent=1), encoding="utf-8")

    def keys(self) -> list[str]:
        """Names of all records, in order."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def read(self, key: str) -> dict[str, Any] | None:
        """A record, or None."""
        path = self._path(key)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EbregError(
                f"{path} cannot be read ({error.strerror}); see to it, or give another folder"
            ) from error
        except ValueError as error:
            raise EbregError(
                f"{path} is not a record ({error}); delete it, and its run is done again"
            ) from error
        if not isinstance(record, dict):
            raise EbregError(f"{path} is not a record; delete it, and its run is done again")
        return record

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
