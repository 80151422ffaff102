"""PNGPixels: images in PNG files, decoded by batch."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

# Modes of Pillow with 8 bits per channel and no palette or mask.
_CHANNELS = {"L": 1, "RGB": 3}


class PNGPixels:
    """Images in PNG files of one size, grey or RGB.

    Args:
        paths: One for each image; all have the size of the first.
    """

    def __init__(self, paths: Sequence[str | Path]):
        if not len(paths):
            raise ValueError("paths must name at least one PNG file, found none")
        self.paths = [str(path) for path in paths]
        C, H, W = _decode(self.paths[0]).shape
        self.shape = (len(paths), C, H, W)

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, index: np.ndarray) -> np.ndarray:
        """New uint8 array (B, C, H, W) of the images at an index (B,), in any order, repeats allowed."""
        taken = np.empty((len(index), *self.shape[1:]), dtype=np.uint8)
        for place, row in enumerate(index):
            image = _decode(self.paths[row])
            if image.shape != self.shape[1:]:
                raise ValueError(
                    f"{self.paths[row]} must have as many channels, rows and columns as {self.paths[0]}, "
                    f"{self.shape[1:]}, found {image.shape}; resize them to one size"
                )
            taken[place] = image
        return taken


def _decode(path: str) -> np.ndarray:
    # (C, H, W)
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("PNG files need Pillow: pip install ebreg[images]") from error

    try:
        with Image.open(path, formats=["PNG"]) as image:
            mode, values = image.mode, np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:  # which one depends on the place of the damage
        raise ValueError(
            f"{path} must be a PNG image, and cannot be decoded ({error}); remove it or download it again"
        ) from error
    if mode not in _CHANNELS:
        raise ValueError(
            f"{path} must be grey or RGB with 8 bits a channel, found Pillow's mode {mode!r}; convert it"
        )
    return values.reshape(*values.shape[:2], _CHANNELS[mode]).transpose(2, 0, 1)
