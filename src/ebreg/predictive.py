"""What can be asked of p(y | x), and who answers for an energy-based model with its proposal.

:class:`Predictive` is the protocol. :class:`Quadrature1D` answers for one target, :class:`ImportanceND` for
several, :class:`ebreg.distributions.GaussianMixture` for itself, and :class:`Rescaled` adds the user's units.
A row's answer never depends on the other rows of the batch.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ebreg import checks, importance, objectives, uniforms
from ebreg.ascent import modes_by_ascent
from ebreg.distributions import GaussianMixture, check_mass, quantiles
from ebreg.loglinear import LogLinear
from ebreg.proposals import widened
from ebreg.regions import Modes, Region

Energy = Callable[[Tensor], Tensor]


@runtime_checkable
class Predictive(Protocol):
    """The questions; B rows, D targets."""

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""

    @property
    def proposal(self) -> Any:
        """The distribution the draws come from."""

    @property
    def effective_sample_size(self) -> Tensor:
        """How many independent draws of p the proposal's draws are worth, shape (B,)."""

    @property
    def pareto_k(self) -> Tensor:
        """Tail index of the importance ratios, shape (B,); above 0.7 they are not to be trusted."""

    @property
    def log_partition(self) -> Tensor:
        """Log of the normaliser Z(x), shape (B,)."""

    @property
    def log_partition_error(self) -> Tensor:
        """Standard error of log Z(x), shape (B,)."""

    def log_prob(self, y: Tensor) -> Tensor:
        """Normalised log density: (..., B, D) -> (..., B)."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (n, B, D)."""

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y in every target): (..., B, D) -> (..., B)."""

    def icdf(self, q: Tensor | float) -> Tensor:
        """Quantiles of a single target: (Q,) -> (Q, B, 1)."""

    def modes(self) -> Modes:
        """Local maxima with the mass of their hills."""

    def highest_density_region(self, mass: float) -> Region:
        """The smallest region that holds ``mass``."""

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, which maps (M, B, D) to (M, B, ...); returns (B, ...)."""


