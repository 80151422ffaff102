r"""LogLinear: densities of one target whose logarithm is linear between nodes.

Between two nodes the density is an exponential, outside the nodes it falls off exponentially, so the
normaliser, the cdf, its inverse, the moments and the highest-density region are closed forms of one object:
they cannot disagree. Every row is computed from its own nodes alone.

Answers are differentiable with respect to the log density at the nodes. The nodes themselves are constants.
"""

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from ebreg._utils import checks, gradients
from ebreg.distributions import level_sets, segments
from ebreg.distributions.gauss_legendre import gauss_legendre
from ebreg.distributions.log_linear_parts import Ends, Parts, with_more_nodes
from ebreg.distributions.mass_above import MassAbove
from ebreg.distributions.peaks import peaks_and_valleys
from ebreg.distributions.quantiles import quantiles
from ebreg.distributions.regions import Mode, Modes, Region

_SMALLEST = 5e-324
# Two levels so far apart have a level stretch between them if they differ by this much mass.
_STEP, _JUMP = 1e-9, 1e-6
# Stands for a log density of minus infinity where differences have to be numbers.
_BOTTOM = -1e300
# Numbers that are kept for every node: those of ``Parts``, and the mass below.
_N_KEPT = 7
# Stands for an infinite distance from the nodes, in units of their span.
_FAR = 1e30


