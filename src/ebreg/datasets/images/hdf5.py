"""Images in HDF5 files, read from disk by batch."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ebreg.datasets.images.pixels import check_images

# Rows this near to each other are read in one go. h5py takes lists of rows too, but the time for one grows
# faster than the list.
_NEAR = 64
# What h5py raises of a damaged file, which depends on the place of the damage.
_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)


class HDF5Pixels:
    """Images in an HDF5 file.

    The file is opened when images are asked for, once in every process: an open file does not survive a fork,
    and cannot be pickled.

    Args:
        path: The file.
        key: Name of the images in it, uint8, shape (n, C, H, W).
    """

    def __init__(self, path: str | Path, key: str):
        self.path, self.key = Path(path), key
        self._opened: tuple[int, Any] | None = None
        self.shape = check_images(f"{path}: {key!r}", self._images())

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, index: np.ndarray) -> np.ndarray:
        """New uint8 array (B, C, H, W) of the images at an index (B,), in any order, repeats allowed."""
        rows, where = np.unique(np.asarray(index, dtype=np.int64), return_inverse=True)
        taken = np.empty((len(rows), *self.shape[1:]), dtype=np.uint8)
        images = self._images()
        borders = np.flatnonzero(np.diff(rows // _NEAR)) + 1
        try:
            for part in np.split(np.arange(len(rows)), borders) if len(rows) else []:
                first, last = rows[part[0]], rows[part[-1]]
                taken[part] = images[first : last + 1][rows[part] - first]
        except _DAMAGE as error:
            raise OSError(
                f"{self.path}: images {first} to {last} cannot be read ({error}); the file is damaged, "
                "get it again"
            ) from error
        # Rows in order, such as a whole set to be held in memory, are not copied once more.
        return taken if np.array_equal(rows, index) else taken[where]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def _images(self) -> Any:
        if self._opened is not None and self._opened[0] != os.getpid():
            # What a parent opened is closed first: HDF5 would share it with what is opened now.
            self._opened[1].close()
            self._opened = None
        if self._opened is None:
            self._opened = (os.getpid(), open_file(self.path))
        return _find(self._opened[1], self.path, self.key)


def open_file(path: Path) -> Any:
    """An HDF5 file, open for reading.

    Raises:
        FileNotFoundError: If it is not there.
        ValueError: If it is truncated, or not an HDF5 file.
    """
    h5py = require_h5py()
    with open(path, "rb"):  # the system's own words where there is no such file, or no right to read it
        pass
    try:
        return h5py.File(path, "r")
    except _DAMAGE as error:
        raise ValueError(
            f"{path} must be an HDF5 file, and is truncated or none at all ({error}); get it again"
        ) from error


def read_array(path: Path, key: str) -> np.ndarray:
    """A whole array of an HDF5 file."""
    with open_file(path) as file:
        array = _find(file, path, key)
        try:
            return np.asarray(array[()])
        except _DAMAGE as error:
            raise OSError(
                f"{path}: {key!r} cannot be read ({error}); the file is damaged, get it again"
            ) from error


def _find(file: Any, path: Path, key: str) -> Any:
    try:
        found, keys = file.get(key), ", ".join(map(repr, file)) or "none"
    except _DAMAGE as error:
        raise ValueError(
            f"{path} must hold an array {key!r}, and is damaged ({error}); get it again"
        ) from error
    if not isinstance(found, require_h5py().Dataset):
        raise ValueError(f"{path} must hold an array {key!r}, found the keys {keys}; is it of another task?")
    if found.shape is None:
        raise ValueError(f"{path}: {key!r} must hold an array, and is empty; get the file again")
    return found


def require_h5py() -> ModuleType:
    """``h5py``, imported now."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files need h5py: pip install ebreg[images]") from error
    return h5py
