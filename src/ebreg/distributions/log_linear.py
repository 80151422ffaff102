r"""LogLinear: a batch of 1-D densities whose logarithm is linear between nodes.

Between two nodes the density is an exponential, outside the nodes it falls off exponentially, so the
normaliser, the distribution function, its inverse, the moments and the highest-density region are closed
forms of one object: they cannot disagree. Every row is computed from its own nodes alone.
"""

import math
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions.regions import Mode, Modes, Region

# Stands for -inf. Lower still, a cell would be so steep that its quantiles need more digits than float64 has.
_LOWEST = -1e5
# Below this level relative to the peak there is no mass that a float64 could hold.
_LOWEST_LEVEL = -1400.0
# Below this drop across a cell the closed forms of its moments cancel; their series are exact to about 1e-10.
_FLAT = 3e-3
# A drop that no other form can tell from zero; it stands in for zero where they divide by it.
_LEVEL = 1e-20
# The slowest decay allowed outside the nodes, in units of one over the span of the nodes.
_TAIL_RATE = 10.0
# The decay beyond a closed end: no mass that a float64 could hold, and still finite, so that 0 times it is 0.
_CLOSED_RATE = 1e300


class LogLinear:
    """Densities with piecewise linear log density, one for each of B rows.

    The line is cut into N + 1 cells: the left tail, N - 1 cells between nodes, the right tail. Inside a
    cell a position t in [0, 1] has density proportional to exp(d t), where d is the rise of the log density.

    Args:
        nodes: Ascending along the first axis, shape (N, B), N >= 2.
        log_f: Unnormalised log density at the nodes, shape (N, B); -inf counts as no mass.
        closed: Whether the density ends at the first node, and at the last: there is then no tail.
    """

    def __init__(self, nodes: Tensor, log_f: Tensor, closed: tuple[bool, bool] = (False, False)):
        checks.shape("nodes", nodes, ("N", "B"))
        checks.shape("log_f", log_f, tuple(nodes.shape))
        checks.at_least("N, the number of nodes,", nodes.shape[0], 2)
        # Rows first: searchsorted looks along the last axis. Float64: cdf(icdf(q)) = q needs it.
        self.nodes = nodes.detach().double().T.contiguous()
        log_f = log_f.detach().double().T
        self._peak = log_f.amax(dim=1).clamp_min(-1e300)  # (B,)
        self._log_f = (log_f - self._peak[:, None]).clamp(min=_LOWEST)  # (B, N)
        self._width = self.nodes.diff(dim=1)  # (B, N - 1)
        self._rise = self._log_f.diff(dim=1)  # (B, N - 1)
        span = (self.nodes[:, -1] - self.nodes[:, 0]).clamp_min(torch.finfo(torch.float64).tiny)
        slope = self._rise / self._width.clamp_min(torch.finfo(torch.float64).tiny)
        self._closed = closed
        left_rate, right_rate = (_CLOSED_RATE if end else _TAIL_RATE / span for end in closed)
        self._rate_left = slope[:, 0].clamp_min(left_rate)
        self._rate_right = (-slope[:, -1]).clamp_min(right_rate)

        top = torch.maximum(self._log_f[:, 1:], self._log_f[:, :-1])
        inner = self._width.log() + top + _log_mean_decay(self._rise.abs())
        left = self._log_f[:, :1] - self._rate_left[:, None].log()
        right = self._log_f[:, -1:] - self._rate_right[:, None].log()
        log_mass = torch.cat([left, inner, right], dim=1)  # (B, N + 1)
        self._log_z = log_mass.logsumexp(dim=1)
        self._mass = (log_mass - self._log_z[:, None]).exp()
        below = torch.cat([torch.zeros_like(left), self._mass.cumsum(dim=1)], dim=1)
        self._below = below / below[:, -1:]  # (B, N + 2): mass left of each cell, then 1

    @property
    def log_partition(self) -> Tensor:
        """Log of the integral of exp(log_f), shape (B,)."""
        return self._peak + self._log_z

    def log_prob(self, y: Tensor) -> Tensor:
        """Normalised log density: (Q, B) -> (Q, B)."""
        y, cell = self._locate(y)
        inner = (cell - 1).clamp(0, self._width.shape[1] - 1)
        t = (y - self._at(self.nodes, inner)) / self._at(self._width, inner).clamp_min(5e-324)
        value = self._at(self._log_f, inner) + t.clamp(0, 1) * self._at(self._rise, inner)
        left = self._log_f[:, :1] + self._rate_left[:, None] * (y - self.nodes[:, :1])
        right = self._log_f[:, -1:] - self._rate_right[:, None] * (y - self.nodes[:, -1:])
        value = torch.where(cell == 0, left, torch.where(cell == self.nodes.shape[1], right, value))
        return (value - self._log_z[:, None]).masked_fill(self._outside(y), -torch.inf).T

    def cdf(self, y: Tensor) -> Tensor:
        """Distribution function: (Q, B) -> (Q, B)."""
        y, cell = self._locate(y)
        inner = (cell - 1).clamp(0, self._width.shape[1] - 1)
        t = ((y - self._at(self.nodes, inner)) / self._at(self._width, inner).clamp_min(5e-324)).clamp(0, 1)
        share = _share_below(t, self._at(self._rise, inner))
        left = (self._rate_left[:, None] * (y - self.nodes[:, :1])).clamp(max=0).exp()
        right = -torch.expm1(-(self._rate_right[:, None] * (y - self.nodes[:, -1:])).clamp(min=0))
        share = torch.where(cell == 0, left, torch.where(cell == self.nodes.shape[1], right, share))
        below, above = self._at(self._below, cell), self._at(self._below, cell + 1)
        return (below + share * (above - below)).T

    def icdf(self, q: Tensor) -> Tensor:
        """Inverse of the distribution function: (Q, B) -> (Q, B)."""
        q = q.double().T.contiguous()
        cell = torch.searchsorted(self._below[:, 1:].contiguous(), q).clamp(max=self.nodes.shape[1])
        below, above = self._at(self._below, cell), self._at(self._below, cell + 1)
        share = ((q - below) / (above - below).clamp_min(5e-324)).clamp(0, 1)
        return self._inside(cell, share).T

    @cached_property
    def mean(self) -> Tensor:
        """Shape (B,)."""
        centre, _ = self._cell_moments()
        return (self._mass * centre).sum(dim=1)

    @cached_property
    def variance(self) -> Tensor:
        """Shape (B,)."""
        centre, spread = self._cell_moments()
        return (self._mass * ((centre - self.mean[:, None]) ** 2 + spread)).sum(dim=1)

    def equal_mass_points(self, n_per_cell: int = 4) -> tuple[Tensor, Tensor]:
        """Points and weights that integrate against the density: Gauss-Legendre in the mass of each cell.

        Returns:
            Points, shape (n, B), and weights, shape (n, B), that sum to 1 over the first axis.
        """
        roots, weights = (part.to(self.nodes) for part in gauss_legendre(n_per_cell))
        B, n_cells = self._mass.shape
        cell = torch.arange(n_cells, device=roots.device).repeat_interleave(n_per_cell).expand(B, -1)
        points = self._inside(cell, roots.repeat(n_cells).expand(B, -1))
        return points.T, (self._below.diff(dim=1)[:, :, None] * weights).flatten(1).T

    def modes(self, prominence: float = 0.2) -> Modes:
        """Local maxima that rise by at least ``prominence`` (in log density) above the pass to a higher one.

        The masses are those of the hills between the lowest points that separate the maxima.
        """
        rows = []
        for nodes, log_f, log_z, below in zip(
            self.nodes, self._log_f, self._log_z, self._below[:, 1:-1], strict=True
        ):
            peaks, valleys = _peaks(log_f.tolist(), prominence)
            edges = torch.cat([below.new_zeros(1), below[valleys], below.new_ones(1)])
            masses, order = edges.diff().sort(descending=True, stable=True)
            tops = torch.tensor(peaks)[order.cpu()]
            rows.append(Mode(nodes[tops, None], masses, log_f[tops] - log_z))
        return Modes(tuple(rows))

    def highest_density_region(self, mass: float) -> Region:
        """The smallest union of intervals that holds ``mass``."""
        low, high = torch.full_like(self._log_z, _LOWEST_LEVEL), torch.zeros_like(self._log_z)
        for _ in range(64):  # halves an interval of 1400 to below 1e-15
            middle = 0.5 * (low + high)
            enough = self._mass_above(middle) >= mass
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        return Region(
            mass,
            low - self._log_z,
            lambda y: self.log_prob(y.reshape(math.prod(y.shape[:-2]), y.shape[-2])).reshape(y.shape[:-1]),
            self._level_intervals(low),
        )

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, which maps (n, B) to (n, B, ...); returns (B, ...)."""
        points, weights = self.equal_mass_points()
        values = fn(points)
        return (weights.reshape(weights.shape + (1,) * (values.dim() - 2)) * values).sum(dim=0)

    def _locate(self, y: Tensor) -> tuple[Tensor, Tensor]:
        # Rows first, with the cell of each value: 0 is the left tail, N the right one.
        y = y.double().T.contiguous()
        return y, torch.searchsorted(self.nodes, y, right=True)

    def _outside(self, y: Tensor) -> Tensor:
        # Beyond a closed end, (B, Q) -> (B, Q).
        below = (y < self.nodes[:, :1]) & self._closed[0]
        return below | ((y > self.nodes[:, -1:]) & self._closed[1])

    def _inside(self, cell: Tensor, share: Tensor) -> Tensor:
        # The value that has this share of its cell's mass to its left, (B, n).
        inner = (cell - 1).clamp(0, self._width.shape[1] - 1)
        t = _inverse_share(share, self._at(self._rise, inner))
        value = self._at(self.nodes, inner) + t * self._at(self._width, inner)
        left = self.nodes[:, :1] + share.log() / self._rate_left[:, None]
        right = self.nodes[:, -1:] - torch.log1p(-share) / self._rate_right[:, None]
        value = torch.where(cell == 0, left, torch.where(cell == self.nodes.shape[1], right, value))
        value = value.maximum(self.nodes[:, :1]) if self._closed[0] else value
        return value.minimum(self.nodes[:, -1:]) if self._closed[1] else value

    @staticmethod
    def _at(rows: Tensor, index: Tensor) -> Tensor:
        return rows.gather(1, index)

    def _cell_moments(self) -> tuple[Tensor, Tensor]:
        # Mean and variance of y inside each cell, (B, N + 1).
        first, second = _decay_moments(self._rise.abs())
        towards_right = torch.where(self._rise > 0, 1 - first, first)
        centre = self.nodes[:, :-1] + self._width * towards_right
        spread = self._width**2 * (second - first**2).clamp_min(0)
        left, right = 1 / self._rate_left[:, None], 1 / self._rate_right[:, None]
        return (
            torch.cat([self.nodes[:, :1] - left, centre, self.nodes[:, -1:] + right], dim=1),
            torch.cat([left**2, spread, right**2], dim=1),
        )

    def _mass_above(self, level: Tensor) -> Tensor:
        # Mass where the log density (before normalisation) is at least the level, (B,).
        top = torch.maximum(self._log_f[:, 1:], self._log_f[:, :-1])
        drop = self._rise.abs()
        depth = (top - level[:, None]).clamp_min(0)
        t = torch.where(drop > 0, depth / drop.clamp_min(5e-324), (depth > 0).double()).clamp(0, 1)
        inner = self._mass[:, 1:-1] * _share_below(t, -drop)
        left = self._mass[:, 0] * -torch.expm1(-(self._log_f[:, 0] - level).clamp_min(0))
        right = self._mass[:, -1] * -torch.expm1(-(self._log_f[:, -1] - level).clamp_min(0))
        return inner.sum(dim=1) + left + right

    def _level_intervals(self, level: Tensor) -> tuple[Tensor, ...]:
        # The density is continuous, so the region runs from each up-crossing to the next down-crossing.
        inside = self._log_f >= level[:, None]
        t = (level[:, None] - self._log_f[:, :-1]) / torch.where(self._rise == 0, 1.0, self._rise)
        crossing = self.nodes[:, :-1] + t.clamp(0, 1) * self._width
        first = self.nodes[:, :1] - ((self._log_f[:, 0] - level) / self._rate_left)[:, None]
        last = self.nodes[:, -1:] + ((self._log_f[:, -1] - level) / self._rate_right)[:, None]
        first = self.nodes[:, :1] if self._closed[0] else first
        last = self.nodes[:, -1:] if self._closed[1] else last
        starts_here = torch.cat([inside[:, :1], ~inside[:, :-1] & inside[:, 1:]], dim=1)
        ends_here = torch.cat([inside[:, :-1] & ~inside[:, 1:], inside[:, -1:]], dim=1)
        starts, ends = torch.cat([first, crossing], dim=1), torch.cat([crossing, last], dim=1)
        return tuple(
            torch.stack([start[s], end[e]], dim=1)
            for start, s, end, e in zip(starts, starts_here, ends, ends_here, strict=True)
        )


def _log_mean_decay(drop: Tensor) -> Tensor:
    """Log of the mean of exp(-drop t) over t in [0, 1]."""
    drop = drop.clamp_min(_LEVEL)
    return (-torch.expm1(-drop) / drop).log()


def _decay_moments(drop: Tensor) -> tuple[Tensor, Tensor]:
    """First and second moment of t in [0, 1] with density proportional to exp(-drop t)."""
    safe = drop.clamp_min(_FLAT)
    rest = 1 / torch.expm1(safe)
    first = torch.where(drop < _FLAT, 0.5 - drop / 12, 1 / safe - rest)
    second = torch.where(drop < _FLAT, 1 / 3 - drop / 12 + drop**2 / 360, 2 / safe**2 - (1 + 2 / safe) * rest)
    return first, second


def _share_below(t: Tensor, rise: Tensor) -> Tensor:
    """Share of a cell's mass at positions below t, for log density t * rise."""
    # Measured from the high end the exponent is negative, so nothing overflows.
    drop = rise.abs().clamp_min(_LEVEL)
    s = torch.where(rise > 0, 1 - t, t)
    share = torch.expm1(-drop * s) / torch.expm1(-drop)
    return torch.where(rise > 0, 1 - share, share)


