"""Where the images of a task come from: files, or a generator."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.datasets import synthetic
from ebreg.datasets.images import IMAGE_TASKS, ImageData, ImageSplit, ImageTask, InMemory, load

SYNTHETIC = "synthetic"
_N_TRAIN = 2000
# Numbers of training and test images in the paper.
_PUBLISHED = {
    "steering": (9_816, 2_455),
    "cells": (10_000, 10_000),
    "age": (11_808, 2_952),
    "head-pose": (10_613, 5_065),
}
_GENERATORS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "cells": synthetic.cells,
    "head-pose": synthetic.solid,
}


@dataclass(frozen=True)
class ImageSource:
    """The images of a task.

    Attributes:
        name: A name in ``ebreg.datasets.images.IMAGE_TASKS``.
        data: A file or a folder; "synthetic" for 2,000 generated training images and half as many test
            images, "synthetic:N" for N.
        split: How files are split; None: as in the paper.
        seed: Of the split, or of the generator.
    """

    name: str
    data: str
    split: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", str(self.data))  # it may be a Path
        checks.one_of("a task of images", self.name, IMAGE_TASKS)
        if self.is_synthetic:
            checks.one_of(f"a task with {SYNTHETIC} images", self.name, _GENERATORS)
            checks.at_least("the number of synthetic images", self._n_train, 2)
            if self.split is not None:
                raise ValueError("synthetic images are split already; leave out the split")

    @property
    def task(self) -> ImageTask:
        """Its files, targets and grid."""
        return IMAGE_TASKS[self.name]

    @property
    def is_synthetic(self) -> bool:
        """Whether the images are generated."""
        return self.data.split(":")[0] == SYNTHETIC

    @property
    def is_published(self) -> bool:
        """Whether the images are the paper's, by their numbers, so that its values can be compared."""
        how = self.load().how
        return how["split"] == self.task.split and (how["train"], how["test"]) == _PUBLISHED[self.name]

    @property
    def description(self) -> str:
        """The images and their split, for a report."""
        split, task = self.load(), self.task
        how = split.how
        outside = int(((split.test.y < task.low) | (split.test.y > task.high)).any(dim=1).sum())
        seed = "" if how["seed"] is None else f" with seed {how['seed']}"
        other = "" if self.is_published else "; other images than the paper's, so its values are left out"
        return (
            f"{how['train']} training images and {how['test']} test images, split: {how['split']}{seed}; "
            f"{outside} test images have targets outside the paper's grid{other}"
        )

    def load(self) -> ImageSplit:
        """Read or generate the images, once in a process."""
        return _loaded(self)

    def _read(self) -> ImageSplit:
        if not self.is_synthetic:
            return load(self.name, Path(self.data), self.split, self.seed)
        n = self._n_train
        # The test images come after the training images in one stream.
        pixels, y = _GENERATORS[self.name](n + max(1, n // 2), seed=self.seed)
        data = ImageData(InMemory(pixels.numpy()), y, name=f"synthetic {self.name}")
        train, test = data.take(torch.arange(n)), data.take(torch.arange(n, len(data)))
        how = {"split": SYNTHETIC, "seed": self.seed, "train": len(train), "test": len(test), "left_out": 0}
        return ImageSplit(train, test, how)

    @property
    def _n_train(self) -> int:
        _, _, count = self.data.partition(":")
        if not count:
            return _N_TRAIN
        if not count.isdecimal():
            raise ValueError(
                f"the number of synthetic images is written as synthetic:4000; got {self.data!r}"
            )
        return int(count)


@lru_cache(maxsize=4)
def _loaded(source: ImageSource) -> ImageSplit:
    return source._read()
