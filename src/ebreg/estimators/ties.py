"""Ties: targets that share values, because they were rounded, clipped or are often zero."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.units import Bounds

_TIED_SHARE = 0.05  # a target is tied if more of its rows share their value with another row
_ATOM_SHARE = 0.05  # a value is an atom if more of the rows have it
_ATOM_WIDTH = 0.02  # width of an atom's interval, in robust standard deviations of the target
_QUARTILES_OF_GAUSSIAN = 1.349  # their distance, in standard deviations


@dataclass(frozen=True)
class TiedTarget:
    """The rounding intervals of one target.

    Attributes:
        width: Width of the rounding interval of every value, that is the rounding step; 0 without rounding.
        atoms: Values that many rows share, such as 0 of a target that is often 0, shape (n_atoms,).
        atom_width: Width of the interval of an atom.
    """

    width: float
    atoms: Tensor
    atom_width: float

    @classmethod
    def of(cls, values: Tensor) -> "TiedTarget":
        """Find the ties of a target, shape (n,)."""
        distinct, counts = values.unique(return_counts=True)
        n = len(values)
        none = cls(0.0, values.new_empty(0), 0.0)
        if n < 2 or counts[counts > 1].sum().item() < _TIED_SHARE * n:
            return none
        gaps = distinct.diff()
        # Sums of rounded numbers differ in their last digits: gaps that small do not count.
        gaps = gaps[gaps > 1e-9 * (distinct[-1] - distinct[0])]
        if not len(gaps):
            return cls(0.0, distinct, _ATOM_WIDTH * _spread(values, values))
        is_atom = counts > max(2.0, _ATOM_SHARE * n)
        others, n_others = counts[~is_atom], counts[~is_atom].sum().item()
        atoms, rest = distinct[is_atom], values[~torch.isin(values, distinct[is_atom])]
        # A target that has no ties beside its atoms was clipped or is often 0, and not rounded. If nearly all
        # rows are atoms, it was rounded if all values are a whole number of steps apart.
        if n_others < _TIED_SHARE * n:
            steps = (distinct - distinct[0]) / gaps.min()
            rounded = bool(((steps - steps.round()).abs() < 0.01).all())
        else:
            rounded = others[others > 1].sum().item() >= _TIED_SHARE * n_others
        width = gaps.quantile(0.1).item() if rounded and len(gaps) < 2**23 else 0.0
        atom_width = max(width, _ATOM_WIDTH * _spread(values, rest)) if len(atoms) else 0.0
        return cls(width, atoms, atom_width)

    def widths(self, values: Tensor) -> Tensor:
        """Widths of the rounding intervals of some values, (n,) -> (n,)."""
        widths = torch.full_like(values, self.width)
        return torch.where(torch.isin(values, self.atoms), self.atom_width, widths)

    @property
    def narrowest(self) -> float:
        """Width of the narrowest interval; 0 without ties."""
        return min((width for width in (self.width, self.atom_width) if width > 0), default=0.0)


@dataclass(frozen=True)
class Ties:
    """The rounding intervals of all targets."""

    targets: tuple[TiedTarget, ...]

    @classmethod
    def of(cls, y: Tensor) -> "Ties":
        """Find the ties of targets, shape (n, D)."""
        return cls(tuple(TiedTarget.of(column) for column in y.double().T))

    @classmethod
    def among(cls, x: Tensor, y: Tensor) -> "Ties":
        """Find the ties of targets (n, D) with inputs (n, ...); copies of whole rows are no ties."""
        ties = cls.of(y)
        return cls.of(_originals(x, y)) if ties else ties

    def __bool__(self) -> bool:
        return any(target.narrowest > 0 for target in self.targets)

    def spread(self, y: Tensor, bounds: Bounds, seed: int) -> Tensor:
        """The targets, shape (n, D), each moved at random within its rounding interval.

        A density can then be learned, which gives each interval the probability of its value. Targets without
        ties are not moved.
        """
        y = y.double()
        generator = torch.Generator().manual_seed(seed)
        u = torch.rand(y.shape, generator=generator, dtype=torch.float64) - 0.5
        columns = zip(self.targets, y.T, strict=True)
        widths = torch.stack([target.widths(column) for target, column in columns], dim=1)
        # Near a bound the interval is narrower: as wide as keeps it symmetric around the value, so that the
        # mean does not move away from the bound. At the bound itself it keeps a twentieth of its width, so
        # that values do not pile up there.
        room = torch.minimum(y - bounds.low, bounds.high - y)
        half = torch.minimum(0.5 * widths, room).maximum(0.05 * widths)
        moved = y + 2 * half * u
        moved = torch.where(moved < bounds.low, 2 * bounds.low - moved, moved)
        moved = torch.where(moved > bounds.high, 2 * bounds.high - moved, moved)
        return torch.where(widths > 0, moved.clamp(bounds.low, bounds.high), y)

    def min_scale(self, unit: Tensor, least: float = 1e-3) -> float:
        """Smallest standard deviation of a mixture component, in standard units.

        Args:
            unit: Scale of each target, shape (D,).
            least: The smallest without ties.
        """
        # That of a uniform distribution over the narrowest interval: all components share one minimum.
        widths = [
            target.narrowest / scale / 12**0.5
            for target, scale in zip(self.targets, unit.tolist(), strict=True)
            if target.narrowest > 0
        ]
        return max(least, min(widths)) if widths else least


def _spread(values: Tensor, rest: Tensor) -> float:
    """A robust standard deviation, above 0; ``rest`` are the values that are not atoms."""
    largest = values.abs().max().clamp_min(torch.finfo(values.dtype).tiny)
    deviation = (largest * (values / largest).std(unbiased=False)).item()  # no square overflows or underflows
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
    """The targets (n, D) without copies of rows, such as those of a bootstrap sample.

    Rows with the same x and y are copies if hardly any rows have the same x and a different y. Otherwise x is
    coarse, and they are different observations.
    """
    rows = [row.tobytes() for row in x.flatten(1).cpu().numpy()]
    pairs = dict.fromkeys(zip(rows, map(tuple, y.tolist()), strict=True))
    if len(pairs) == len(y) or len(pairs) < 0.5 * len(y) or len(pairs) > 1.01 * len(set(rows)):
        return y
    return torch.tensor([target for _, target in pairs], dtype=y.dtype)
