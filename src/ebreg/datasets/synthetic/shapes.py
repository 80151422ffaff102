"""Convex shapes, and their intersections with parallel rays.

Rays are o + t d. All have the same direction d, shape (3, 1), and start at the columns of o, shape (3, n).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

# Replaces a component 0 of a direction, to avoid a division by 0.
_TINY = 1e-12


def vector(x: float, y: float, z: float) -> np.ndarray:
    """A column, shape (3, 1)."""
    return np.array([[x], [y], [z]])


class Shape(Protocol):
    """A convex shape that rays can hit."""

    @property
    def centre(self) -> np.ndarray:
        """Shape (3, 1)."""

    def reach(self, axes: np.ndarray) -> np.ndarray:
        """Extent from its centre along each row of ``axes``, shape (m, 3) to (m,)."""

    def crossing(self, o: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The t at which rays enter and leave, shape (n,) each; a ray that misses enters after it leaves."""

    def normal(self, p: np.ndarray) -> np.ndarray:
        """Outward unit normals at points of the surface, shape (3, n)."""


@dataclass(frozen=True, eq=False)
class Box:
    """An axis-aligned box.

    Attributes:
        centre: Shape (3, 1).
        half: Half of its lengths, shape (3, 1).
    """

    centre: np.ndarray
    half: np.ndarray

    def reach(self, axes: np.ndarray) -> np.ndarray:
        """Extent of a corner."""
        return np.abs(axes) @ self.half[:, 0]

    def crossing(self, o: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the ray is inside all three pairs of planes."""
        inverse = 1 / np.where(np.abs(d) < _TINY, _TINY, d)
        middle = (self.centre - o) * inverse
        half = self.half * np.abs(inverse)
        return (middle - half).max(axis=0), (middle + half).min(axis=0)

    def normal(self, p: np.ndarray) -> np.ndarray:
        """Normal of the nearest face."""
        position = (p - self.centre) / self.half
        face = np.abs(position).argmax(axis=0)
        return np.where(np.arange(3)[:, None] == face, np.sign(position), 0.0)


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """An axis-aligned ellipsoid.

    Attributes:
        centre: Shape (3, 1).
        radii: Shape (3, 1).
    """

    centre: np.ndarray
    radii: np.ndarray

    def reach(self, axes: np.ndarray) -> np.ndarray:
        """Extent of the point whose normal is the axis."""
        return np.sqrt(axes**2 @ self.radii[:, 0] ** 2)

    def crossing(self, o: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The roots of a t^2 + 2 b t + c = 0, in the space where it is the unit ball."""
        o, d = (o - self.centre) / self.radii, d / self.radii
        a, b, c = (d * d).sum(), (o * d).sum(axis=0), (o * o).sum(axis=0) - 1
        discriminant = b * b - a * c
        root = np.sqrt(discriminant.clip(min=0)) / a
        middle = -b / a
        return middle - root, np.where(discriminant < 0, -np.inf, middle + root)

    def normal(self, p: np.ndarray) -> np.ndarray:
        """Normalised gradient of its equation."""
        gradient = (p - self.centre) / self.radii**2
        return gradient / np.sqrt((gradient * gradient).sum(axis=0))