class LogLinear:
    """Densities of one target with piecewise linear log density, one for each of B rows.

    The line is cut into N + 1 segments: the left tail, N - 1 segments between nodes, the right tail. Inside a
    segment a position t in [0, 1] has density proportional to exp(d t), where d is the rise of the log
    density. Nodes may coincide: a segment of width 0 holds no mass, so rows are padded by repeated nodes.

    All computations are in units of the span of a row's nodes, so any unit of y gives the same answers.

    Args:
        nodes: Ascending along the last axis, shape (B, N), N >= 2. Not differentiated.
        log_f: Unnormalised log density at the nodes, shape (B, N); -inf counts as no mass.
        bounded: Whether the density ends at the first node, and at the last: there is then no tail.
        n_parts: Cubics cut every segment between the nodes given into so many.
        support: Lower and upper bound, where ``bounded`` says that there is one; None: the first and the last
            node. In rows whose nodes end before a bound the tail ends there; it must have no mass beyond that
            counts.
    """

    def __init__(
        self,
        nodes: Tensor,
        log_f: Tensor,
        bounded: tuple[bool, bool] = (False, False),
        n_parts: int = 1,
        support: tuple[float, float] | None = None,
    ):
        checks.shape("nodes", nodes, ("B", "N"))
        checks.shape("log_f", log_f, tuple(nodes.shape))
        checks.at_least("N, the number of nodes,", nodes.shape[1], 2)
        # Float64: cdf(icdf(q)) = q needs it.
        self._knots, self._values = nodes.detach().double(), log_f.double()
        self.bounded, self.support, self._n_parts = bounded, support, n_parts
        if gradients.tracked(log_f):
            _ = self._parts  # now: a first question without gradients would keep one without a graph

    def __len__(self) -> int:
        return len(self._knots)

    @property
    def n_bytes(self) -> int:
        """Memory that it takes when it has been asked everything."""
        B, N = self._knots.shape
        return (_N_KEPT * (self._n_parts * (N - 1) + 1) + 2 * N) * B * self._knots.element_size()

    @property
    def nodes(self) -> Tensor:
        """Ascending, shape (B, n), float64: those given, and those between them."""
        return self._parts.nodes

    @property
    def log_integral(self) -> Tensor:
        """Log of the integral of exp log_f, shape (B,)."""
        return self._parts.log_integral

    @property
    def mean(self) -> Tensor:
        """Shape (B, 1)."""
        return self._parts.first + self._parts.span * self._relative_mean

    @property
    def variance(self) -> Tensor:
        """Shape (B, 1)."""
        return self._parts.span**2 * self._relative_variance

    @property
    def stddev(self) -> Tensor:
        """Shape (B, 1)."""
        return self._parts.span * gradients.sqrt(self._relative_variance)  # no square of a huge or tiny unit

    @property
    def covariance(self) -> Tensor:
        """Shape (B, 1, 1)."""
        return self.variance[..., None]

    def log_prob(self, y: Tensor) -> Tensor:
        """Normalised log density: (..., B, 1) -> (..., B)."""
        y = checks.numbers("y", y)
        rows = self._rows_of(y)
        z, segment = self._locate(rows)
        inner = (segment - 1).clamp(0, self._parts.width.shape[1] - 1)
        t = (z - self._parts.z.gather(1, inner)) / self._parts.width.gather(1, inner).clamp_min(_SMALLEST)
        value = self._parts.log_f.gather(1, inner) + t.clamp(0, 1) * self._parts.rise.gather(1, inner)
        left = self._parts.log_f[:, :1] + self._parts.rate_left * z
        right = self._parts.log_f[:, -1:] - self._parts.rate_right * (z - self._parts.z[:, -1:])
        value = self._by_segment(segment, left, value, right)
        value = value - (self._parts.log_z + self._parts.log_unit)[:, None]
        beneath, beyond = self._outside(rows)
        value = value.masked_fill(beneath | beyond, -math.inf)
        return value.T.reshape(y.shape[:-1])

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y): (..., B, 1) -> (..., B)."""
        y = checks.numbers("y", y)
        rows = self._rows_of(y)
        z, segment = self._locate(rows)
        z = z.clamp(-_FAR, _FAR)  # 0 times infinity would reach the gradients
        inner = (segment - 1).clamp(0, self._parts.width.shape[1] - 1)
        t = (z - self._parts.z.gather(1, inner)) / self._parts.width.gather(1, inner).clamp_min(_SMALLEST)
        share = segments.share_below(t.clamp(0, 1), self._parts.rise.gather(1, inner))
        left = (self._parts.rate_left * z).clamp(max=0).exp()
        right = -torch.expm1(-(self._parts.rate_right * (z - self._parts.z[:, -1:])).clamp(min=0))
        beneath, beyond = self._outside(rows)
        left, right = left.masked_fill(beneath, 0), right.masked_fill(beyond, 1)
        share = self._by_segment(segment, left, share, right)
        below, above = self._below.gather(1, segment), self._below.gather(1, segment + 1)
        return (below + share * (above - below)).T.reshape(y.shape[:-1])

    def icdf(self, q: Tensor | float) -> Tensor:
        """Quantiles: levels (), (Q,) or (Q, B) in (0, 1) -> (B, 1) or (Q, B, 1)."""
        return quantiles(self.at_levels, q, len(self), 1)

    quantile = icdf  # one target is its own marginal

    def at_levels(self, q: Tensor) -> Tensor:
        """The inverse of the cdf at levels in [0, 1], unchecked: (Q, B) -> (Q, B)."""
        q = q.to(self.nodes)
        with torch.no_grad():
            y = self._search(q)
        if not self._is_tracked:
            return y
        density = self.log_prob(y[..., None]).detach().exp()
        sparsity = gradients.sparsity(density, q, self._parts.span[:, 0])
        return gradients.quantile(y, self.cdf(y[..., None]), sparsity)

    def _search(self, q: Tensor) -> Tensor:
        q = q.T.contiguous()
        segment = torch.searchsorted(self._below[:, 1:].contiguous(), q).clamp(max=self.nodes.shape[1])
        below, above = self._below.gather(1, segment), self._below.gather(1, segment + 1)
        share = ((q - below) / (above - below).clamp_min(_SMALLEST)).clamp(0, 1)
        return self._inside(segment, share).T

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, shape (n, B, 1), not differentiated."""
        n = checks.at_least("n", n, 0)
        u = torch.rand(n, len(self), dtype=torch.float64, generator=generator, device=self.nodes.device)
        return self.at_levels(u)[..., None]

    @torch.no_grad()
    def equal_mass_points(self, n_per_segment: int = 4) -> tuple[Tensor, Tensor]:
        """Points and weights that integrate against the density: Gauss-Legendre in the mass of each segment.

        Returns:
            Points, shape (n, B), and weights, shape (n, B), that sum to 1 over the first axis; neither is
            differentiated.
        """
        roots, weights = (part.to(self.nodes) for part in gauss_legendre(n_per_segment))
        B, n_segments = self._parts.mass.shape
        segment = torch.arange(n_segments, device=roots.device).repeat_interleave(n_per_segment).expand(B, -1)
        points = self._inside(segment, roots.repeat(n_segments).expand(B, -1))
        return points.T, (self._below.diff(dim=1)[:, :, None] * weights).flatten(1).T

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, which maps (M, B, 1) to (M, B, ...); returns (B, ...)."""
        points, weights = self.equal_mass_points()
        if self._is_tracked:
            weights = gradients.weights_of_fixed_points(weights, self.log_prob(points[..., None]))
        values = fn(points[..., None])
        return (weights.reshape(weights.shape + (1,) * (values.dim() - 2)) * values).sum(dim=0)

    @torch.no_grad()
    def modes(self, prominence: float = 0.2) -> Modes:
        """Local maxima that rise by at least ``prominence`` (in log density) above the pass to a higher one.

        The masses are those of the hills between the lowest points that separate the maxima. Not
        differentiated.
        """
        rows = []
        log_z = self._parts.log_z + self._parts.log_unit
        for nodes, log_f, log_norm, below in zip(
            self.nodes, self._parts.log_f, log_z, self._below[:, 1:-1], strict=True
        ):
            peaks, valleys = peaks_and_valleys(log_f.tolist(), prominence)
            edges = torch.cat([below.new_zeros(1), below[valleys], below.new_ones(1)])
            masses, order = edges.diff().sort(descending=True, stable=True)
            tops = torch.tensor(peaks)[order.cpu()]
            rows.append(Mode(nodes[tops, None], masses, log_f[tops] - log_norm))
        return Modes(tuple(rows))

    @torch.no_grad()
    def highest_density_region(self, mass: float) -> Region:
        """The smallest union of intervals that holds ``mass``; not differentiated.

        Where the density is level at the threshold there are many, and this is one of as few intervals as
        possible; see :class:`Region`.
        """
        mass = checks.fraction("mass", mass)
        level = MassAbove.of(self._parts).level_of(mass)
        threshold = level - self._parts.log_z - self._parts.log_unit
        intervals = level_sets.intervals_of_mass(
            self._level_intervals, level, mass, lambda y: self.cdf(y[..., None]), self._search
        )
        return Region(mass, threshold, self.log_prob, intervals)

    @torch.no_grad()
    def region_above(self, log_threshold: Tensor, mass: float) -> Region:
        """Where the log density is at least a threshold, (B,), said to hold ``mass``."""
        level = (log_threshold + self._parts.log_z + self._parts.log_unit).clamp_min(_BOTTOM)
        return Region(mass, log_threshold, self.log_prob, self._level_intervals(level))

    @torch.no_grad()
    def hpd_mass(self, y: Tensor) -> Tensor:
        """The mass of the highest-density region that y just enters: (..., B, 1) -> (..., B)."""
        y = checks.numbers("y", y)
        levels = self.log_prob(y) + self._parts.log_z + self._parts.log_unit
        shape = (levels.shape[:-1].numel(), len(self))
        rows = zip(self.cdf(y).reshape(shape), levels.reshape(shape), strict=True)
        masses = [self._mass_before(share, level.clamp_min(_BOTTOM)) for share, level in rows]
        return torch.stack(masses).reshape(levels.shape) if masses else levels

    def _mass_before(self, share: Tensor, level: Tensor) -> Tensor:
        # The mass of the region that a value of some level just enters, with this share of the mass below it;
        # (B,) each.
        above, rows = MassAbove.of(self._parts), torch.arange(len(self), device=level.device)
        least, most = (-above(level + step, rows)[0] for step in (_STEP, -_STEP))
        mass = 0.5 * (least + most)
        at_level = (most - least > _JUMP).nonzero()[:, 0]
        if len(at_level):
            reached = level_sets.masses_reaching(
                self._level_intervals, level, share, lambda y: self.cdf(y[..., None]), at_level.tolist()
            )
            mass = mass.index_copy(0, at_level, mass.new_tensor(reached))
        return mass.clamp(0, 1)

    def _rows_of(self, y: Tensor) -> Tensor:
        # (..., B, 1) -> (B, Q); a wrong shape would otherwise broadcast into a wrong answer.
        checks.shape("y", y, (*["..."] * (y.dim() - 2), len(self), 1))
        return y.reshape(math.prod(y.shape[:-2]), len(self)).to(self.nodes).T.contiguous()

    def _locate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        # Positions in units of the span, and segments: 0 is the left tail, N the right one. (B, Q) each.
        return (rows - self._parts.first) / self._parts.span, torch.searchsorted(self.nodes, rows, right=True)

    def _outside(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        # Whether values are beyond the lower bound, and beyond the upper one, (B, Q) -> two of (B, Q).
        low, high = self._ends
        return (rows < low) & self.bounded[0], (rows > high) & self.bounded[1]

    @property
    def _ends(self) -> tuple[Tensor, Tensor]:
        # Where the rows end that are bounded, (B, 1) each.
        first, last = self._knots[:, :1], self._knots[:, -1:]
        if self.support is None:
            return first, last
        return first.new_full(first.shape, self.support[0]), last.new_full(last.shape, self.support[1])

    @property
    def _ends_at_nodes(self) -> Ends:
        if self.support is None:
            return self.bounded
        (low, high), (below, above) = self._ends, self.bounded
        return (self._knots[:, :1] <= low) & below, (self._knots[:, -1:] >= high) & above

    def _by_segment(self, segment: Tensor, left: Tensor, inner: Tensor, right: Tensor) -> Tensor:
        return torch.where(segment == 0, left, torch.where(segment == self.nodes.shape[1], right, inner))

    def _inside(self, segment: Tensor, share: Tensor) -> Tensor:
        # The value that has this share of its segment's mass to its left, (B, n).
        inner = (segment - 1).clamp(0, self._parts.width.shape[1] - 1)
        t = segments.inverse_share(share, self._parts.rise.gather(1, inner))
        z = self._parts.z.gather(1, inner) + t * self._parts.width.gather(1, inner)
        left = share.log() / self._parts.rate_left
        right = self._parts.z[:, -1:] - torch.log1p(-share) / self._parts.rate_right
        return self._to_units(self._by_segment(segment, left, z, right))

    def _to_units(self, z: Tensor) -> Tensor:
        # Rounding must not move a value beyond a bound.
        y = self._parts.first + self._parts.span * z
        low, high = self._ends
        y = y.maximum(low) if self.bounded[0] else y
        return y.minimum(high) if self.bounded[1] else y

    @cached_property
    def _parts(self) -> Parts:
        # On the first question: means, say, may be known without.
        return Parts.of(*with_more_nodes(self._knots, self._values, self._n_parts), self._ends_at_nodes)

    @property
    def _below(self) -> Tensor:
        # Mass left of each segment, and then 1, (B, N + 2). What is kept has no graph.
        return self._cumulated() if self._is_tracked else self._kept_below

    @cached_property
    def _kept_below(self) -> Tensor:
        with torch.no_grad():
            return self._cumulated()

    def _cumulated(self) -> Tensor:
        below = torch.cat([torch.zeros_like(self._parts.mass[:, :1]), self._parts.mass.cumsum(dim=1)], dim=1)
        return below / below[:, -1:]

    @property
    def _is_tracked(self) -> bool:
        return gradients.tracked(self._parts.log_f)

    # Mean and variance in units of the span, (B, 1) each. What is kept has no graph.

    @property
    def _relative_mean(self) -> Tensor:
        return self._mean() if self._is_tracked else self._kept_mean

    @cached_property
    def _kept_mean(self) -> Tensor:
        with torch.no_grad():
            return self._mean()

    def _mean(self) -> Tensor:
        parts = self._parts
        centre = torch.addcmul(parts.z[:, :-1], parts.width, segments.mean_position(parts.rise))
        mass, left, right = parts.mass[:, 1:-1], parts.mass[:, :1], parts.mass[:, -1:]
        tails = right * (parts.z[:, -1:] + 1 / parts.rate_right) - left / parts.rate_left
        return (mass * centre).sum(dim=1, keepdim=True) + tails

    @property
    def _relative_variance(self) -> Tensor:
        return self._variance() if self._is_tracked else self._kept_variance

    @cached_property
    def _kept_variance(self) -> Tensor:
        with torch.no_grad():
            return self._variance()

    def _variance(self) -> Tensor:
        centre, spread = self._segment_moments()
        return (self._parts.mass * ((centre - self._relative_mean) ** 2 + spread)).sum(dim=1, keepdim=True)

    def _segment_moments(self) -> tuple[Tensor, Tensor]:
        # Mean and variance of z inside each segment, (B, N + 1).
        place, spread = segments.moments(self._parts.rise)
        centre = self._parts.z[:, :-1] + self._parts.width * place
        spread = self._parts.width**2 * spread
        left, right = 1 / self._parts.rate_left, 1 / self._parts.rate_right
        return (
            torch.cat([-left, centre, self._parts.z[:, -1:] + right], dim=1),
            torch.cat([left**2, spread, right**2], dim=1),
        )

    def _level_intervals(self, level: Tensor) -> tuple[Tensor, ...]:
        # The density is continuous, so the region runs from each up-crossing to the next down-crossing.
        level = level[:, None]
        inside = self._parts.log_f >= level
        t = (level - self._parts.log_f[:, :-1]) / torch.where(self._parts.rise == 0, 1.0, self._parts.rise)
        crossing = self._parts.z[:, :-1] + t.clamp(0, 1) * self._parts.width
        first = -(self._parts.log_f[:, :1] - level) / self._parts.rate_left
        last = self._parts.z[:, -1:] + (self._parts.log_f[:, -1:] - level) / self._parts.rate_right
        starts_here = torch.cat([inside[:, :1], ~inside[:, :-1] & inside[:, 1:]], dim=1)
        ends_here = torch.cat([inside[:, :-1] & ~inside[:, 1:], inside[:, -1:]], dim=1)
        starts = self._to_units(torch.cat([first, crossing], dim=1))
        ends = self._to_units(torch.cat([crossing, last], dim=1))
        pairs = torch.stack([starts[starts_here], ends[ends_here]], dim=1)  # of all rows, one after the other
        return pairs.split(starts_here.sum(dim=1).tolist())