class Quadrature1D:
    """p(y | x) for one target, by nodes and log-linear interpolation between them.

    Half of the nodes lie at the proposal's quantiles and evenly over the support; the other half where those
    have shown mass, so mass that the proposal misses is found and resolved.

    Args:
        energy: f(x, .) of the batch: (N, B, 1) -> (N, B).
        proposal: Shape (B,), with ``from_uniform``.
        n_rows: B.
        support: Low end, high end and width of the tails, each of shape (1,); None: the proposal's reach.
        n_nodes: Nodes a row, tails apart.
        n_draws: Draws for the diagnostics of the proposal.
    """

    def __init__(
        self,
        energy: Energy,
        proposal: Any,
        n_rows: int,
        support: tuple[Tensor, Tensor, Tensor] | None = None,
        n_nodes: int = 512,
        n_draws: int = 512,
    ):
        checks.at_least("n_nodes", n_nodes, 16)
        self.proposal = proposal
        self._energy, self._B, self._n_draws = energy, n_rows, n_draws
        nodes = self._first_nodes(n_nodes // 4, support)
        log_f = self._evaluate(nodes)
        # A cell errs by about p times its width cubed: nodes as dense as the cube root of p err least.
        curve = LogLinear(nodes, log_f / 3)
        levels = (torch.arange(n_nodes // 2, dtype=torch.float64, device=nodes.device) + 0.5) / (n_nodes // 2)
        more = curve.icdf(levels[:, None].expand(-1, n_rows))
        nodes, order = torch.cat([nodes, more]).sort(dim=0)
        log_f = torch.cat([log_f, self._evaluate(more)]).gather(0, order)
        self._curve = LogLinear(nodes, log_f)
        half = torch.arange(len(nodes), device=nodes.device) % 2 == 0
        half[-1] = True
        self._coarse = LogLinear(nodes[half], log_f[half])

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
    def log_partition(self) -> Tensor:
        """Shape (B,)."""
        return self._curve.log_partition

    @property
    def log_partition_error(self) -> Tensor:
        """What leaving out every other node changes, one to three times the error. Shape (B,)."""
        return (self._curve.log_partition - self._coarse.log_partition).abs()

    @property
    def effective_sample_size(self) -> Tensor:
        """Of the proposal's draws, shape (B,). The answers do not rest on them; they judge the proposal."""
        return importance.effective_sample_size(*self._ratios)

    @property
    def pareto_k(self) -> Tensor:
        """Of the proposal's draws, shape (B,)."""
        return importance.pareto_k(*self._ratios)

    def log_prob(self, y: Tensor) -> Tensor:
        """Log density of the interpolant, a proper density: it cannot flatter. (..., B, 1) -> (..., B)."""
        return self._curve.log_prob(_flat(y, self._B, 1)[..., 0]).reshape(y.shape[:-1])

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (n, B, 1)."""
        u = torch.rand(n, self._B, dtype=torch.float64, generator=generator, device=self._curve.nodes.device)
        return self._curve.icdf(u)[..., None]

    def cdf(self, y: Tensor) -> Tensor:
        """(..., B, 1) -> (..., B)."""
        return self._curve.cdf(_flat(y, self._B, 1)[..., 0]).reshape(y.shape[:-1])

    def icdf(self, q: Tensor | float) -> Tensor:
        """Levels (), (Q,) or (Q, B) -> (B, 1) or (Q, B, 1)."""
        return quantiles(self._curve.icdf, q, self._B, 1)

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

    def _first_nodes(self, n: int, support: tuple[Tensor, Tensor, Tensor] | None) -> Tensor:
        # Even points through from_uniform lie at quantiles of the components: as good, and without a search.
        levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
        quantile = self.proposal.from_uniform(levels[:, None, None].expand(-1, self._B, -1))
        quantile = quantile[..., 0].double().sort(dim=0).values
        low, high = quantile[0], quantile[-1]
        width = high - low
        if support is not None:
            low, high, width = (end.double().expand_as(low) for end in support)
        t = torch.linspace(0, 1, n, dtype=torch.float64, device=low.device)[:, None]
        out = torch.linspace(0.25, 8, 32, dtype=torch.float64, device=low.device)[:, None] * width
        return torch.cat([quantile, low + t * (high - low), low - out, high + out]).sort(dim=0).values

    def _evaluate(self, nodes: Tensor) -> Tensor:
        with torch.no_grad():
            return self._energy(nodes[..., None]).double()

    @cached_property
    def _ratios(self) -> tuple[Tensor, Tensor]:
        u = uniforms.sobol(self._n_draws, 1).to(self._curve.nodes.device)
        with torch.no_grad():
            draws = self.proposal.from_uniform(u[:, None].expand(-1, self._B, -1))
            return self._energy(draws), self.proposal.log_prob(draws)


class ImportanceND:
    """p(y | x) for any number of targets, by self-normalised importance sampling (Eq. 7).

    The draws are scrambled Sobol points pushed through the proposal, in a few independent replicates whose
    spread is the error of log Z. A tenth of them comes from one wide Gaussian over the support, so that mass
    where the proposal has none is seen.

    Args:
        energy: f(x, .) of the batch: (M, B, D) -> (M, B).
        proposal: Shape (B,), with ``from_uniform``.
        support: Low end, high end and width of the tails, each of shape (D,); None leaves the wide draws out.
        n_targets: D.
        n_rows: B.
        n_draws: Draws a row, in all replicates together.
        n_replicates: Independent scramblings.
        seed: Of the scrambling.
    """

    def __init__(
        self,
        energy: Energy,
        proposal: Any,
        n_rows: int,
        n_targets: int,
        support: tuple[Tensor, Tensor, Tensor] | None = None,
        n_draws: int = 2048,
        n_replicates: int = 8,
        seed: int = 0,
    ):
        checks.at_least("n_replicates", n_replicates, 2)
        checks.at_least("n_draws", n_draws, 16 * n_replicates)
        self.proposal = proposal
        self._energy, self._B, self._D = energy, n_rows, n_targets
        self._wide = None
        if support is not None:
            low, high, width = support
            self._wide = widened(low - width, high + width, n_rows)
        points = [uniforms.sobol(n_draws // n_replicates, n_targets, seed + r) for r in range(n_replicates)]
        with torch.no_grad():
            parts = [self._draw(u[:, None].expand(-1, n_rows, -1)) for u in points]
            self._draws = torch.cat([draws for draws, _ in parts])
            self._log_q = torch.cat([log_q for _, log_q in parts])
            self._f = energy(self._draws).double()
        f, log_q = (part.unflatten(0, (n_replicates, -1)) for part in (self._f, self._log_q))
        self._replicates = torch.stack(
            [objectives.log_partition(*pair) for pair in zip(f, log_q, strict=True)]
        )
        self._weights = importance.normalized_weights(self._f, self._log_q)

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""
        return importance.expectation(self._draws, self._weights)

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        return importance.expectation((self._draws - self.mean) ** 2, self._weights)

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""
        return self.variance.sqrt()

    @property
    def log_partition(self) -> Tensor:
        """Shape (B,)."""
        return objectives.log_partition(self._f, self._log_q)

    @property
    def log_partition_error(self) -> Tensor:
        """From the replicates, shape (B,)."""
        return importance.replicate_error(self._replicates)

    @property
    def effective_sample_size(self) -> Tensor:
        """Of the draws in use, shape (B,)."""
        return importance.effective_sample_size(self._f, self._log_q)

    @property
    def pareto_k(self) -> Tensor:
        """Shape (B,)."""
        return importance.pareto_k(self._f, self._log_q)

    def log_prob(self, y: Tensor) -> Tensor:
        """f(x, y) - log Z(x): (..., B, D) -> (..., B); differentiable in y, and in y alone."""
        with torch.set_grad_enabled(y.requires_grad and torch.is_grad_enabled()):
            return self._energy(_flat(y, self._B, self._D)).reshape(y.shape[:-1]) - self.log_partition

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Resampled from fresh draws, worth ten times as many as asked for. Shape (n, B, D)."""
        share = (self.effective_sample_size / len(self._f)).min().clamp_min(1e-3).item()
        pool = min(math.ceil(10 * n / share), max(100 * n, 100_000))
        with torch.no_grad():
            draws, log_q = self._draw(uniforms.independent(pool, self._B, self._D, generator))
            weights = importance.normalized_weights(self._energy(draws), log_q)
        return importance.resample(draws, weights, n, generator)

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y in every target): (..., B, D) -> (..., B)."""
        flat = _flat(y, self._B, self._D)
        below = [
            importance.expectation((self._draws <= row).all(dim=-1).to(row), self._weights) for row in flat
        ]
        return torch.stack(below).reshape(y.shape[:-1])

    def icdf(self, q: Tensor | float) -> Tensor:
        """Exists for one target only."""
        return quantiles(self._weighted_quantile, q, self._B, self._D)

    def modes(self) -> Modes:
        """Local maxima, with the share of 128 equally weighted draws that climb to each."""
        levels = (torch.arange(128, device=self._f.device) + 0.5) / 128
        # Along the first target: every sixteenth point of a Sobol sequence, say, is far from uniform.
        order = self._draws[..., 0].argsort(dim=0)
        cumulative = self._weights.gather(0, order).cumsum(dim=0).T.contiguous()  # (B, M)
        chosen = torch.searchsorted(cumulative, levels.to(cumulative).expand(self._B, -1).contiguous())
        chosen = order.gather(0, chosen.clamp(max=len(self._f) - 1).T)
        return modes_by_ascent(
            self.log_prob, self._draws.gather(0, chosen[..., None].expand(-1, -1, self._D))
        )

    def highest_density_region(self, mass: float) -> Region:
        """Where the density is above the threshold that holds ``mass``."""
        check_mass(mass)
        log_p = self._f - self.log_partition
        return Region(mass, importance.quantile(log_p, self._weights, 1 - mass), self.log_prob)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, (M, B, D) -> (M, B, ...)."""
        return importance.expectation(fn(self._draws), self._weights)

    def _weighted_quantile(self, q: Tensor) -> Tensor:
        rows = zip(self._draws[..., 0].split(1, dim=1), self._weights.split(1, dim=1), q.T, strict=True)
        return torch.cat([importance.quantile(*row) for row in rows], dim=1)

    def _draw(self, u: Tensor) -> tuple[Tensor, Tensor]:
        # Draws and the log density of the mixture they come from, in float64. Fixed shares of two sources are
        # as unbiased as random ones, and spread less.
        if self._wide is None:
            draws = self.proposal.from_uniform(u)
            return draws.double(), self.proposal.log_prob(draws).double()
        n_wide = max(1, len(u) // 10)
        share = n_wide / len(u)
        draws = torch.cat([self.proposal.from_uniform(u[n_wide:]), self._wide.from_uniform(u[:n_wide])])
        log_q = torch.logaddexp(
            self.proposal.log_prob(draws) + math.log1p(-share), self._wide.log_prob(draws) + math.log(share)
        )
        return draws.double(), log_q.double()


class Rescaled:
    """A predictive distribution in the user's units: that of shift + scale * y, each (D,) in float64."""

    def __init__(self, base: Predictive, shift: Tensor, scale: Tensor):
        self._base, self._shift, self._scale = base, shift, scale
        self._log_scale = scale.log().sum()

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""
        return self._shift + self._scale * self._base.mean

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        return self._scale**2 * self._base.variance

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""
        return self._scale * self._base.stddev

    @property
    def proposal(self) -> Any:
        """The proposal, in the same units where it knows how."""
        base = self._base.proposal
        return base.rescaled(self._shift, self._scale) if isinstance(base, GaussianMixture) else base

    @property
    def effective_sample_size(self) -> Tensor:
        """Shape (B,)."""
        return self._base.effective_sample_size

    @property
    def pareto_k(self) -> Tensor:
        """Shape (B,)."""
        return self._base.pareto_k

    @property
    def log_partition(self) -> Tensor:
        """Shape (B,)."""
        return self._base.log_partition + self._log_scale

    @property
    def log_partition_error(self) -> Tensor:
        """Shape (B,)."""
        return self._base.log_partition_error

    def log_prob(self, y: Tensor) -> Tensor:
        """(..., B, D) -> (..., B)."""
        return self._base.log_prob(self._standard(y)) - self._log_scale

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (n, B, D)."""
        return self._shift + self._scale * self._base.sample(n, generator)

    def cdf(self, y: Tensor) -> Tensor:
        """(..., B, D) -> (..., B)."""
        return self._base.cdf(self._standard(y))

    def icdf(self, q: Tensor | float) -> Tensor:
        """(Q,) -> (Q, B, 1)."""
        return self._shift + self._scale * self._base.icdf(q)

    def modes(self) -> Modes:
        """Local maxima with the mass of their hills."""
        return self._base.modes().rescaled(self._shift, self._scale)

    def highest_density_region(self, mass: float) -> Region:
        """The smallest region that holds ``mass``."""
        return self._base.highest_density_region(mass).rescaled(self._shift, self._scale)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, (M, B, D) -> (M, B, ...)."""
        return self._base.expectation(lambda y: fn(self._shift + self._scale * y))

    def _standard(self, y: Tensor) -> Tensor:
        checks.shape("y", y, (*["..."] * (y.dim() - 1), len(self._scale)))
        return (y.to(self._scale) - self._shift) / self._scale


def _flat(y: Tensor, B: int, D: int) -> Tensor:
    """Targets (..., B, D) as (n, B, D); a wrong shape would else broadcast into a wrong answer."""
    checks.shape("y", y, (*["..."] * (y.dim() - 2), B, D))
    return y.reshape(-1, B, D)
