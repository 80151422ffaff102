"""Ties: targets that repeat each other, because they were rounded or because many rows share a value."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.units import Bounds

_TIED_SHARE = 0.05  # of rows whose value another row has: above it the targets count as tied
_ATOM_SHARE = 0.05  # of rows with one and the same value: above it the value counts as an atom
_ATOM_WIDTH = 0.02  # given to an atom, in robust standard deviations of the target
_QUARTILES_OF_GAUSSIAN = 1.349  # their distance, in standard deviations


@dataclass(frozen=True)
class TiedTarget:
    """How the values of one target are spread.

    Attributes:
        cell: Width of the cell that every value stands for: the step of rounding; 0 where there is none.
        atoms: Values that many rows share, such as 0 of a target that is often 0, shape (n_atoms,).
        atom_cell: Width given to those.
    """

    cell: float
    atoms: Tensor
    atom_cell: float

    @classmethod
    def of(cls, values: Tensor) -> "TiedTarget":
        """Of a target, shape (n,)."""
        distinct, counts = values.unique(return_counts=True)
        n = len(values)
        none = cls(0.0, values.new_empty(0), 0.0)
        if n < 2 or counts[counts > 1].sum().item() < _TIED_SHARE * n:
            return none
        gaps = distinct.diff()
        # Sums of rounded numbers differ in their last digits: such gaps are not between different values.
        gaps = gaps[gaps > 1e-9 * (distinct[-1] - distinct[0])]
        if not len(gaps):
            return cls(0.0, distinct, _ATOM_WIDTH * _spread(values, values))
        is_atom = counts > max(2.0, _ATOM_SHARE * n)
        others, n_others = counts[~is_atom], counts[~is_atom].sum().item()
        atoms, rest = distinct[is_atom], values[~torch.isin(values, distinct[is_atom])]
        # Without its atoms a target may have no ties: then it was clipped or is often 0, and not rounded.
        # Where next to nothing is left without them, it is rounded if all values are whole steps apart.
        if n_others < _TIED_SHARE * n:
            steps = (distinct - distinct[0]) / gaps.min()
            rounded = bool(((steps - steps.round()).abs() < 0.01).all())
        else:
            rounded = others[others > 1].sum().item() >= _TIED_SHARE * n_others
        cell = gaps.quantile(0.1).item() if rounded and len(gaps) < 2**23 else 0.0
        atom_cell = max(cell, _ATOM_WIDTH * _spread(values, rest)) if len(atoms) else 0.0
        return cls(cell, atoms, atom_cell)

    def widths(self, values: Tensor) -> Tensor:
        """Of the cells that values stand for, (n,) -> (n,)."""
        cells = torch.full_like(values, self.cell)
        return torch.where(torch.isin(values, self.atoms), self.atom_cell, cells)

    @property
    def narrowest(self) -> float:
        """Width of the narrowest cell; 0 without ties."""
        return min((width for width in (self.cell, self.atom_cell) if width > 0), default=0.0)


@dataclass(frozen=True)
class Ties:
    """How the values of all targets are spread."""

    targets: tuple[TiedTarget, ...]

    @classmethod
    def of(cls, y: Tensor) -> "Ties":
        """Of targets, shape (n, D)."""
        return cls(tuple(TiedTarget.of(column) for column in y.double().T))

    @classmethod
    def among(cls, x: Tensor, y: Tensor) -> "Ties":
        """Of targets (n, D) with their inputs (n, ...); rows that are mere copies of others are no ties."""
        ties = cls.of(y)
        return cls.of(_originals(x, y)) if ties else ties

    def __bool__(self) -> bool:
        return any(target.narrowest > 0 for target in self.targets)

    def spread(self, y: Tensor, bounds: Bounds, seed: int) -> Tensor:
        """The targets, shape (n, D), each moved at random within its cell; those without ties as they are.

        A density can then be learned: it is the one that gives each cell the probability of its value.
        """
        y = y.double()
        generator = torch.Generator().manual_seed(seed)
        u = torch.rand(y.shape, generator=generator, dtype=torch.float64) - 0.5
        columns = zip(self.targets, y.T, strict=True)
        cells = torch.stack([target.widths(column) for target, column in columns], dim=1)
        # Near an end a cell is cut. Spread evenly over what is left, the mean would move away from the end:
        # it is spread as far as the end is away, and at the end itself over a little: none piles up.
        room = torch.minimum(y - bounds.low, bounds.high - y)
        half = torch.minimum(0.5 * cells, room).maximum(0.05 * cells)
        moved = y + 2 * half * u
        moved = torch.where(moved < bounds.low, 2 * bounds.low - moved, moved)
        moved = torch.where(moved > bounds.high, 2 * bounds.high - moved, moved)
        return torch.where(cells > 0, moved.clamp(bounds.low, bounds.high), y)

    def min_scale(self, unit: Tensor, least: float = 1e-3) -> float:
        """The smallest standard deviation a component may have, in units of each target, shape (D,)."""
        # An even cell has this deviation; the smallest tied one counts, as components share one floor.
        widths = [
            target.narrowest / scale / 12**0.5
            for target, scale in zip(self.targets, unit.tolist(), strict=True)
            if target.narrowest > 0
        ]
        return max(least, min(widths)) if widths else least


def _spread(values: Tensor, rest: Tensor) -> float:
    """A deviation that neither a long tail nor the atoms decide, above 0; ``rest`` are those beside atoms."""
    largest = values.abs().max().clamp_min(torch.finfo(values.dtype).tiny)
    deviation = (largest * (values / largest).std(unbiased=False)).item()  # no square overflows or vanishes
    distance = _quartile_distance(values) or _quartile_distance(rest)
    known = [spread for spread in (distance / _QUARTILES_OF_GAUSSIAN, deviation) if spread > 0]
    return min(known, default=1.0)


def _quartile_distance(values: Tensor) -> float:
    n = len(values)
    if not n:
        return 0.0
    low, high = (values.kthvalue(max(1, round(share * n))).values for share in (0.25, 0.75))
    return (high - low).item()


def _originals(x: Tensor, y: Tensor) -> Tensor:
    """The targets (n, D) of rows that are not copies of others, as resampling with replacement makes them.

    Rows of the same x and the same y are taken for copies where hardly any have the same x and another y:
    else x is only coarse, and they are different observations.
    """
    rows = [row.tobytes() for row in x.flatten(1).cpu().numpy()]
    pairs = dict.fromkeys(zip(rows, map(tuple, y.tolist()), strict=True))
    if len(pairs) == len(y) or len(pairs) < 0.5 * len(y) or len(pairs) > 1.01 * len(set(rows)):
        return y
    return torch.tensor([target for _, target in pairs], dtype=y.dtype)
