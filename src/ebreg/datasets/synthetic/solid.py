"""A solid in a pose that its picture may or may not tell."""

import math

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from ebreg._utils import checks
from ebreg.datasets.synthetic.poses import PITCH, ROLL, YAW
from ebreg.datasets.synthetic.random_numbers import stream
from ebreg.datasets.synthetic.rendering import PLAIN, Scene, render

_LIGHT_SPREAD = 20.0  # degrees to either side, and up or down
_STRENGTH_SPREAD = 0.15  # of the lamp, as a part of it
_PAINT_SPREAD = 0.06
_BACKGROUND = (0.35, 0.65)
_BACKGROUND_SPREAD = 0.05  # between red, green and blue
_NOISE = 3.0  # grey levels


def solid(n: int, seed: int = 0, size: int = 64) -> tuple[Tensor, Tensor]:
    """Pictures of one solid, and the pose that it has in each of them.

    The solid is a column with four arms, the same after a quarter turn about its vertical axis, but for a
    red mark on top of the front arm. Yaw is uniform within 90 degrees to either side, pitch within 60 and
    roll within 45; ``poses`` says what the angles mean. Seen from above, at positive pitch, the mark tells
    the yaw, though at a few degrees it is thinner than a pixel. Seen from below it is hidden, and the
    picture fits two poses equally well: p(pose | image) has two modes of the same weight, those of
    ``equivalent_poses``. Lamp, paint and background vary a little and say nothing about the pose.

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
        rng = stream(seed, i)
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
