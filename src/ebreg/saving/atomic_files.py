"""Files that are there whole or not at all, whatever happens while they are written."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

# Of a file that a killed process has left: nobody writes that slowly, here or on another machine.
_SECONDS_UNTIL_LEFT = 600
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield another name to write to; what is written there replaces the file, if there is one."""
    with _partial(path) as partial:
        yield partial
        _sync(partial)
        os.replace(partial, path)


@contextmanager
def keeping(path: Path) -> Iterator[Path]:
    """The same, but a file that exists in the end is left alone.

    Raises:
        FileExistsError: If there is one.
    """
    with _partial(path) as partial:
        yield partial
        _sync(partial)
        _link(partial, path)


def require_room(folder: Path, n_bytes: int = 4096) -> None:
    """Make a folder, and fail now if there is no room for so much, rather than after long work.

    Raises:
        OSError: With a sentence.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _partial(folder / "room") as partial:
            _reserve(partial, n_bytes)
    except OSError as error:
        raise OSError(
            f"{folder} cannot be written to ({error.strerror}); make room there, or give another folder"
        ) from error


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    _remove_left(path)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _remove_left(path: Path) -> None:
    # What processes that were killed have left of the same file.
    for left in path.parent.glob(f".{escape(path.name)}.*.partial"):
        try:
            if time.time() - left.stat().st_mtime > _SECONDS_UNTIL_LEFT:
                left.unlink()
        except OSError:  # another process was faster, or may and this one may not
            continue


def _link(partial: Path, path: Path) -> None:
    try:
        os.link(partial, path)  # unlike a renaming it never replaces
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # On a file system without links.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(partial, path)


def _reserve(path: Path, n_bytes: int) -> None:
    with open(path, "wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            file.truncate(n_bytes)
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    with open(path, "rb") as written:
        os.fsync(written.fileno())
