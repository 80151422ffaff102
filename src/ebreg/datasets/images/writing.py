"""Images and targets into an HDF5 file of a task's format, whole or not at all."""

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

_ROWS = 512  # at once
_HEADERS = 2**16  # bytes, and more than HDF5 needs


def write_hdf5(
    path: str | Path,
    images: np.ndarray | Tensor | Pixels,
    labels: Any,
    task: ImageTask,
    progress: bool = False,
) -> None:
    """Write a file that :func:`load` reads.

    It is written under another name and then given its own, so nobody sees half of it, and a call that fails
    or is interrupted leaves nothing behind.

    Args:
        path: Must not exist yet.
        images: uint8 array or tensor (n, C, H, W), or a source of them.
        labels: Targets, shape (n,) or (n, D).
        task: Whose format; one with HDF5 files.
        progress: Whether to show a progress bar.
    """
    path = Path(path)
    h5py = require_h5py()
    if task.format != "h5":
        raise ValueError(f"the task {task.name!r} has no HDF5 files but {' and '.join(task.files)}")
    pixels = InMemory(images) if isinstance(images, np.ndarray | Tensor) else images
    y = check_targets("what is to be written", np.asarray(labels), task)
    if (len(pixels), pixels.shape[1]) != (len(y), task.channels):
        raise ValueError(
            f"{task.image_key!r} must be {len(y)} images, one a target, of {task.channels} channel(s); "
            f"found shape {pixels.shape}"
        )
    _refuse(path)
    # HDF5 does not live through a disk that is full.
    atomic_files.require_room(path.parent, math.prod(pixels.shape) + y.nbytes + _HEADERS)
    try:
        with atomic_files.keeping(path) as partial, h5py.File(partial, "w") as file:
            # Neither compressed nor in chunks: single rows are read from it, and in any order.
            stored = file.create_dataset(task.image_key, shape=pixels.shape, dtype=np.uint8)
            file[task.label_key] = y.numpy()[:, 0]
            _copy(pixels, stored, progress)
    except FileExistsError as error:
        raise _in_the_way(path) from error


def _copy(pixels: Pixels, stored: Any, progress: bool) -> None:
    from tqdm.auto import tqdm

    with tqdm(total=len(pixels), desc="images", unit="image", disable=not progress) as bar:
        for first in range(0, len(pixels), _ROWS):
            rows = np.arange(first, min(first + _ROWS, len(pixels)))
            stored[first : first + len(rows)] = pixels.take(rows)
            bar.update(len(rows))


def _in_the_way(path: Path) -> FileExistsError:
    return FileExistsError(f"{path} exists and is left as it is; give another path")


def _refuse(path: Path) -> None:
    if path.exists():
        raise _in_the_way(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} must be a folder that exists; make it, or give another path")
