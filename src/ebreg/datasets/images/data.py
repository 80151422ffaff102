"""ImageData: a data set of images and targets; a subset copies no pixels."""

import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.datasets.images.pixels import Pixels

_ROWS_AT_ONCE = 512


class ImageData:
    """A map-style data set of uint8 images and targets, which returns whole batches.

    Batches are copies, so the data cannot be changed through them.

    Args:
        pixels: A source of n images.
        y: Targets of all n images, shape (n, D).
        rows: Which images belong to the data set, shape (m,); None: all, in order.
        groups: Group of each image, such as the person on it, shape (n,), numbers or strings.
        name: Name of the data in messages.
    """

    def __init__(self, pixels: Pixels, y: Any, rows: Any = None, groups: Any = None, name: str = "images"):
        n = len(pixels)
        self._y = checks.table(f"y of {name}", y).double()
        if len(self._y) != n:
            raise ValueError(f"y of {name} must have a row for each image, found {len(self._y)} for {n}")
        checks.finite(f"y of {name}", self._y)
        self._groups = None if groups is None else np.asarray(groups)
        if self._groups is not None and self._groups.shape != (n,):
            raise ValueError(f"groups of {name} must have shape ({n},), found {self._groups.shape}")
        self.rows = np.arange(n) if rows is None else np.asarray(rows)
        checks.at_least(f"the number of rows of {name}", self.rows.size, 1)
        if self.rows.dtype.kind not in "iu" or self.rows.ndim != 1:
            raise ValueError(
                f"rows of {name} must be whole numbers, shape (m,), found {self.rows.dtype} of shape "
                f"{self.rows.shape}; for a mask give numpy.flatnonzero(mask)"
            )
        if self.rows.min() < 0 or self.rows.max() >= n:
            raise ValueError(
                f"rows of {name} must be from 0 to {n - 1}, found {self.rows.min()} to {self.rows.max()}"
            )
        self.rows = self.rows.astype(np.int64)  # torch takes uint8 for a mask
        self.pixels, self.name = pixels, name

    @property
    def y(self) -> Tensor:
        """Targets of its rows, a copy, float64, shape (m, D)."""
        return self._y[self.rows]

    @property
    def groups(self) -> np.ndarray | None:
        """Groups of its rows, a copy, shape (m,), or None."""
        return None if self._groups is None else self._groups[self.rows]

    @cached_property
    def checksum(self) -> int:
        """Checksum of all pixels and targets; a checkpoint is not resumed with another one."""
        # Of every pixel: that takes less time than an epoch.
        blocks = np.split(self.rows, range(_ROWS_AT_ONCE, len(self), _ROWS_AT_ONCE))
        checksum = 0
        for values in (self.y.numpy(), self.rows):
            checksum = zlib.crc32(np.ascontiguousarray(values).data, checksum)
        for block in blocks:  # the set may be larger than memory
            checksum = zlib.crc32(np.ascontiguousarray(self.pixels.take(block)).data, checksum)
        return checksum

    def take(self, index: Any) -> "ImageData":
        """The rows at an index (k,) into this data set."""
        return ImageData(self.pixels, self._y, self.rows[np.asarray(index)], self._groups, self.name)

    def with_targets(self, y: Tensor) -> "ImageData":
        """The same images with other targets, shape (m, D)."""
        targets = self._y.clone()
        targets[self.rows] = y.to(targets)
        return ImageData(self.pixels, targets, self.rows, self._groups, self.name)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        """One image, uint8 (C, H, W), and its target, float64 (D,)."""
        x, y = self.__getitems__([place])
        return x[0], y[0]

    def __getitems__(self, index: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """Images, uint8 (B, C, H, W), and targets, float64 (B, D), of a batch."""
        rows = self.rows[np.asarray(index, dtype=np.int64)]
        return torch.from_numpy(self.pixels.take(rows)), self._y[rows]
