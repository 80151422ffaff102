"""Records: facts about a finished run, in one JSON file with a version and a checksum."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ebreg.errors import EbregError
from ebreg.saving import atomic_files, files, json_files

FORMAT = files.Format("ebreg-record", "record", EbregError, "delete it to repeat its run")


def write(path: Path, facts: Mapping[str, Any]) -> bool:
    """Write a record; one that exists is left as it is.

    Args:
        path: The file; its folder is made.
        facts: What JSON can hold.

    Returns:
        Whether it was written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic_files.keeping(path) as partial:
            partial.write_bytes(_text(facts))
    except FileExistsError:
        return False
    return True


def replace(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a record in place of the one that exists."""
    with atomic_files.replacing(path) as partial:
        partial.write_bytes(_text(facts))


def read(path: Path) -> dict[str, Any]:
    """Read what :func:`write` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        EbregError: If it cannot be read, is damaged or edited, not a record, or of a later format.
    """
    try:
        text = json_files.read_bytes(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise EbregError(
            f"{path} cannot be read ({error.strerror}); change its permissions, or give another folder"
        ) from error
    envelope = files.unseal(FORMAT, path, text)
    files.verify(FORMAT, path, envelope, {})
    return envelope.facts


def _text(facts: Mapping[str, Any]) -> bytes:
    return json_files.encode(files.seal(FORMAT, facts, {}), indent=1)
