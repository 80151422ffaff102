"""JSON with limits on its size and its depth."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_BYTES = 2**24
MAX_DEPTH = 32


def read_bytes(path: Path) -> bytes:
    """The text of a file, or as much of it as shows :func:`decode` that it is too long."""
    with open(path, "rb") as file:
        return file.read(MAX_BYTES + 1)


def encode(value: Any, indent: int | None = None) -> bytes:
    """JSON text of a value, which :func:`decode` accepts.

    Raises:
        ValueError: If the value exceeds a limit, or is not what JSON can hold.
    """
    try:
        text = json.dumps(value, indent=indent).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"it cannot be written as JSON ({error})") from error
    _check_size(text)
    _check_depth(value)
    return text


def canonical(value: Any) -> bytes:
    """The same text for the same value, however its file was formatted; this is what a checksum covers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def decode(text: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: If the text is not JSON, or exceeds a limit.
    """
    _check_size(text)
    try:
        value = json.loads(text.decode())
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from None
    _check_depth(value)
    return value


def _check_size(text: bytes) -> None:
    if len(text) > MAX_BYTES:
        raise ValueError(f"its JSON has more than {MAX_BYTES:,} bytes")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [inner for outer in level for inner in _items(outer)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []
