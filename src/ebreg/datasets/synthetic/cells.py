"""Synthetic microscopy images of fluorescent cells, and their counts."""

import math

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from ebreg._utils import checks
from ebreg.datasets.synthetic.random_numbers import random_numbers

# Lengths are in pixels of an image of this size, and scale with the size.
SIZE = 64

_RADIUS = 2.2  # at which a typical cell has half of its brightness
_RADIUS_SPREAD = 0.15  # of log radius, from cell to cell
_IMAGE_RADIUS_SPREAD = 0.06  # of log radius, from image to image
_LARGEST = 1.6  # radius of the largest cell, in typical ones
_ELONGATION = 1.5  # of the least round cell, long axis to short
_SHARPNESS = (0.9, 1.8)  # from out of focus to a disc with an edge
_REACH = 2.6  # radii beyond which a cell is dark

_PHOTONS = 60.0  # from the centre of a typical cell, per pixel
_BRIGHTNESS_SPREAD = 0.35  # of log brightness, from cell to cell
_STAIN_SPREAD = 0.1  # of log brightness, from image to image
_GLOW = (3.0, 9.0)  # photons of the background
_UNEVEN = 0.35  # largest share of the lamp's light that is lost over half a diagonal

_GREY = 1.1  # grey levels per photon
_BLACK = 6.0  # grey level without light
_READ_NOISE = 2.0  # grey levels


def cells(n: int, seed: int = 0, size: int = SIZE, low: int = 1, high: int = 200) -> tuple[Tensor, Tensor]:
    r"""Images of cells, and the number of cells in each.

    The count is uniform on the whole numbers from ``low`` to ``high``, by default the range of the synthetic
    set Cell-200. Every cell has its centre in the image, and a random place, size, shape, focus and
    brightness: at :math:`\rho` radii from its centre the brightness is :math:`2^{-\rho^{2s}}`, with sharpness
    s. The light of overlapping cells adds up. The lamp is uneven, stain and size vary between images, photons
    are Poisson, and the camera adds noise and saturates. So the total light roughly determines the count,
    single cells are visible where they are few, and the count is less certain the larger it is.

    Image i depends on the seed and on i, not on n.

    Args:
        n: Number of images, at least 1.
        seed: From 0 to 2**32 - 1.
        size: Height and width in pixels, at least 16. Cells scale with it.
        low: Smallest count, at least 0.
        high: Largest count, at least ``low``.

    Returns:
        Images in uint8, shape (n, 1, size, size), and counts in float64, shape (n, 1).
    """
    n = checks.at_least("n", n, 1)
    seed = checks.seed(seed)
    size = checks.at_least("size", size, 16)
    low = checks.at_least("low", low, 0)
    high = checks.at_least(f"high, with low = {low},", high, low)
    images = np.empty((n, 1, size, size), dtype=np.uint8)
    counts = np.empty((n, 1))
    for i in range(n):
        rng = random_numbers(seed, i)
        counts[i] = count = rng.randint(low, high + 1)
        photons = _lamp(rng, size) * (_light(rng, count, size) + rng.uniform(*_GLOW))
        images[i, 0] = _photograph(rng, photons)
    return torch.from_numpy(images), torch.from_numpy(counts)


def _light(rng: RandomState, count: int, size: int) -> np.ndarray:
    """Photons of the cells under an even lamp, shape (size, size)."""
    typical = _RADIUS * size / SIZE * math.exp(_IMAGE_RADIUS_SPREAD * rng.standard_normal())
    stain = _PHOTONS * math.exp(_STAIN_SPREAD * rng.standard_normal())
    centre = rng.uniform(0, size, (2, count, 1))
    radius = typical * np.exp(_RADIUS_SPREAD * rng.standard_normal(count)).clip(1 / _LARGEST, _LARGEST)
    stretch = np.sqrt(rng.uniform(1, _ELONGATION, count))
    angle = rng.uniform(0, math.pi, count)
    sharpness = rng.uniform(*_SHARPNESS, count)
    brightness = stain * np.exp(_BRIGHTNESS_SPREAD * rng.standard_normal(count))

    # Each cell is drawn on its own square, and the squares are added to a canvas with a margin.
    reach = math.ceil(_REACH * _LARGEST * typical)
    square = np.arange(-reach, reach + 1)
    pixel = np.floor(centre).astype(np.int64) + square  # (2, count, side)
    dy, dx = pixel + 0.5 - centre
    dy, dx = dy[:, :, None], dx[:, None, :]
    long, short = radius * stretch, radius / stretch
    cos, sin = np.cos(angle), np.sin(angle)
    along = (cos / long)[:, None, None] * dx + (sin / long)[:, None, None] * dy
    across = (cos / short)[:, None, None] * dy - (sin / short)[:, None, None] * dx
    rho2 = along**2 + across**2
    shine = brightness[:, None, None] * np.exp2(-(rho2 ** sharpness[:, None, None]))
    side = size + 2 * reach
    row, column = pixel + reach
    place = row[:, :, None] * side + column[:, None, :]
    canvas = np.bincount(place.ravel(), shine.ravel(), side * side).reshape(side, side)
    return canvas[reach : reach + size, reach : reach + size]


def _lamp(rng: RandomState, size: int) -> np.ndarray:
    """Strength of the lamp, 1 at its brightest place, shape (size, size)."""
    grid = (np.arange(size) + 0.5) / size
    y, x = rng.uniform(0.2, 0.8, 2)
    loss = rng.uniform(0, _UNEVEN)
    return 1 - loss * ((grid[:, None] - y) ** 2 + (grid - x) ** 2) / 0.5


def _photograph(rng: RandomState, photons: np.ndarray) -> np.ndarray:
    """Grey levels of the camera, in uint8, from the expected photons."""
    grey = _BLACK + _GREY * rng.poisson(photons) + _READ_NOISE * rng.standard_normal(photons.shape)
    return np.rint(grey).clip(0, 255).astype(np.uint8)
