"""Conformal: scores of calibration rows, from which the size of sets with guaranteed coverage follows."""

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from ebreg.estimators.grouping import Grouping
from ebreg.estimators.tensor_record import TensorRecord

# Less weight than this is a rounding error.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Conformal(TensorRecord):
    r"""Scores of n calibration rows. A set that contains all targets of small enough scores covers.

    With the score of a new row exchangeable with these, the set of the smallest score c with

    .. math:: \textstyle\sum_i w_i \, 1\{s_i \le c\} \ge \text{coverage}

    covers with at least that probability. The weights leave some of the mass 1 to the new row, whose score
    may be infinite.

    Attributes:
        interval_scores: Of each target by itself, shape (n, D).
        region_scores: Of all targets together, shape (n,).
        weights: Shape (n,); 1 / (n + 1) each, or 1 / (G + 1) for each of G groups, divided among its rows.
    """

    interval_scores: Tensor
    region_scores: Tensor
    weights: Tensor

    def __post_init__(self) -> None:
        n = len(self.weights)
        fits = self.interval_scores.dim() == 2 and len(self.interval_scores) == n
        if not fits or self.region_scores.shape != (n,) or self.weights.shape != (n,) or n == 0:
            shapes = [tuple(tensor.shape) for tensor in self.tensors().values()]
            raise ValueError(f"Conformal has tensors of shapes (n, D), (n,) and (n,), got {shapes}")
        if not (self.weights > 0).all() or not self.weights.sum() < 1:
            raise ValueError("weights of Conformal must be above 0, and their sum below 1")

    @classmethod
    def of(cls, interval_scores: Tensor, region_scores: Tensor, grouping: Grouping) -> "Conformal":
        """Of scores of rows, (n, D) and (n,), each of which counts once, or each of their groups."""
        labels = torch.arange(len(region_scores)) if grouping.labels is None else grouping.labels
        _, labels, sizes = labels.unique(return_inverse=True, return_counts=True)
        weights = 1 / (len(sizes) + 1) / sizes[labels].double()
        # A score that is no number belongs to a row about which the model says nothing.
        interval_scores, region_scores = (
            scores.nan_to_num(nan=math.inf, posinf=math.inf) for scores in (interval_scores, region_scores)
        )
        return cls(interval_scores, region_scores, weights)

    @property
    def n_units(self) -> int:
        """How many rows, or groups, count."""
        total = self.weights.sum().item()
        return round(total / (1 - total))

    def interval_score(self, coverage: float) -> Tensor:
        """The scores, (D,), of intervals that cover each target with a probability."""
        columns = self.interval_scores.unbind(dim=1)
        return torch.stack([self._smallest(scores, coverage) for scores in columns])

    def region_score(self, coverage: float) -> float:
        """The score of regions that cover with a probability."""
        return self._smallest(self.region_scores, coverage).item()

    def _smallest(self, scores: Tensor, coverage: float) -> Tensor:
        # The smallest score that the weights allow.
        self._check(coverage)
        ordered, order = scores.sort()
        reached = self.weights[order].cumsum(dim=0) >= coverage - _ROUNDING
        return ordered[int(reached.nonzero()[0, 0]) if reached.any() else -1]

    def _check(self, coverage: float) -> None:
        n = self.n_units
        if coverage <= n / (n + 1) + _ROUNDING:
            return
        # As written, 0.9 needs 9 rows; as a binary number it would need one more.
        share = Fraction(repr(coverage))
        needed = math.ceil(share / (1 - share))
        units = "rows" if n == len(self.weights) else "groups"
        raise ValueError(
            f"coverage={coverage!r} needs at least {needed} {units} in conformalize, and there were {n}: "
            f"give more of them, or ask for a coverage of at most {math.floor(1e4 * n / (n + 1)) / 1e4:g}"
        )
