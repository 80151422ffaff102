"""Ray-traced images of the solid, with a lamp and shadows."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.datasets.synthetic.poses import check_poses, rotation
from ebreg.datasets.synthetic.shapes import Box, Ellipsoid, Shape, vector

Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Scene:
    """Light and colours of an image, in the frame of the viewer. Colours are red, green, blue in [0, 1].

    Attributes:
        light: Direction towards the lamp, of any length; z points to the viewer, and is above 0.
        lamp: Strength of the lamp.
        ambient: Strength of the ambient light.
        paint: Factors on the solid's colours.
        background: Colour behind the solid, at mid-height.
    """

    light: tuple[float, float, float] = (0.0, 0.7, 1.0)
    lamp: float = 0.65
    ambient: float = 0.35
    paint: Colour = (1.0, 1.0, 1.0)
    background: Colour = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        checks.positive("z of light", self.light[2])
        checks.positive("the length of light", math.hypot(*self.light))


PLAIN = Scene()

# A column with a foot, a knob on top and four arms at one height. It is the same after a quarter turn about
# the vertical axis, and fits into the unit ball.
_ARM = (0.42, 0.62, 0.85)
_BODY: tuple[tuple[Shape, Colour], ...] = (
    (Box(vector(0, 0.22, 0), vector(0.86, 0.16, 0.2)), _ARM),
    (Box(vector(0, 0.22, 0), vector(0.2, 0.16, 0.86)), _ARM),
    (Box(vector(0, -0.13, 0), vector(0.34, 0.58, 0.34)), (0.9, 0.86, 0.74)),
    (Ellipsoid(vector(0, -0.72, 0), vector(0.5, 0.2, 0.5)), (0.38, 0.6, 0.42)),
    (Ellipsoid(vector(0, 0.62, 0), vector(0.27, 0.27, 0.27)), (0.95, 0.72, 0.25)),
)
# The tip of the front arm is painted, on its top only: from below it looks like the other three.
_MARK = (0.86, 0.12, 0.12)
_MARK_FROM = 0.42

_HALF_WIDTH = 1.12  # of the picture, where the solid fits into a ball of radius 1
_SUBPIXELS = 2
_SHADE = 0.2  # how much darker the background is at the bottom than at mid-height
_GLOSS, _GLOSS_POWER = 0.15, 24
_CLEAR = 1e-6  # distance within which a surface casts no shadow on itself


def render(pose: Tensor, scene: Scene = PLAIN, size: int = 64) -> Tensor:
    """Images of the solid without noise, in parallel projection.

    Args:
        pose: Yaw, pitch and roll in degrees, shape (n, 3), as defined in ``poses``.
        scene: Light and colours of all images.
        size: Height and width in pixels, at least 16.

    Returns:
        Red, green and blue in [0, 1], in float64, shape (n, 3, size, size).
    """
    pose = check_poses(pose)
    checks.at_least("the number of poses", len(pose), 1)
    size = checks.at_least("size", size, 16)
    return torch.from_numpy(np.stack([_picture(R, scene, size) for R in rotation(pose).numpy()]))


def _picture(R: np.ndarray, scene: Scene, size: int) -> np.ndarray:
    """One picture, shape (3, size, size)."""
    fine = size * _SUBPIXELS
    across = _centres(fine)
    part, depth = _look(R, across)
    row, column = np.nonzero(part >= 0)
    p = _plane(R, across[column], -across[row]) - depth[row, column] * R[2][:, None]
    colours = _colours(p, part[row, column], R, scene)

    darker = _SHADE * np.repeat(_centres(size), size) / _HALF_WIDTH
    background = np.reshape(scene.background, (3, 1)) * (1 - darker)
    pixel = row // _SUBPIXELS * size + column // _SUBPIXELS
    covered = np.bincount(pixel, minlength=size**2) / _SUBPIXELS**2
    light = np.stack([np.bincount(pixel, colour, size**2) for colour in colours]) / _SUBPIXELS**2
    return ((1 - covered) * background + light).clip(0, 1).reshape(3, size, size)


def _centres(n: int) -> np.ndarray:
    """Centres of n equal pixels across the picture, shape (n,)."""
    return _HALF_WIDTH * ((2 * np.arange(n) + 1) / n - 1)


def _plane(R: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Points of the picture's plane, (3, ...), in the frame of the solid: viewer and lamp turn around it."""
    return np.multiply.outer(R[0], x) + np.multiply.outer(R[1], y)


def _look(R: np.ndarray, across: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part that each ray hits first, or -1, and its depth behind the picture's plane, both (n, n)."""
    n = len(across)
    part, depth = np.full((n, n), -1, dtype=np.int8), np.full((n, n), np.inf)
    for i, (shape, _) in enumerate(_BODY):
        # Only the rays inside the bounding box of the part are traced; rows run down, y up.
        (x, y), (dx, dy) = R[:2] @ shape.centre[:, 0], shape.reach(R[:2])
        top, bottom = np.searchsorted(across, [-y - dy, -y + dy])
        left, right = np.searchsorted(across, [x - dx, x + dx])
        window = slice(top, bottom), slice(left, right)
        o = _plane(R, across[None, left:right], -across[top:bottom, None]).reshape(3, -1)
        enter, leave = (t.reshape(depth[window].shape) for t in shape.crossing(o, -R[2][:, None]))
        nearer = (enter <= leave) & (enter < depth[window])
        part[window][nearer] = i
        depth[window][nearer] = enter[nearer]
    return part, depth


def _colours(p: np.ndarray, part: np.ndarray, R: np.ndarray, scene: Scene) -> np.ndarray:
    """Colours of points of the surface, shape (3, n)."""
    normal, paint = np.empty_like(p), np.empty_like(p)
    for i, (shape, colour) in enumerate(_BODY):
        here = np.flatnonzero(part == i)
        normal[:, here] = shape.normal(p[:, here])
        paint[:, here] = np.reshape(colour, (3, 1))
    marked = (normal[1] > 0.5) & (p[1] > 0) & (p[2] > _MARK_FROM)
    paint[:, marked] = np.reshape(_MARK, (3, 1))
    return _shade(p, normal, paint * np.reshape(scene.paint, (3, 1)), R, scene)


def _shade(p: np.ndarray, normal: np.ndarray, paint: np.ndarray, R: np.ndarray, scene: Scene) -> np.ndarray:
    """Colours of points of the surface, shape (3, n): lamp and shadow, light from above, gloss."""
    lamp = R.T @ (np.reshape(scene.light, (3, 1)) / math.hypot(*scene.light))
    lit = np.ones(p.shape[1])
    for shape, _ in _BODY:
        enter, leave = shape.crossing(p, lamp)
        lit[(enter <= leave) & (leave > _CLEAR)] = 0
    up, viewer = R[1][:, None], R[2][:, None]
    halfway = lamp + viewer
    halfway /= np.sqrt((halfway * halfway).sum())
    diffuse = scene.lamp * lit * (normal * lamp).sum(axis=0).clip(min=0)
    ambient = scene.ambient * (1 + 0.5 * (normal * up).sum(axis=0))
    gloss = _GLOSS * scene.lamp * lit * (normal * halfway).sum(axis=0).clip(min=0) ** _GLOSS_POWER
    return paint * (diffuse + ambient) + gloss
