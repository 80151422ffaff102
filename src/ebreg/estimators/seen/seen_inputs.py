"""SeenInputs: the inputs that a regressor was trained on, in summary, and how unlike them others are."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.estimators.grouping import Grouping, Split
from ebreg.estimators.seen.column_ranges import RESOLUTION, ColumnRanges
from ebreg.estimators.seen.prototypes import Prototypes, whitened_rows
from ebreg.estimators.seen.row_groups import nearest_rows, taken_rows
from ebreg.estimators.seen.tail_quantile import joint_limits
from ebreg.estimators.tensor_record import TensorRecord

# The share of rows like the training rows whose score exceeds 1, about. The share by ranges is reached where
# columns are independent: where they are not, the ranges of several are left by the same rows.
SHARE = 0.01
_SHARE_BY_RANGE, _SHARE_BY_DISTANCE = 0.008, 0.006
# Rows that tails are measured on, and rows that prototypes are made of.
_ROWS_OF_TAILS, _ROWS_OF_PROTOTYPES = 10_000, 2_000
# Up to so many rows there are ten folds, and five beyond.
_FEW_ROWS = 1_000


@dataclass(frozen=True)
class SeenInputs(TensorRecord):
    """Ranges of the columns, and prototypes: means of two or more neighbouring rows.

    The score of a row is the largest of three, each divided by its limit:

    - how far a single column lies out of the range of the training rows,
    - the distance to the nearest prototype in standardised columns,
    - the same in whitened principal components, which sees combinations that break a dependence.

    Limits are set so that about one in a hundred new rows of the same kind exceeds 1: those of ranges by the
    tail of each column, those of distances by cross-fitting.

    The first fields are those of :class:`ColumnRanges`, the next those of :class:`Prototypes`, and ``limits``
    are those of both distances, shape (2,).
    """

    shift: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    below: Tensor
    above: Tensor
    mean: Tensor
    axes: Tensor
    spread: Tensor
    centres: Tensor
    radii: Tensor
    limits: Tensor

    def __post_init__(self) -> None:
        """Require shapes that fit each other."""
        C, K, P = *self.axes.shape, len(self.centres)
        shapes = {
            **dict.fromkeys(("shift", "scale", "low", "high", "below", "above", "mean"), (C,)),
            "spread": (K + (K < C),),
            "centres": (P, K + (K < C)),
            "radii": (P, 2),
            "limits": (2,),
        }
        for name, shape in shapes.items():
            if tuple(getattr(self, name).shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(getattr(self, name).shape)}")
        for name in ("scale", "below", "above", "spread", "limits"):
            if not (getattr(self, name) > 0).all():
                raise ValueError(f"{name} must be above 0")

    @classmethod
    def of(cls, columns: Tensor, seed: int = 0, grouping: Grouping | None = None) -> "SeenInputs":
        """Learn from the columns of the training rows.

        Args:
            columns: Shape (n, C).
            seed: Of the rows that are used where there are many, and of the folds.
            grouping: Rows that belong together: limits are those of rows of new groups.
        """
        grouping = grouping or Grouping(len(columns))
        order = _order(len(columns), seed)
        ends = torch.stack([columns.amin(dim=0), columns.amax(dim=0)]).double()
        independent = _distinct(columns, _one_of_each_group(order, grouping)[:_ROWS_OF_TAILS])
        ranges = ColumnRanges.of(ends, columns[independent].double(), _SHARE_BY_RANGE)
        chosen = _distinct(columns, order[:_ROWS_OF_PROTOTYPES])
        values = ranges.standardized(columns[chosen])
        nearest = nearest_rows(whitened_rows(values))
        prototypes = Prototypes.of(values, nearest)
        limits = _limits(values, nearest, _folds(grouping.take(chosen), seed))
        return cls(**vars(ranges), **vars(prototypes), limits=limits)

    def score(self, columns: Tensor) -> Tensor:
        """Above 1: beyond what 99 in 100 rows like the training rows have, (B, C) -> (B,)."""
        values = self._ranges.standardized(columns)
        distances = self._prototypes.distances(values) / self.limits
        return torch.maximum(self._ranges.score(values), distances.amax(dim=1))

    @property
    def _ranges(self) -> ColumnRanges:
        return ColumnRanges(self.shift, self.scale, self.low, self.high, self.below, self.above)

    @property
    def _prototypes(self) -> Prototypes:
        return Prototypes(self.mean, self.axes, self.spread, self.centres, self.radii)


def some_rows(n: int, seed: int) -> Tensor:
    """The numbers of the rows whose features are worth computing: at random, or all if they are few."""
    return _order(n, seed)[:_ROWS_OF_PROTOTYPES]


def _order(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def _one_of_each_group(order: Tensor, grouping: Grouping) -> Tensor:
    # Tails of rows that are like each other would look too short.
    return order if grouping.labels is None else order[_first_of_each(grouping.labels[order])]


def _distinct(columns: Tensor, rows: Tensor) -> Tensor:
    # One of each set of equal rows: a row that is compared with its own copy is like it.
    return rows[_first_of_each(columns[rows].unique(dim=0, return_inverse=True)[1])]


def _first_of_each(labels: Tensor) -> Tensor:
    # The place where each label stands first.
    _, group = labels.unique(return_inverse=True)
    place = torch.arange(len(labels))
    first = place.new_full((int(group.max()) + 1,), len(labels))
    return first.scatter_reduce_(0, group, place, "amin").sort().values


def _folds(grouping: Grouping, seed: int) -> list[Split]:
    grouping = Grouping(grouping.n_rows, grouping.labels)  # without the times
    n_units = grouping.n_rows if grouping.labels is None else len(grouping.labels.unique())
    n_folds = min(10 if grouping.n_rows <= _FEW_ROWS else 5, n_units)
    return grouping.folds(n_folds, seed) if n_folds > 1 else []


def _limits(values: Tensor, nearest: Tensor, folds: list[Split]) -> Tensor:
    # Of the distances of rows to prototypes of other rows.
    if not folds:
        return values.new_ones(2)
    distances = [
        Prototypes.of(values[others], taken_rows(nearest, others)).distances(values[rows])
        for others, rows in folds
    ]
    return joint_limits(torch.cat(distances), _SHARE_BY_DISTANCE).clamp_min(RESOLUTION)
