"""Level sets: which part of a density's level stretch belongs to a region that holds a given mass.

Where a density is level at the threshold of its region, the part above the threshold holds less than was
asked and the part at or above it more. All choices between them are equally small.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ebreg import importance

# Log densities closer to each other than this are level: in single precision they err by as much.
LEVEL = 1e-6
# Draws at one level count as a level stretch if they hold at least this mass.
_LEAST_MASS = 0.01
# Less mass than this, too much or too little, is a rounding error.
_EXACT = 1e-9

# The parts of each row at or above a level, (n_i, 2) each, from levels (B,).
Intervals = tuple[Tensor, ...]


def intervals_of_mass(
    at_least: Callable[[Tensor], Intervals],
    level: Tensor,
    mass: float,
    cdf: Callable[[Tensor], Tensor],
    icdf: Callable[[Tensor], Tensor],
) -> Intervals:
    """The parts of densities at or above a level; where they are level there, a part of these with some mass.

    Args:
        at_least: Turns levels, (B,), into the parts of each row that are at least as high, (n_i, 2) each.
        level: The highest level at which the parts hold the mass, shape (B,).
        mass: That was asked for.
        cdf: (Q, B) -> (Q, B).
        icdf: Its inverse, (Q, B) -> (Q, B).

    Returns:
        Shape (n_i, 2) for each row.
    """
    found, outer = at_least(level), at_least(level - LEVEL)
    held = (_masses(found, cdf) * torch.tensor([[-1.0], [1.0]]).to(level)).sum(dim=(0, 1))
    is_level = (held - mass).abs() > _EXACT
    rows = [row for row in range(len(level)) if is_level[row] or len(outer[row]) < len(found[row])]
    if not rows:
        return found
    inner = at_least(level + LEVEL)
    spans = [_spans(parts, _masses(parts, cdf), rows) for parts in (inner, outer)]
    chosen = [filled(some, all_, mass) for some, all_ in zip(*spans, strict=True)]
    filled_in = dict(zip(rows, _with_values(chosen, rows, level, icdf), strict=True))
    return tuple(filled_in.get(row, parts) for row, parts in enumerate(found))


def masses_reaching(
    at_least: Callable[[Tensor], Intervals],
    level: Tensor,
    shares: Tensor,
    cdf: Callable[[Tensor], Tensor],
    rows: list[int],
) -> list[float]:
    """The masses at which regions reach values in level stretches, for some rows.

    Args:
        at_least: As in :func:`intervals_of_mass`.
        level: Of the values, shape (B,).
        shares: The mass below them, shape (B,).
        cdf: (Q, B) -> (Q, B).
        rows: Their numbers.
    """
    inner, outer = (
        _spans(parts, _masses(parts, cdf), rows)
        for parts in (at_least(level + LEVEL), at_least(level - LEVEL))
    )
    return [mass_reaching(*each) for each in zip(inner, outer, shares[rows].tolist(), strict=True)]


def hpd_mass_by_draws(
    log_density: Tensor, weights: Tensor, first: Tensor, log_p: Tensor, y: Tensor
) -> Tensor:
    """The mass of draws that enter a highest-density region before values do.

    These are the draws with a higher density and, where the density is level as :func:`cut_of` says, those of
    its level with a smaller first target.

    Args:
        log_density: Of the draws, shape (M, B).
        weights: Summing to 1 over the draws, shape (M, B).
        first: Their first target, shape (M, B).
        log_p: Log density of the values, shape (..., B).
        y: The values, shape (..., B, D).

    Returns:
        Shape (..., B).
    """
    shape = (log_p.shape[:-1].numel(), log_density.shape[1])
    pairs = zip(log_p.reshape(shape), y[..., 0].reshape(shape), strict=True)
    masses = [_before(log_density, weights, first, level, value) for level, value in pairs]
    return torch.stack(masses).reshape(log_p.shape) if masses else log_p


def _before(log_density: Tensor, weights: Tensor, first: Tensor, log_p: Tensor, value: Tensor) -> Tensor:
    # For one value of each row, (B,).
    distance = log_density - log_p
    at_level = torch.where((distance.abs() <= LEVEL) & (weights > 0), weights, 0.0)
    is_level = at_level.sum(dim=0) > _LEAST_MASS
    # The difference of two infinite densities is not a number, and such draws are not before the value.
    before = torch.where(is_level, distance > LEVEL, distance > 0)
    mass = torch.where(before, weights, 0.0).sum(dim=0)
    return (mass + torch.where(is_level & (first < value), at_level, 0.0).sum(dim=0)).clamp(0, 1)


def _masses(parts: Intervals, cdf: Callable[[Tensor], Tensor]) -> Tensor:
    # To the left of starts and of ends, (n, 2, B), in rows with fewer parts filled up by one without mass.
    n = max(1, *(len(row) for row in parts)) if parts else 1
    rows = [torch.cat([row, row.new_zeros(n - len(row), 2)]) for row in parts]
    padded = torch.stack(rows, dim=-1) if rows else torch.zeros(n, 2, 0, dtype=torch.float64)
    return cdf(padded.flatten(0, 1)).view(padded.shape)


def _spans(parts: Intervals, masses: Tensor, rows: list[int]) -> list[list["Span"]]:
    # Of some of the rows.
    return [
        [
            Span(*below, *ends)
            for below, ends in zip(masses[..., row].tolist(), parts[row].tolist(), strict=False)
        ]
        for row in rows
    ]


def _with_values(
    chosen: list[list["Span"]], rows: list[int], like: Tensor, icdf: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    # Spans of some rows as intervals, (n_i, 2) each.
    levels = like.new_full((max(len(spans) for spans in chosen), 2, len(like)), 0.5)
    for row, spans in zip(rows, chosen, strict=True):
        for i, span in enumerate(spans):
            levels[i, :, row] = levels.new_tensor([span.low, span.high])
    values = icdf(levels.flatten(0, 1).clamp(0, 1)).view(levels.shape)
    for row, spans in zip(rows, chosen, strict=True):
        for i, span in enumerate(spans):
            for end, value in enumerate((span.start, span.end)):
                if not math.isnan(value):
                    values[i, end, row] = value
    return [values[: len(spans), :, row] for row, spans in zip(rows, chosen, strict=True)]


@dataclass(frozen=True)
class Span:
    """A stretch of a row between two values.

    Attributes:
        low: The mass to the left of its start.
        high: The mass to the left of its end.
        start: The value there; NaN: the quantile of ``low``.
        end: Likewise.
    """

    low: float
    high: float
    start: float
    end: float

    @property
    def mass(self) -> float:
        """The mass of the stretch."""
        return max(0.0, self.high - self.low)


def filled(inner: Sequence[Span], outer: Sequence[Span], mass: float) -> list[Span]:
    """Of the regions between two, one with a given mass and as few intervals as possible.

    What lies between the two regions is level. Gaps of the inner region are closed first, the smallest first,
    since each makes one interval of two. Then its ends grow, from the left to the right. Where that is not
    enough, stretches by themselves are taken, the largest first, and of the last one the middle. Regions of
    more mass contain those of less.

    Args:
        inner: The part that belongs to all, ascending; perhaps none.
        outer: What may be taken, ascending; it contains the inner region.
        mass: That was asked for: at least that of the inner region, at most that of the outer one.

    Returns:
        Ascending and disjoint.
    """
    taken, need = list(inner), mass - sum(span.mass for span in inner)
    for span, origin in _growth(inner, outer):
        share = min(span.mass, need)
        if share > 0:
            taken.append(_part(span, origin * (span.mass - share), share))
            need -= share
    return _joined(taken)


def mass_reaching(inner: Sequence[Span], outer: Sequence[Span], share: float) -> float:
    """The mass at which the region of :func:`filled` reaches a value with ``share`` of the mass below it."""
    mass = sum(span.mass for span in inner)
    if any(span.low <= share <= span.high for span in inner):
        return mass
    for span, origin in _growth(inner, outer):
        if span.low <= share <= span.high:
            left, right = share - span.low, span.high - share
            return mass + {0.0: left, 0.5: abs(left - right), 1.0: right}[origin]
        mass += span.mass
    return mass


def _growth(inner: Sequence[Span], outer: Sequence[Span]) -> list[tuple[Span, float]]:
    # What the outer region has beyond the inner one, in the order in which it is taken, and where each
    # stretch starts: 0 at its left end, 0.5 in its middle, 1 at its right end.
    gaps, sides, alone = _between(inner, outer)
    return [
        *((gap, 0.0) for gap in sorted(gaps, key=lambda gap: gap.mass)),
        *((side, 0.0 if grows_right else 1.0) for side, grows_right in sides),
        *((span, 0.5) for span in sorted(alone, key=lambda span: -span.mass)),
    ]


def _between(
    inner: Sequence[Span], outer: Sequence[Span]
) -> tuple[list[Span], list[tuple[Span, bool]], list[Span]]:
    # What the outer region has beyond the inner one: gaps of the inner one; stretches beside it, and whether
    # they lie to the right of it; stretches that do not touch it.
    gaps, sides, alone = [], [], []
    for span in outer:
        within = [one for one in inner if span.start <= one.end and one.start <= span.end]
        if not within:
            alone.append(span)
            continue
        first, last = within[0], within[-1]
        sides.append((Span(span.low, first.low, span.start, first.start), False))
        gaps += [Span(a.high, b.low, a.end, b.start) for a, b in pairwise(within)]
        sides.append((Span(last.high, span.high, last.end, span.end), True))
    return gaps, sides, alone


def _part(span: Span, skipped: float, share: float) -> Span:
    # The part of a stretch with some mass, after some that is skipped.
    low = span.low + skipped
    high = low + share
    return Span(
        low if skipped > 0 else span.low,
        high if high < span.high else span.high,
        math.nan if skipped > 0 else span.start,
        math.nan if high < span.high else span.end,
    )


def _joined(spans: list[Span]) -> list[Span]:
    # In order, with those that touch as one.
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.low, span.high)):
        if joined and joined[-1].end == span.start:
            before = joined.pop()
            span = Span(before.low, span.high, before.start, span.end)
        joined.append(span)
    return joined


def cut_of(log_density: Tensor, weights: Tensor, y: Tensor, threshold: Tensor, mass: float) -> Tensor:
    """Where draws of several targets at the threshold's level are cut: the largest first target that remains.

    The draws above the level and those at it with at most this value hold ``mass``. No density can tell the
    latter from the others of the level.

    Args:
        log_density: Shape (M, B).
        weights: Summing to 1 over the draws, shape (M, B).
        y: The first target, shape (M, B).
        threshold: Shape (B,).
        mass: That was asked for.

    Returns:
        Shape (B,); infinite in rows whose density is not level there.
    """
    distance = log_density - threshold
    # Draws without mass may have log densities of -inf.
    is_level = (distance.abs() <= LEVEL) & (weights > 0)
    at_level = torch.where(is_level, weights, 0.0)
    above = torch.where(distance > LEVEL, weights, 0.0).sum(dim=0)
    held = at_level.sum(dim=0)
    share = ((mass - above) / held.clamp_min(1e-300)).clamp(0, 1)
    cut = torch.full_like(held, torch.inf)
    for row in ((held > _LEAST_MASS) & (share < 1)).nonzero()[:, 0].tolist():
        some = is_level[:, row]
        level = share[row].clamp_min(1e-12)
        chosen = weights[some, row] / weights[some, row].sum()
        cut[row] = importance.quantile(y[some, row][:, None], chosen[:, None], level.item())
    return cut
