"""Atomic writes: after a crash at any moment a file is the old one or the new one, and complete."""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# A partial file that was not changed for so long belongs to a process that was killed.
_SECONDS_UNTIL_STALE = 600
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield another name to write to; the file written there replaces the one at the path, if any."""
    with _partial(path) as partial:
        yield partial
        _sync(partial)
        os.replace(partial, path)
        _sync_folder(path.parent)


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
        _sync_folder(path.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write to a folder, where the system has such locks; the others wait.

    The lock ends with the process, also if it is killed.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_partial(path: Path, names: Callable[[str], object]) -> bool:
    """Whether it is a partial file, left by a killed process or being written, of a file with such a name."""
    found = re.fullmatch(r"\.(.+)\.\d+\.partial", path.name)
    return found is not None and bool(names(found[1]))


def require_room(folder: Path, n_bytes: int = 4096) -> None:
    """Make a folder, and fail now if it has no room for so many bytes, rather than after a long training.

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
    _remove_stale(path)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    # Partial files of the same file that killed processes have left.
    for stale in path.parent.glob(f".{escape(path.name)}.*.partial"):
        try:
            if time.time() - stale.stat().st_mtime > _SECONDS_UNTIL_STALE:
                stale.unlink()
        except OSError:  # another process removed it, or it belongs to another user
            continue


def _link(partial: Path, path: Path) -> None:
    try:
        os.link(partial, path)  # unlike os.replace it never replaces
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


def _sync_folder(folder: Path) -> None:
    # The new name of a file is on the disk only when its folder is; not every system can do this.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
