"""Prototypes: means of small groups of rows, and the distance of a row to the nearest of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.estimators.seen.principal_axes import eigenvectors, leading_axes
from ebreg.estimators.seen.row_groups import groups_of_neighbours

GROUP_SIZE = 2
# Of more columns than that, only so many principal components are compared one by one.
_MOST_COLUMNS, _N_COMPONENTS = 64, 32
# Variances below it are not told from 0, in standard units.
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True)
class Prototypes:
    """Means of groups of rows, in principal components of the standardised columns.

    Attributes:
        mean: Of the rows, shape (C,).
        axes: The components, as columns, shape (C, K).
        spread: Standard deviation of each coordinate: of the K components and, where K < C, of the
            distance from their subspace, shape (K,) or (K + 1,).
        centres: Coordinates of the means, shape (P, K) or (P, K + 1), in single precision.
        radii: The mean distance of a group's rows to their mean, plain and whitened, shape (P, 2).
    """

    mean: Tensor
    axes: Tensor
    spread: Tensor
    centres: Tensor
    radii: Tensor

    @classmethod
    def of(cls, values: Tensor, nearest: Tensor) -> "Prototypes":
        """Of rows in standard units, (n, C), and the numbers of their nearest rows, (n, k)."""
        mean = values.mean(dim=0)
        axes, coordinates, spread = _components(values - mean)
        order = (coordinates / spread).norm(dim=1).argsort(descending=True, stable=True)
        group = groups_of_neighbours(nearest, order, GROUP_SIZE)
        centres = _means(coordinates, group).float()
        radii = [_means((coordinates - centres[group]).div(s).norm(dim=1), group) for s in (1.0, spread)]
        return cls(mean, axes, spread, centres, torch.stack(radii, dim=1))

    def distances(self, values: Tensor) -> Tensor:
        """From the nearest group: plain and whitened distance, less the group's radius, (B, C) -> (B, 2)."""
        x = _coordinates(values - self.mean, self.axes)
        centres = self.centres.double()
        plain = _nearest(x, centres, self.radii[:, 0])
        whitened = _nearest(x / self.spread, centres / self.spread, self.radii[:, 1])
        return torch.stack([plain, whitened], dim=1)


def whitened_rows(values: Tensor) -> Tensor:
    """Principal components of variance 1: (n, C) -> (n, K)."""
    _, coordinates, spread = _components(values - values.mean(dim=0))
    return coordinates / spread


def _components(centred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # The axes, the coordinates along them and their standard deviations.
    n, C = centred.shape
    if C > _MOST_COLUMNS:
        axes = leading_axes(centred, _N_COMPONENTS)
    else:
        axes = eigenvectors(centred.T @ centred / n)
    coordinates = _coordinates(centred, axes)
    spread = coordinates.square().mean(dim=0).clamp_min(_LEAST_VARIANCE).sqrt()
    return axes, coordinates, spread


def _coordinates(centred: Tensor, axes: Tensor) -> Tensor:
    # Column by column: the digits of a matrix product may depend on the number of rows.
    x = centred.new_zeros(len(centred), axes.shape[1])
    square = centred.new_zeros(len(centred))
    for column, axis in zip(centred.T, axes, strict=True):
        x = x.addcmul_(column[:, None], axis)
        square = square.addcmul_(column, column)
    if len(axes) == axes.shape[1]:
        return x
    for column in x.T:
        square = square.addcmul_(column, column, value=-1)
    return torch.cat([x, square.clamp_min(0).sqrt()[:, None]], dim=1)


def _means(values: Tensor, group: Tensor) -> Tensor:
    totals = values.new_zeros(int(group.max()) + 1, *values.shape[1:]).index_add_(0, group, values)
    return totals / group.bincount().view(-1, *[1] * (values.dim() - 1))


def _nearest(x: Tensor, centres: Tensor, radii: Tensor) -> Tensor:
    distances = torch.cdist(x, centres, compute_mode="donot_use_mm_for_euclid_dist")
    return (distances - radii).amin(dim=1).clamp_min(0)
