"""What there is to know about the targets before a training: their bounds, and whether they repeat."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ebreg.scaling import Bounds

_TIED_SHARE = 0.05  # of rows whose value another row has: above it the targets are taken for rounded
_ATOM_SHARE = 0.05  # of rows with one and the same value: above it the value is taken for an atom
_ATOM_WIDTH = 0.02  # given to an atom, in standard deviations of the target


def parse_bounds(bounds: Any, n_targets: int) -> Bounds:
    """Bounds from (low, high), or from one such pair for each target; None is an open end."""
    if bounds is None:
        return Bounds.none(n_targets)
    given = bounds.tolist() if hasattr(bounds, "tolist") else bounds  # arrays and tensors
    pairs = [given] if _is_pair(given) else list(given) if isinstance(given, Sequence) else []
    if len(pairs) == 1:
        pairs = pairs * n_targets
    if len(pairs) != n_targets or not all(_is_pair(pair) for pair in pairs):
        raise ValueError(
            f"bounds must be a pair (low, high), or one pair for each of the {n_targets} targets, with None "
            f"for an open end; got {bounds!r}"
        )
    low = [-torch.inf if pair[0] is None else float(pair[0]) for pair in pairs]
    high = [torch.inf if pair[1] is None else float(pair[1]) for pair in pairs]
    return Bounds(torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64))


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(end is None or isinstance(end, Real) for end in value)
    )


def originals(x: Tensor, y: Tensor) -> Tensor:
    """The targets (n, D) of rows that are not copies of others, as resampling with replacement makes them.

    Rows of the same x and the same y are taken for copies where hardly any have the same x and another y:
    else x is only coarse, and they are different observations.
    """
    rows = [row.tobytes() for row in x.flatten(1).cpu().numpy()]
    pairs = dict.fromkeys(zip(rows, map(tuple, y.tolist()), strict=True))
    if len(pairs) == len(y) or len(pairs) < 0.5 * len(y) or len(pairs) > 1.01 * len(set(rows)):
        return y
    return torch.tensor([target for _, target in pairs], dtype=y.dtype)


@dataclass(frozen=True)
class Ties:
    """How far apart the distinct values of tied targets are.

    Attributes:
        cells: Width of the cell that a value stands for, shape (D,); 0 for a target without ties.
    """

    cells: Tensor

    @classmethod
    def of(cls, y: Tensor) -> "Ties":
        """Of targets, shape (n, D)."""
        return cls(torch.stack([_cell(column) for column in y.double().T]))

    def __bool__(self) -> bool:
        return bool((self.cells > 0).any())

    def spread(self, y: Tensor, bounds: Bounds, seed: int) -> Tensor:
        """The targets, shape (n, D), each moved at random within its cell; those without ties as they are.

        A density can then be learned: it is the one that gives each cell the probability of its value.
        """
        generator = torch.Generator().manual_seed(seed)
        u = torch.rand(y.shape, generator=generator, dtype=torch.float64) - 0.5
        # Near an end a cell is cut. Spread evenly over what is left, the mean would move away from the end:
        # it is spread as far as the end is away, and at the end itself over a little: none piles up.
        room = torch.minimum(y.double() - bounds.low, bounds.high - y.double())
        half = torch.minimum(0.5 * self.cells, room).maximum(0.05 * self.cells)
        moved = y.double() + 2 * half * u
        moved = torch.where(moved < bounds.low, 2 * bounds.low - moved, moved)
        moved = torch.where(moved > bounds.high, 2 * bounds.high - moved, moved)
        return torch.where(self.cells > 0, moved, y.double()).clamp(bounds.low, bounds.high)

    def min_scale(self, unit: Tensor, least: float = 1e-3) -> float:
        """The smallest standard deviation a component may have, in units of each target, shape (D,)."""
        # A uniform cell has this deviation; the smallest tied one counts, as components share one floor.
        widths = (self.cells / unit)[self.cells > 0] / 12**0.5
        return max(least, widths.min().item()) if len(widths) else least


def _cell(values: Tensor) -> Tensor:
    distinct, counts = values.unique(return_counts=True)
    n = len(values)
    tied = counts[counts > 1].sum().item() / n
    if n < 2 or tied < _TIED_SHARE:
        return values.new_zeros(())
    largest = values.abs().max().clamp_min(torch.finfo(values.dtype).tiny)
    deviation = largest * (values / largest).std(unbiased=False)  # no square overflows or vanishes
    gaps = distinct.diff()
    # Sums of rounded numbers differ in their last digits: such gaps are not between different values.
    gaps = gaps[gaps > 1e-9 * (distinct[-1] - distinct[0])]
    cell = gaps.quantile(0.1) if 0 < len(gaps) < 2**23 else values.new_zeros(())
    if counts.max() > max(2, _ATOM_SHARE * n) or not len(gaps):
        cell = cell.clamp_min(_ATOM_WIDTH * (deviation if deviation > 0 else 1.0))
    return cell
