"""SearchGrid: points spread evenly over the box of the tail, which all rows share."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.units import Tail

# Points in each direction, for 1, 2, ... targets; with more targets a grid has too few to find anything.
_POINTS = (256, 48, 20, 10, 6, 4)


@dataclass(frozen=True)
class SearchGrid:
    """The centres of equal cells of a box.

    Attributes:
        points: In standard units, shape (G, D); the last target changes fastest.
        n_each: Points in each direction.
        spacing: Of the points, shape (D,).
    """

    points: Tensor
    n_each: int
    spacing: Tensor

    @classmethod
    def over(cls, tail: Tail) -> "SearchGrid | None":
        """Over the box of a tail; None where there are too many targets."""
        D = len(tail.low)
        if len(_POINTS) < D:
            return None
        n = _POINTS[D - 1]
        spacing = (tail.high - tail.low) / n
        steps = torch.arange(n, dtype=spacing.dtype, device=spacing.device) + 0.5
        points = torch.cartesian_prod(
            *(low + steps * step for low, step in zip(tail.low, spacing, strict=True))
        )
        return cls(points.view(-1, D), n, spacing)

    @property
    def log_cell(self) -> float:
        """Log of the volume of a cell."""
        return self.spacing.log().sum().item()

    def drops(self, values: Tensor) -> Tensor:
        """How far values (G, B) fall from a point that is highest among its neighbours to the lowest.

        Neighbours are the points of the cells that touch its own. Zero at points with a higher neighbour.
        """
        is_top = values >= self._most(values)
        return torch.where(is_top, values + self._most(-values), 0.0)

    def _most(self, values: Tensor) -> Tensor:
        # The largest value among a point and its neighbours, (G, B): one direction after the other.
        D = len(self.spacing)
        shape = (self.n_each,) * D
        for d in range(D):
            lines = values.view(*shape, -1).movedim(d, -1)
            flat = lines.reshape(1, -1, self.n_each)
            most = torch.nn.functional.max_pool1d(flat, 3, stride=1, padding=1)
            values = most.view(lines.shape).movedim(-1, d).reshape(math.prod(shape), -1)
        return values
