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
_GENERATORS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "cells": synthetic.cells,
    "head-pose": synthetic.solid,
}


@dataclass(frozen=True)
class ImageSource:
    """The images of a task.

    Attributes:
        task_name: A name in ``ebreg.datasets.images.IMAGE_TASKS``.
        data: A file, or a folder; or "synthetic" for 2,000 generated training images and half as many for the
            test, "synthetic:N" for N.
        split: How files are divided; None: as in the paper.
        seed: Of the split, or of the generator.
    """

    task_name: str
    data: str
    split: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", str(self.data))  # a path will do
        checks.one_of("a task of images", self.task_name, IMAGE_TASKS)
        if self.is_synthetic:
            checks.one_of(f"a task with {SYNTHETIC} images", self.task_name, _GENERATORS)
            checks.at_least("the number of synthetic images", self._n_train, 2)
            if self.split is not None:
                raise ValueError("synthetic images come in two parts; leave out the split")

    @property
    def task(self) -> ImageTask:
        """What is known of it."""
        return IMAGE_TASKS[self.task_name]

    @property
    def is_synthetic(self) -> bool:
        """Whether the images are generated."""
        return self.data.split(":")[0] == SYNTHETIC

    def load(self) -> ImageSplit:
        """Read or make the images, once in a process: it does many trainings on the same."""
        return _loaded(self)

    def _read(self) -> ImageSplit:
        if not self.is_synthetic:
            return load(self.task_name, Path(self.data), self.split, self.seed)
        n = self._n_train
        # One stream for both parts: the test images are those that come after.
        pixels, y = _GENERATORS[self.task_name](n + max(1, n // 2), seed=self.seed)
        data = ImageData(InMemory(pixels.numpy()), y, name=f"synthetic {self.task_name}")
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
                f"synthetic images are asked for by their number, as synthetic:4000; got {self.data!r}"
            )
        return int(count)


@lru_cache(maxsize=4)
def _loaded(source: ImageSource) -> ImageSplit:
    return source._read()
