"""Quadrature1D: p(y | x) of one target, as one density in closed form."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ebreg import importance, sampling
from ebreg._utils import checks
from ebreg.distributions import check_mass, quantiles
from ebreg.distributions.cubic import interpolated
from ebreg.distributions.log_linear import LogLinear
from ebreg.distributions.regions import Modes, Region
from ebreg.predictive.protocol import Energy, flat
from ebreg.predictive.support import Support

_WEAK_ERROR = 0.05
# Where the first nodes of a tail are, in widths of it: the energy is a parabola there.
_TAIL = torch.tensor([0.2, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8], dtype=torch.float64)
# And those beside a closed end, in widths of the whole: a density may rise without limit there.
_NEAR = 2.0 ** -torch.arange(6, 17, dtype=torch.float64)


class Quadrature1D:
    """p(y | x) for one target, by nodes and interpolation between them.

    Cubics between the nodes give four times as many, and between those the log density is linear. Half of the
    nodes lie at the proposal's quantiles and evenly over the support; the other half where those have shown
    mass, so mass that the proposal misses is found and resolved.

    Args:
        energy: f(x, .) of the batch: (N, B, 1) -> (N, B).
        proposal: Shape (B,), with ``from_uniform``.
        n_rows: B.
        support: Where the mass can be; None: the proposal's reach.
        n_nodes: Nodes a row, tails apart.
        n_draws: Draws for the diagnostics of the proposal.
    """

    def __init__(
        self,
        energy: Energy,
        proposal: Any,
        n_rows: int,
        support: Support | None = None,
        n_nodes: int = 512,
        n_draws: int = 512,
    ):
        checks.at_least("n_nodes", n_nodes, 16)
        checks.at_least("n_draws", n_draws, 1)
        self.proposal = proposal
        self._energy, self._B, self._n_draws = energy, n_rows, n_draws
        closed = (False, False)
        if support is not None:
            closed = (bool(support.closed[0]), bool(support.closed[1]))
        nodes = self._first_nodes(n_nodes // 4, support)
        log_f = self._evaluate(nodes)
        # A cell errs by about p times its width cubed: nodes as dense as the cube root of p err least.
        curve = LogLinear(nodes, log_f / 3, closed)
        levels = (torch.arange(n_nodes // 2, dtype=torch.float64, device=nodes.device) + 0.5) / (n_nodes // 2)
        more = curve.icdf(levels[:, None].expand(-1, n_rows))
        nodes, order = torch.cat([nodes, more]).sort(dim=0)
        log_f = torch.cat([log_f, self._evaluate(more)]).gather(0, order)
        self._curve = LogLinear(*interpolated(nodes, log_f), closed)
        half = torch.arange(len(nodes), device=nodes.device) % 2 == 0
        half[-1] = True
        self._coarse = LogLinear(*interpolated(nodes[half], log_f[half]), closed)

    @property
    def mean(self) -> Tensor:
        """Shape (B, 1)."""
        return self._curve.mean[:, None]

    @property
    def variance(self) -> Tensor:
        """Shape (B, 1)."""
        return self._curve.variance[:, None]

    @property
    def stddev(self) -> Tensor:
        """Shape (B, 1)."""
        return self.variance.sqrt()

    @property
    def covariance(self) -> Tensor:
        """Shape (B, 1, 1)."""
        return self.variance[..., None]

    @property
    def log_partition(self) -> Tensor:
        """Shape (B,)."""
        return self._curve.log_partition

    @property
    def log_partition_error(self) -> Tensor:
        """What leaving out every other node changes, several times the error. Shape (B,)."""
        return (self._curve.log_partition - self._coarse.log_partition).abs()

    @property
    def effective_sample_size(self) -> Tensor:
        """Of the proposal's draws, shape (B,). The answers do not rest on them; they judge the proposal."""
        return importance.effective_sample_size(*self._ratios)

    @property
    def pareto_k(self) -> Tensor:
        """Of the proposal's draws, shape (B,)."""
        return importance.pareto_k(*self._ratios)

    @property
    def weak(self) -> Tensor:
        """Rows whose log Z is not known to 0.05, shape (B,)."""
        return self.log_partition_error > _WEAK_ERROR

    def log_prob(self, y: Tensor) -> Tensor:
        """Log density of the interpolant, a proper density: it cannot flatter. (..., B, 1) -> (..., B)."""
        return self._curve.log_prob(flat(y, self._B, 1)[..., 0]).reshape(y.shape[:-1])

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (n, B, 1)."""
        u = torch.rand(n, self._B, dtype=torch.float64, generator=generator, device=self._curve.nodes.device)
        return self._curve.icdf(u)[..., None]

    def cdf(self, y: Tensor) -> Tensor:
        """(..., B, 1) -> (..., B)."""
        return self._curve.cdf(flat(y, self._B, 1)[..., 0]).reshape(y.shape[:-1])

    def icdf(self, q: Tensor | float) -> Tensor:
        """Levels (), (Q,) or (Q, B) -> (B, 1) or (Q, B, 1)."""
        return quantiles(self._curve.icdf, q, self._B, 1)

    def quantile(self, q: Tensor | float) -> Tensor:
        """As :meth:`icdf`: one target is its own marginal."""
        return self.icdf(q)

    def modes(self) -> Modes:
        """Local maxima with the mass of their hills."""
        return self._curve.modes()

    def highest_density_region(self, mass: float) -> Region:
        """The smallest union of intervals that holds ``mass``."""
        check_mass(mass)
        return self._curve.highest_density_region(mass)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, (M, B, 1) -> (M, B, ...)."""
        return self._curve.expectation(lambda y: fn(y[..., None]))

    def _first_nodes(self, n: int, support: Support | None) -> Tensor:
        # Even points through from_uniform lie at quantiles of the components: as good, and without a search.
        levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
        quantile = self.proposal.from_uniform(levels[:, None, None].expand(-1, self._B, -1))
        quantile = quantile[..., 0].double().sort(dim=0).values
        low, high = quantile[0], quantile[-1]
        width = high - low
        if support is not None:
            ends = (support.low, support.high, support.width)
            low, high, width = (end.double().expand_as(low) for end in ends)
        closed_low, closed_high = (False, False) if support is None else map(bool, support.closed)
        t = torch.linspace(0, 1, n, dtype=torch.float64, device=low.device)[:, None]
        even = low + t * (high - low)
        even[-1] = high  # rounding must not move the end itself
        out, near = _TAIL.to(low.device)[:, None] * width, _NEAR.to(low.device)[:, None] * (high - low)
        left = low + near if closed_low else low - out
        right = high - near if closed_high else high + out
        nodes = torch.cat([quantile, even, left, right]).sort(dim=0).values
        return nodes if support is None else nodes.clamp(*(end.double() for end in support.limits))

    def _evaluate(self, nodes: Tensor) -> Tensor:
        with torch.no_grad():
            return self._energy(nodes[..., None]).double()

    @cached_property
    def _ratios(self) -> tuple[Tensor, Tensor]:
        u = sampling.sobol(self._n_draws, 1).to(self._curve.nodes.device)
        with torch.no_grad():
            draws = self.proposal.from_uniform(u[:, None].expand(-1, self._B, -1))
            return self._energy(draws), self.proposal.log_prob(draws)
