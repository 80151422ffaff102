"""Synthetic images of a solid, and its pose, which some images leave ambiguous."""

import math

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from ebreg._utils import checks
from ebreg.datasets.synthetic.poses import PITCH, ROLL, YAW
from ebreg.datasets.synthetic.random_numbers import random_numbers
from ebreg.datasets.synthetic.rendering import PLAIN, Scene, render

_LIGHT_SPREAD = 20.0  # degrees to either side, and up or down
_STRENGTH_SPREAD = 0.15  # of the lamp, relative
_PAINT_SPREAD = 0.06
_BACKGROUND = (0.35, 0.65)
_BACKGROUND_SPREAD = 0.05  # between red, green and blue
_NOISE = 3.0  # grey levels


def solid(n: int, seed: int = 0, size: int = 64) -> tuple[Tensor, Tensor]:
    """Images of one solid, and its pose in each image.

    The solid is a column with four arms, the same after a quarter turn about its vertical axis, except for a
    red mark on top of the front arm. Yaw is uniform from -90 to 90 degrees, pitch from -60 to 60 and roll
    from -45 to 45; ``poses`` defines the angles. Seen from above, at positive pitch, the mark determines the
    yaw, though at a few degrees it is thinner than a pixel. Seen from below it is hidden, and the image fits
    two poses equally well: p(pose | image) has two modes of the same weight, those of ``equivalent_poses``.
    Lamp, paint and background vary a little, independently of the pose.

    Image i depends on the seed and on i, not on n.

    Args:
        n: Number of images, at least 1.
        seed: From 0 to 2**32 - 1.
        size: Height and width in pixels, at least 16.

    Returns:
        Images in uint8, shape (n, 3, size, size), and yaw, pitch and roll in degrees, in float64, shape
        (n, 3).
    """
    n = checks.at_least("n", n, 1)
    seed = checks.seed(seed)
    size = checks.at_least("size", size, 16)
    images = np.empty((n, 3, size, size), dtype=np.uint8)
    poses = torch.empty((n, 3), dtype=torch.float64)
    for i in range(n):
        rng = random_numbers(seed, i)
        poses[i] = torch.from_numpy(rng.uniform(-1, 1, 3) * (YAW, PITCH, ROLL))
        clean = render(poses[i : i + 1], _scene(rng), size)[0].numpy()
        grey = 255 * clean + _NOISE * rng.standard_normal(clean.shape)
        images[i] = np.rint(grey).clip(0, 255)
    return torch.from_numpy(images), poses


def _scene(rng: RandomState) -> Scene:
    aside, higher = np.deg2rad(rng.uniform(-_LIGHT_SPREAD, _LIGHT_SPREAD, 2))
    _, y, z = PLAIN.light
    height = math.atan2(y, z) + higher
    strength = PLAIN.lamp * (1 + rng.uniform(-_STRENGTH_SPREAD, _STRENGTH_SPREAD))
    red, green, blue = 1 + rng.uniform(-_PAINT_SPREAD, _PAINT_SPREAD, 3)
    grey = rng.uniform(*_BACKGROUND)
    r, g, b = grey + rng.uniform(-_BACKGROUND_SPREAD, _BACKGROUND_SPREAD, 3)
    return Scene(
        light=(
            math.sin(aside) * math.cos(height),
            math.sin(height),
            math.cos(aside) * math.cos(height),
        ),
        lamp=strength,
        paint=(red, green, blue),
        background=(r, g, b),
    )
