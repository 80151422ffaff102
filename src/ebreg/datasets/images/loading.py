"""Load an image data set: files to a training set and a test set."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ebreg._utils import checks
from ebreg.datasets.images.data import ImageData
from ebreg.datasets.images.pixels import load_into_memory
from ebreg.datasets.images.reading import png_files, read_hdf5, read_npz, read_png_folder
from ebreg.datasets.images.splits import GIVEN, SPLITS, divide, rotate
from ebreg.datasets.images.tasks import IMAGE_TASKS, ImageTask

_READERS: dict[str, Callable[[Path, ImageTask], ImageData]] = {"h5": read_hdf5, "npz": read_npz}
# The split of the validation set, by the split of the test set; it is random for other splits.
_VALIDATION_SPLITS = {"time": "time", "group": "group", GIVEN: "time"}


@dataclass(frozen=True)
class ImageSplit:
    """A task's data, split into a training set and a test set.

    Attributes:
        train: The training set.
        test: The test set.
        how: The split, for a record: its name, its seed (None if it is not random), the numbers of rows in
            both sets and of those left out, and the groups in the test set if it is by group.
    """

    train: ImageData
    test: ImageData
    how: dict[str, Any]

    def validation_split(self) -> tuple[np.ndarray, np.ndarray]:
        """Training rows and validation rows, as places in ``train``; a fifth is for validation.

        They are split in the same way as the test set, by person or by time, so that the validation set is as
        different from the training set as the test set is. If the test set is a file, they are split by time.
        """
        name = self._validation_rule()
        return divide(name, np.arange(len(self.train)), self.train.groups, self.how["seed"] or 0)

    def validation_splits(self, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Several such splits, whose validation rows are as different as their numbers allow.

        By time, they are stretches of the rows, evenly placed; by group, other groups in turn.
        """
        name = self._validation_rule()
        return rotate(name, np.arange(len(self.train)), self.train.groups, self.how["seed"] or 0, n)

    def _validation_rule(self) -> str:
        name, groups = _VALIDATION_SPLITS.get(self.how["split"], "random"), self.train.groups
        if name == "group" and groups is not None and len(np.unique(groups)) < 2:
            raise ValueError(
                f"{self.train.name}: all training images are of one person, and patience needs another one "
                "for validation; give images of at least three persons, or leave out patience"
            )
        return name


def load(
    task_name: str, path: str | Path, split: str | None = None, seed: int = 0, on_disk: bool | None = None
) -> ImageSplit:
    """Read a task's files, check them and split them.

    Args:
        task_name: One of ``IMAGE_TASKS``.
        path: A file in the task's format, or a folder of files with their official names; for cells also a
            folder of PNG files.
        split: "random" (80 : 20), "halves" (10,000 each, or half of the rows if there are fewer), "time" (the
            last fifth is the test set), "group" (a fifth of the groups is) or "given" by two files. None: as
            in the paper; a single file of head poses is split by person.
        seed: Seed of the split.
        on_disk: Whether pixels stay on disk; None: if they are large. Not for npz files.
    """
    checks.one_of("a task of images", task_name, IMAGE_TASKS)
    if split is not None:
        checks.one_of("split", split, SPLITS)
    task = IMAGE_TASKS[task_name]
    files = _find(task, Path(path))
    if on_disk and task.format == "npz":
        raise ValueError(f"{files[0]} cannot stay on disk: an npz file is read completely; leave out on_disk")
    if len(files) == 2:
        if split not in (None, GIVEN):
            raise ValueError(f"{path} is split by its two files, got split {split!r}; give one of the files")
        return _given(task, files)
    return _divided(task, _read(task, files[0]), files[0], split, seed, on_disk)


def _find(task: ImageTask, path: Path) -> list[Path]:
    official = " and ".join(task.files)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: give {official}, or the folder; ebreg data list says where to get it"
        )
    if not path.is_dir():
        return [path]
    files = [path / name for name in task.files]
    missing = [file.name for file in files if not file.is_file()]
    if not missing:
        return files
    if task.png_names is not None and png_files(path):
        return [path]
    instead = "" if task.png_names is None else f" or PNG files named {task.png_names}"
    raise FileNotFoundError(
        f"{path} must hold {official}{instead}, and {' and '.join(missing)} cannot be found; ebreg data list "
        "says where to get it"
    )


def _read(task: ImageTask, path: Path) -> ImageData:
    return read_png_folder(path, task) if path.is_dir() else _READERS[task.format](path, task)


def _given(task: ImageTask, files: list[Path]) -> ImageSplit:
    train, test = (_read(task, file) for file in files)
    for what, one, other in (
        ("the same number of targets", train.y.shape[1], test.y.shape[1]),
        ("images of the same size", train.pixels.shape[1:], test.pixels.shape[1:]),
    ):
        if one != other:
            raise ValueError(f"{files[0]} and {files[1]} must have {what}, found {one} and {other}")
    return ImageSplit(train, test, _how(GIVEN, None, train, test, 0))


def _divided(
    task: ImageTask, data: ImageData, path: Path, split: str | None, seed: int, on_disk: bool | None
) -> ImageSplit:
    if split is None:
        split = task.split
        if split == GIVEN and data.groups is not None:
            split = "group"
    if split == GIVEN:
        raise ValueError(
            f"{path} is one file, which does not say how it is split; name a split other than {GIVEN!r}: "
            f"{', '.join(name for name in SPLITS if name != GIVEN)}"
        )
    rows, groups = data.rows, data.groups
    if task.kept is not None:
        low, high = task.kept
        kept = ((data.y >= low) & (data.y <= high)).all(dim=1).numpy()
        if not kept.any():
            raise ValueError(f"{path} must hold targets from {low:g} to {high:g} {task.unit}, found none")
        rows, groups = rows[kept], None if groups is None else groups[kept]
    try:
        train_rows, test_rows = divide(split, rows, groups, seed)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    pixels = load_into_memory(data.pixels, np.union1d(train_rows, test_rows), on_disk)
    train, test = (
        ImageData(pixels, data.y, part, data.groups, task.name) for part in (train_rows, test_rows)
    )
    drawn = None if split == "time" else int(seed)
    how = _how(split, drawn, train, test, len(data) - len(train) - len(test))
    if split == "group" and test.groups is not None:
        how["test_groups"] = np.unique(test.groups).tolist()
    return ImageSplit(train, test, how)


def _how(split: str, seed: int | None, train: ImageData, test: ImageData, left_out: int) -> dict[str, Any]:
    return {"split": split, "seed": seed, "train": len(train), "test": len(test), "left_out": left_out}
