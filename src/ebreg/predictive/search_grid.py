"""SearchGrid: points spread evenly over the box of the tail, which all rows share."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.predictive.places import Places
from ebreg.units import Tail

# Points in each direction, for 1, 2, ... targets, and for more of them: a single point finds nothing.
_POINTS = (256, 48, 28, 12, 7, 5, 4, 3)
_POINTS_OF_MANY = 1


@dataclass(frozen=True)
class SearchGrid:
    """Points of a box, each in a cell; within 5 standard units the cells are equal, beyond they grow.

    Attributes:
        points: In standard units, shape (G, D); the last target changes fastest.
        spacing: The widths of their cells, shape (G, D).
        n_each: Points in each direction.
        places: Where evenly spaced points would lie.
        step: Their distance, shape (D,).
    """

    points: Tensor
    spacing: Tensor
    n_each: int
    places: Places
    step: Tensor

    @classmethod
    def over(cls, tail: Tail) -> "SearchGrid":
        """Over the box of a tail."""
        D = len(tail.low)
        n = _POINTS[D - 1] if len(_POINTS) >= D else _POINTS_OF_MANY
        places = Places.of_few(tail.low, tail.high)
        low, high = places.of(tail.low), places.of(tail.high)
        half_steps = torch.arange(2 * n + 1, dtype=low.dtype, device=low.device)[:, None]
        borders = places.targets(low + half_steps / (2 * n) * (high - low))  # of half cells, (2 n + 1, D)
        sides = borders[1::2], borders[::2].diff(dim=0)
        points, spacing = (torch.cartesian_prod(*side.T).view(-1, D) for side in sides)
        return cls(points, spacing, n, places, (high - low) / n)

    def spacing_at(self, y: Tensor) -> Tensor:
        """About how wide the cells are at targets (..., D): the same shape."""
        return self.step * self.places.growth(y)

    def drops(self, values: Tensor) -> Tensor:
        """How far values (G, B) fall from a point that is highest among its neighbours to the lowest.

        Neighbours are the points of the cells that touch its own. Zero at points with a higher neighbour.
        """
        is_top = values >= self._most(values)
        return torch.where(is_top, values + self._most(-values), 0.0)

    def _most(self, values: Tensor) -> Tensor:
        # The largest value among a point and its neighbours, (G, B): one direction after the other.
        D = self.points.shape[1]
        shape = (self.n_each,) * D
        for d in range(D):
            lines = values.view(*shape, -1).movedim(d, -1)
            flat = lines.reshape(1, -1, self.n_each)
            most = torch.nn.functional.max_pool1d(flat, 3, stride=1, padding=1)
            values = most.view(lines.shape).movedim(-1, d).reshape(math.prod(shape), -1)
        return values
