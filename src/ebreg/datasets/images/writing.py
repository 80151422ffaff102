"""Write images and targets into an HDF5 file in a task's format, atomically."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ebreg.datasets.images.hdf5 import require_h5py
from ebreg.datasets.images.pixels import InMemory, Pixels
from ebreg.datasets.images.reading import check_targets
from ebreg.datasets.images.tasks import ImageTask
from ebreg.saving import atomic_files

_ROWS = 512  # written at once
_HEADERS = 2**16  # bytes, more than HDF5 needs


def write_hdf5(
    path: str | Path,
    images: np.ndarray | Tensor | Pixels,
    labels: Any,
    task: ImageTask,
    progress: bool = False,
) -> None:
    """Write a file that :func:`load` reads.

    The write is atomic: a call that fails or is interrupted leaves no file.

    Args:
        path: Must not exist yet.
        images: uint8 array or tensor (n, C, H, W), or a source of them.
        labels: Targets, shape (n,) or (n, D).
        task: A task with HDF5 files.
        progress: Whether to show a progress bar.
    """
    path = Path(path)
    h5py = require_h5py()
    if task.format != "h5":
        raise ValueError(f"the task {task.name!r} has no HDF5 files but {' and '.join(task.files)}")
    pixels = InMemory(images) if isinstance(images, np.ndarray | Tensor) else images
    y = check_targets("labels", np.asarray(labels), task)
    if (len(pixels), pixels.shape[1]) != (len(y), task.channels):
        raise ValueError(
            f"{task.image_key!r} must be {len(y)} images, one per target, of {task.channels} channel(s); "
            f"found shape {pixels.shape}"
        )
    _check_path(path)
    # HDF5 crashes on a full disk.
    atomic_files.require_room(path.parent, math.prod(pixels.shape) + y.nbytes + _HEADERS)
    try:
        with atomic_files.keeping(path) as partial, h5py.File(partial, "w") as file:
            # Neither compressed nor in chunks: single rows are read in any order.
            stored = file.create_dataset(task.image_key, shape=pixels.shape, dtype=np.uint8)
            file[task.label_key] = y.numpy()[:, 0]
            _copy(pixels, stored, progress)
    except FileExistsError as error:
        raise _exists_error(path) from error


def _copy(pixels: Pixels, stored: Any, progress: bool) -> None:
    from tqdm.auto import tqdm

    with tqdm(total=len(pixels), desc="images", unit="image", disable=not progress) as bar:
        for first in range(0, len(pixels), _ROWS):
            rows = np.arange(first, min(first + _ROWS, len(pixels)))
            stored[first : first + len(rows)] = pixels.take(rows)
            bar.update(len(rows))


def _exists_error(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists and is not overwritten; give another path")


def _check_path(path: Path) -> None:
    if path.exists():
        raise _exists_error(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a folder; create it, or give another path")