def _inverse_share(share: Tensor, rise: Tensor) -> Tensor:
    """Inverse of :func:`_share_below` in its first argument."""
    drop = rise.abs().clamp_min(_LEVEL)
    r = torch.where(rise > 0, 1 - share, share)
    s = (-torch.log1p(r * torch.expm1(-drop)) / drop).clamp(0, 1)
    return torch.where(rise > 0, 1 - s, s)


def gauss_legendre(n: int) -> tuple[Tensor, Tensor]:
    """Points and weights on [0, 1], each of shape (n,)."""
    # Golub and Welsch: the roots are the eigenvalues of the recurrence's matrix, here moved to [0, 1].
    k = torch.arange(1, n, dtype=torch.float64)
    off = k / (4 * k**2 - 1).sqrt()
    roots, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return (roots + 1) / 2, vectors[0] ** 2


def _peaks(log_f: list[float], prominence: float) -> tuple[list[int], list[int]]:
    """Indices of the prominent maxima and of the lowest points between them."""
    steps = [i for i, value in enumerate(log_f) if i == 0 or value != log_f[i - 1]]
    ends = [*steps[1:], len(log_f)]
    peaks = [
        (start + end - 1) // 2  # a plateau counts once, in its middle
        for start, end in zip(steps, ends, strict=True)
        if (start == 0 or log_f[start - 1] < log_f[start])
        and (end == len(log_f) or log_f[end] < log_f[start])
    ]
    valleys = [min(range(p, q), key=log_f.__getitem__) for p, q in pairwise(peaks)]
    while valleys:
        rises = [
            min(log_f[p], log_f[q]) - log_f[v] for (p, q), v in zip(pairwise(peaks), valleys, strict=True)
        ]
        least = min(range(len(rises)), key=rises.__getitem__)
        if rises[least] >= prominence:
            break
        lower = least if log_f[peaks[least]] < log_f[peaks[least + 1]] else least + 1
        del peaks[lower], valleys[least]
    return peaks, valleys
