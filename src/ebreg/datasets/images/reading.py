"""Readers of image files: HDF5, npz and PNG files, read into data sets and checked."""

import re
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ebreg.datasets.images.data import ImageData
from ebreg.datasets.images.hdf5 import HDF5Pixels, read_array
from ebreg.datasets.images.pixels import InMemory, Pixels, check_images
from ebreg.datasets.images.png import PNGPixels
from ebreg.datasets.images.tasks import ImageTask

# In an npz file, the person on each image; optional.
GROUP_KEY = "person"
_COUNT = re.compile(r"_(\d+(?:\.\d+)?)\.png$", re.IGNORECASE)


def read_hdf5(path: str | Path, task: ImageTask) -> ImageData:
    """Read images (n, C, H, W), which stay on disk, and targets (n,) or (n, D) from an HDF5 file."""
    path = Path(path)
    pixels = HDF5Pixels(path, task.image_key)
    return _checked(path, pixels, read_array(path, task.label_key), task)


def read_npz(path: str | Path, task: ImageTask) -> ImageData:
    """Read images (n, H, W, C), targets (n, D) and optional persons (n,) from an npz file.

    An npz file can only be read completely, so its images are in memory.
    """
    path = Path(path)
    arrays = _read_arrays(path, (task.image_key, task.label_key), (GROUP_KEY,))
    images = arrays[task.image_key]
    if images.ndim != 4 or images.shape[-1] != task.channels:
        raise ValueError(
            f"{path}: {task.image_key!r} must have shape {task.image_shape}, found {images.shape}; reshape it"
        )
    images = images.transpose(0, 3, 1, 2)
    check_images(f"{path}: {task.image_key!r}", images)
    return _checked(path, InMemory(images), arrays[task.label_key], task, arrays.get(GROUP_KEY))


def read_png_folder(path: str | Path, task: ImageTask) -> ImageData:
    """Read a folder of PNG files, in the order of their names, with the targets in the names."""
    path = Path(path)
    files = png_files(path)
    if not files:
        raise ValueError(f"{path} must hold PNG files named {task.png_names}, found none")
    found = [_COUNT.search(file.name) for file in files]
    if None in found:
        raise ValueError(
            f"{files[found.index(None)]} must be named {task.png_names}, and its name has no count "
            f"({found.count(None)} such files in all); rename or remove them"
        )
    labels = np.array([float(match[1]) for match in found if match is not None])
    return _checked(path, PNGPixels(files), labels, task)


def png_files(path: Path) -> list[Path]:
    """PNG files of a folder, sorted by name."""
    return sorted(file for file in path.iterdir() if file.suffix.lower() == ".png")


def check_targets(where: str | Path, labels: np.ndarray, task: ImageTask) -> Tensor:
    """Require finite targets in the task's valid range, and whole numbers where it says so.

    Args:
        where: Name of the targets in messages.
        labels: Shape (n,) or (n, D).
        task: The task.

    Returns:
        float64, shape (n, D).
    """
    if labels.dtype.kind not in "iuf":
        raise ValueError(f"{where}: {task.label_key!r} must hold numbers, found {labels.dtype}; convert it")
    y = labels.astype(np.float64)
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim != 2 or y.shape[1] not in task.n_targets:
        columns = " or ".join(map(str, task.n_targets))
        raise ValueError(
            f"{where}: {task.label_key!r} must have {columns} target(s) for each image, found shape "
            f"{labels.shape}; reshape it"
        )
    low, high = task.valid_range
    _require(np.isfinite(y), y, where, "finite")
    _require((y >= low) & (y <= high), y, where, f"from {low:g} to {high:g} {task.unit}")
    if task.spacing is not None:
        _require(y % task.spacing == 0, y, where, f"a multiple of {task.spacing:g}")
    return torch.from_numpy(y)


def _require(fine: np.ndarray, y: np.ndarray, where: str | Path, what: str) -> None:
    bad = ~fine.all(axis=1)
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"{where}: every target must be {what}, and {int(bad.sum())} of {len(y)} rows are not, first row "
            f"{first} with {', '.join(f'{value:g}' for value in y[first])}; fix or remove those rows"
        )


def _checked(
    path: Path, pixels: Pixels, labels: np.ndarray, task: ImageTask, groups: np.ndarray | None = None
) -> ImageData:
    n, C = pixels.shape[:2]
    if task.channels != C:
        raise ValueError(
            f"{path}: images of the task {task.name!r} have {task.channels} channel(s) and the shape "
            f"(n, {task.channels}, H, W), found {tuple(pixels.shape)}; is it the file of another task, or "
            "are the channels last?"
        )
    y = check_targets(path, labels, task)
    if groups is not None and groups.dtype.kind not in "iuU":
        raise ValueError(
            f"{path}: {GROUP_KEY!r} must hold whole numbers or strings, found {groups.dtype}; convert it"
        )
    if groups is not None and groups.ndim > 1:
        raise ValueError(
            f"{path}: {GROUP_KEY!r} must have shape ({n},), one an image, found {groups.shape}; reshape it"
        )
    for what, rows in (("targets", y), ("persons", groups)):
        if rows is not None and tuple(rows.shape[:1]) != (n,):
            found = len(rows) if rows.ndim else "a single value"
            raise ValueError(
                f"{path} must hold as many {what} as images, found {found} and {n}; download it again"
            )
    return ImageData(pixels, y, groups=groups, name=task.name)


def _read_arrays(path: Path, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        # For another file the message of numpy would advise to unpickle it.
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path} is truncated or not an npz file; download it again")
        file.seek(0)
        try:
            content = np.load(file, allow_pickle=False)
            keys = content.files
            # numpy returns entries that are not arrays as bytes.
            arrays = {key: np.asarray(content[key]) for key in (*required, *optional) if key in keys}
        except MemoryError:
            raise
        except Exception as error:  # damaged archives raise many kinds of errors
            raise ValueError(
                f"{path} must be an npz file of plain arrays, and cannot be read ({error}); download it again"
            ) from error
    missing = [key for key in required if key not in arrays]
    if missing:
        found = ", ".join(map(repr, keys)) or "none"
        raise ValueError(
            f"{path} must hold an array {missing[0]!r}, found the keys {found}; is it of another task?"
        )
    return arrays
