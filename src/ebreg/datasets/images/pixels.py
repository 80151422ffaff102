"""Sources of pixels, in memory or on disk, read by batch and in any order."""

from typing import Any, Protocol

import numpy as np
from torch import Tensor

Shape = tuple[int, int, int, int]

# Larger sets stay on disk by default; the paper's sets are smaller.
LARGEST_IN_MEMORY = 2 * 2**30


class Pixels(Protocol):
    """A source of images of one size."""

    @property
    def shape(self) -> Shape:
        """Number of images, channels, height and width: (n, C, H, W)."""

    def __len__(self) -> int:
        """Number of images n."""

    def take(self, index: np.ndarray) -> np.ndarray:
        """New uint8 array (B, C, H, W) of the images at an index (B,), in any order, repeats allowed."""


class InMemory:
    """Images in an array, which is not changed.

    Args:
        array: uint8 array or tensor, shape (n, C, H, W).
    """

    def __init__(self, array: Any):
        array = array.numpy(force=True) if isinstance(array, Tensor) else array
        self.shape = check_images("the images", array)
        self._array = array.view()
        self._array.flags.writeable = False

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, index: np.ndarray) -> np.ndarray:
        """New uint8 array (B, C, H, W) of the images at an index (B,)."""
        return np.ascontiguousarray(self._array[index])


class SubsetInMemory:
    """Some images of a source, in memory, with their row numbers in the source.

    Args:
        pixels: The source.
        rows: Which images to load, shape (m,), increasing.
    """

    def __init__(self, pixels: Pixels, rows: np.ndarray):
        self.shape = pixels.shape
        self._loaded = InMemory(pixels.take(rows))
        self._place = np.full(len(pixels), -1)
        self._place[rows] = np.arange(len(rows))

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, index: np.ndarray) -> np.ndarray:
        """New uint8 array (B, C, H, W) of the images at an index (B,), all of them in memory."""
        places = self._place[index]
        if (places < 0).any():
            raise IndexError(f"image {np.asarray(index)[places < 0][0]} is not in memory")
        return self._loaded.take(places)


def load_into_memory(pixels: Pixels, rows: np.ndarray, on_disk: bool | None = None) -> Pixels:
    """The same source, with the used images in memory unless they are large.

    Args:
        pixels: The source.
        rows: Which images are used, shape (m,), increasing.
        on_disk: Whether they stay on disk; None: if they take more than ``LARGEST_IN_MEMORY`` bytes.
    """
    if on_disk is None:
        _, *size = pixels.shape
        on_disk = len(rows) * int(np.prod(size)) > LARGEST_IN_MEMORY
    return pixels if on_disk or isinstance(pixels, InMemory) else SubsetInMemory(pixels, rows)


def check_images(where: str, array: Any) -> Shape:
    """Require at least one uint8 image, and none empty; returns the shape (n, C, H, W)."""
    if getattr(array, "dtype", None) != np.uint8:
        found = getattr(array, "dtype", type(array).__name__)
        raise ValueError(f"{where} must hold whole numbers from 0 to 255 as uint8, found {found}; convert it")
    if len(array.shape) != 4:
        raise ValueError(f"{where} must have shape (n, C, H, W), found {tuple(array.shape)}; reshape it")
    if 0 in array.shape:
        raise ValueError(f"{where} must hold at least one image, found shape {tuple(array.shape)}")
    n, C, H, W = array.shape
    return n, C, H, W
