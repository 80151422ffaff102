"""HDF5Pixels: images in an HDF5 file, read from disk by batch."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ebreg.datasets.images.pixels import check_images

# Rows this close to each other are read together. h5py takes lists of rows too, but its time grows faster
# than linearly in their length.
_NEAR = 64
# Errors that h5py raises for damaged files; which one depends on the place of the damage.
_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)


class HDF5Pixels:
    """Images in an HDF5 file.

    The file is opened when images are read, once in every process: an open file does not survive a fork, and
    cannot be pickled.

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
                "download it again"
            ) from error
        # Rows in order, such as a whole set, are not copied once more.
        return taken if np.array_equal(rows, index) else taken[where]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def _images(self) -> Any:
        if self._opened is not None and self._opened[0] != os.getpid():
            # The file that a parent process opened is closed first: HDF5 would share its state.
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
    with open(path, "rb"):  # for the usual errors if there is no such file or no permission
        pass
    try:
        return h5py.File(path, "r")
    except _DAMAGE as error:
        raise ValueError(f"{path} is truncated or not an HDF5 file ({error}); download it again") from error


def read_array(path: Path, key: str) -> np.ndarray:
    """An array of an HDF5 file, read completely."""
    with open_file(path) as file:
        array = _find(file, path, key)
        try:
            return np.asarray(array[()])
        except _DAMAGE as error:
            raise OSError(
                f"{path}: {key!r} cannot be read ({error}); the file is damaged, download it again"
            ) from error


def _find(file: Any, path: Path, key: str) -> Any:
    try:
        found, keys = file.get(key), ", ".join(map(repr, file)) or "none"
    except _DAMAGE as error:
        raise ValueError(
            f"{path} must hold an array {key!r}, and is damaged ({error}); download it again"
        ) from error
    if not isinstance(found, require_h5py().Dataset):
        raise ValueError(f"{path} must hold an array {key!r}, found the keys {keys}; is it of another task?")
    if found.shape is None:
        raise ValueError(f"{path}: {key!r} must hold an array, and is empty; download the file again")
    return found


def require_h5py() -> ModuleType:
    """The module ``h5py``."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files need h5py: pip install ebreg[images]") from error
    return h5py
