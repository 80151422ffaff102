"""ImportanceND: p(y | x) of several targets, by weighted draws of the proposal."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ebreg import importance, objectives, sampling
from ebreg._utils import checks
from ebreg.distributions import FullMixture, check_levels, check_mass, quantiles
from ebreg.distributions.ascent import modes_by_ascent
from ebreg.distributions.regions import Modes, Region
from ebreg.predictive.adapted import adapted
from ebreg.predictive.blend import blended
from ebreg.predictive.protocol import Energy, flat
from ebreg.predictive.support import Support

_WEAK_SIZE, _WEAK_ERROR = 100, 0.1
# Shares of the draws: from the wide Gaussian, and, beside a fitted source, from the proposal.
_WIDE, _LEARNED = 0.1, 0.2


class ImportanceND:
    """p(y | x) for any number of targets, by self-normalised importance sampling (Eq. 7).

    The draws are scrambled Sobol points pushed through the proposal, in a few independent replicates whose
    spread is the error of log Z. A tenth of them comes from one wide Gaussian over the support, so that mass
    where the proposal has none is seen. With a ``source`` that was fitted to earlier draws, see
    :meth:`adapted`, most come from that, and a fifth from the proposal.

    Args:
        energy: f(x, .) of the batch: (M, B, D) -> (M, B); minus infinity beyond closed ends, where draws of
            the source may fall.
        proposal: Shape (B,), with ``from_uniform``.
        support: Where the mass can be; None leaves the wide draws out.
        n_targets: D.
        n_rows: B.
        n_draws: Draws a row, in all replicates together.
        n_replicates: Independent scramblings.
        seed: Of the scrambling.
        source: Of most of the draws, for the same rows; None: the proposal.
    """

    def __init__(
        self,
        energy: Energy,
        proposal: Any,
        n_rows: int,
        n_targets: int,
        support: Support | None = None,
        n_draws: int = 2048,
        n_replicates: int = 8,
        seed: int = 0,
        source: FullMixture | None = None,
    ):
        checks.at_least("n_replicates", n_replicates, 2)
        checks.at_least("n_draws", n_draws, 16 * n_replicates)
        self.proposal = proposal
        self._energy, self._B, self._D = energy, n_rows, n_targets
        self._support = support
        self._main, self._others = proposal, [] if support is None else [(_WIDE, support.wide(n_rows))]
        if source is not None:
            self._main, self._others = source, [*self._others, (_LEARNED, proposal)]
        points = [sampling.sobol(n_draws // n_replicates, n_targets, seed + r) for r in range(n_replicates)]
        with torch.no_grad():
            parts = [blended(u[:, None].expand(-1, n_rows, -1), self._main, self._others) for u in points]
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
    def covariance(self) -> Tensor:
        """Shape (B, D, D)."""
        centred = self._draws - self.mean
        return torch.einsum("mb,mbi,mbj->bij", self._weights, centred, centred)

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

    @property
    def is_fitted(self) -> bool:
        """Whether the draws come from a source that was fitted to the rows."""
        return self._main is not self.proposal

    @property
    def weak(self) -> Tensor:
        """Rows whose draws are worth less than a hundred, or whose log Z is rough, shape (B,)."""
        return (self.effective_sample_size < _WEAK_SIZE) | (self.log_partition_error > _WEAK_ERROR)

    def log_prob(self, y: Tensor) -> Tensor:
        """f(x, y) - log Z(x): (..., B, D) -> (..., B); differentiable in y, and in y alone."""
        points = flat(y, self._B, self._D)
        if not len(points):
            return y.new_zeros(y.shape[:-1])
        with torch.set_grad_enabled(y.requires_grad and torch.is_grad_enabled()):
            log_p = self._energy(points).reshape(y.shape[:-1]) - self.log_partition
        if self._support is None:
            return log_p
        return log_p.masked_fill(~self._support.contains(y.detach()), -torch.inf)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Resampled from a pool of fresh draws, worth ten times as many as asked for. Shape (n, B, D)."""
        share = (self.effective_sample_size / self.n_draws).clamp_min(1e-3)
        pool = math.ceil(10 * n / share.min().item()) if self._B else 0
        kept = self._draws.new_empty(n, self._B, self._D)
        log_total = torch.full_like(self.log_partition, -torch.inf)
        # In pieces: with the chance that is a piece's share of the weight so far, a sample moves on to it.
        # The result is that of one pool, at the memory of one piece.
        for size in _pieces(pool, at_most=max(1024, 2**20 // max(1, self._B))):
            with torch.no_grad():
                u = sampling.independent(size, self._B, self._D, generator)
                draws, log_q = blended(u, self._main, self._others)
                f = self._energy(draws).double()
            picked = importance.resample(draws, importance.normalized_weights(f, log_q), n, generator)
            log_piece = torch.logsumexp(f - log_q, dim=0)
            log_total = torch.logaddexp(log_total, log_piece)
            coin = sampling.independent(n, self._B, 1, generator).to(kept)
            kept = torch.where(coin < (log_piece - log_total).exp()[:, None], picked, kept)
        return kept

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y in every target): (..., B, D) -> (..., B)."""
        below = [
            importance.expectation((self._draws <= point).all(dim=-1).to(point), self._weights)
            for point in flat(y, self._B, self._D)
        ]
        # Rounding must not lift a probability above 1.
        return torch.stack(below).clamp(max=1).reshape(y.shape[:-1]) if below else y.new_zeros(y.shape[:-1])

    def icdf(self, q: Tensor | float) -> Tensor:
        """Exists for one target only."""
        return quantiles(self._weighted_quantile, q, self._B, self._D)

    def quantile(self, q: Tensor | float) -> Tensor:
        """Quantiles of each target by itself: levels () or (Q,) -> (B, D) or (Q, B, D)."""
        return importance.quantile(self._draws, self._weights, check_levels(q))

    def modes(self) -> Modes:
        """Local maxima, with the share of 128 equally weighted draws that climb to each."""
        levels = (torch.arange(128, device=self._f.device) + 0.5) / 128
        # Along the first target: every sixteenth point of a Sobol sequence, say, is far from uniform.
        order = self._draws[..., 0].argsort(dim=0)
        cumulative = self._weights.gather(0, order).cumsum(dim=0).T.contiguous()  # (B, M)
        chosen = torch.searchsorted(cumulative, levels.to(cumulative).expand(self._B, -1).contiguous())
        chosen = order.gather(0, chosen.clamp(max=len(self._f) - 1).T)
        starts = self._draws.gather(0, chosen[..., None].expand(-1, -1, self._D))
        if self._support is None:
            return modes_by_ascent(self.log_prob, starts)
        low, high = self._support.limits
        modes = modes_by_ascent(self._continued, starts)
        return modes.rescaled(lambda y: y.clamp(low, high), self.log_partition.new_zeros(()))

    def _continued(self, y: Tensor) -> Tensor:
        # The log density, falling off beyond closed ends: an ascent can then slide along a wall.
        support = self._support
        assert support is not None
        inside = y.clamp(*support.limits)
        return self.log_prob(inside) - 0.5 * ((y - inside) / support.width).square().sum(dim=-1)

    def highest_density_region(self, mass: float) -> Region:
        """Where the density is above the threshold that holds ``mass``."""
        check_mass(mass)
        log_p = self._f - self.log_partition
        return Region(mass, importance.quantile(log_p, self._weights, 1 - mass), self.log_prob)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, (M, B, D) -> (M, B, ...)."""
        return importance.expectation(fn(self._draws), self._weights)

    @property
    def n_draws(self) -> int:
        """Draws a row."""
        return len(self._f)

    def adapted(self, rows: Tensor | None = None) -> FullMixture:
        """A better source for all rows, or for some: numbers or a mask; fitted to their weighted draws."""
        rows = torch.arange(self._B) if rows is None else rows
        rows = rows.to(self._f.device)
        log_weights = importance.log_weights(self._f[:, rows], self._log_q[:, rows])
        return adapted(self._draws[:, rows], log_weights)

    def _weighted_quantile(self, q: Tensor) -> Tensor:
        rows = zip(self._draws[..., 0].split(1, dim=1), self._weights.split(1, dim=1), q.T, strict=True)
        return torch.cat([importance.quantile(*row) for row in rows], dim=1)


def _pieces(total: int, at_most: int) -> list[int]:
    # Of about one size: a last piece of one draw could not have every source in it.
    n = math.ceil(total / at_most)
    return [total // n + (i < total % n) for i in range(n)]
