"""WeightedDraws: p(y | x) of several targets as data, draws and log weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ebreg import importance, sampling
from ebreg._utils import checks, gradients
from ebreg._utils.row_index import row_index
from ebreg.distributions import FullMixture, Modes, Region, check_levels, quantiles
from ebreg.distributions.ascent import modes_by_ascent
from ebreg.predictive import draw_quantiles
from ebreg.predictive.source import Source
from ebreg.predictive.unnormalized import Unnormalized

_UNRELIABLE_SIZE, _UNRELIABLE_ERROR = 100, 0.1
# Draws that climb to the modes.
_N_CLIMBERS = 128


class WeightedDraws:
    """p(y | x) for B rows of several targets: weighted draws, with their diagnostics.

    Every verb is a weighted sum over the draws. Only what draws cannot say evaluates the energy: the density
    at other targets (``log_prob``, ``modes``, ``contains`` of a region), and fresh draws for ``sample``.

    Gradients reach the weights, which depend on x and on the energy; the draws are constants.

    Args:
        draws: In the user's units, shape (M, B, D). Rows are padded by draws of weight 0.
        log_weights: Normalised, shape (M, B).
        log_density: Of the draws, normalised, shape (M, B).
        n_draws: Draws of each row without padding, shape (B,).
        log_partition: Log of the normaliser Z(x), shape (B,).
        log_partition_error: Its standard error, from replicates, shape (B,).
        effective_sample_size: Of the draws in use, shape (B,).
        proposal: In the user's units.
        target: The energy and the proposal of the rows.
        fitted: The mixtures that the draws of some rows come from; None: of no row.
        is_fitted: Which rows those are, shape (B,).
    """

    def __init__(
        self,
        draws: Tensor,
        log_weights: Tensor,
        log_density: Tensor,
        n_draws: Tensor,
        log_partition: Tensor,
        log_partition_error: Tensor,
        effective_sample_size: Tensor,
        proposal: Any,
        target: Unnormalized,
        fitted: FullMixture | None,
        is_fitted: Tensor,
    ):
        self.draws, self.log_weights, self.log_density = draws, log_weights, log_density
        self.weights = log_weights.exp()  # Eq. (7)
        self.n_draws = n_draws
        self.log_partition, self.log_partition_error = log_partition, log_partition_error
        self.effective_sample_size = effective_sample_size
        self.proposal = proposal
        self.target = target
        self.fitted, self.is_fitted = fitted, is_fitted

    def __len__(self) -> int:
        return len(self.target)

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""
        return importance.expectation(self.draws, self.weights)

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        return self.stddev.square()

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""
        # In standard units no square overflows or vanishes.
        scale = self.target.y_units.scale
        centred = (self.draws - self.mean) / scale
        return scale * gradients.sqrt(importance.expectation(centred.square(), self.weights))

    @property
    def covariance(self) -> Tensor:
        """Shape (B, D, D)."""
        centred = self.draws - self.mean
        return torch.einsum("mb,mbi,mbj->bij", self.weights, centred, centred)

    @property
    @torch.no_grad()
    def pareto_k(self) -> Tensor:
        """Of the draws in use, shape (B,); not differentiated."""
        k_hat = torch.empty_like(self.log_partition)
        for n in self.n_draws.unique().tolist():  # padding must not count
            rows = self.n_draws == n
            log_weights = self.log_weights[:n, rows]
            k_hat[rows] = importance.pareto_k(log_weights, torch.zeros_like(log_weights))
        return k_hat.masked_fill(self.effective_sample_size == 0, math.inf)

    @property
    def unreliable(self) -> Tensor:
        """Rows with an effective sample size below 100, or an error of log Z above 0.1, shape (B,)."""
        large = self.effective_sample_size >= _UNRELIABLE_SIZE
        return ~(large & (self.log_partition_error <= _UNRELIABLE_ERROR))  # NaN included

    def log_prob(self, y: Tensor) -> Tensor:
        """f(x, y) - log Z(x): (..., B, D) -> (..., B); differentiable in y too."""
        y = checks.numbers("y", y)
        points = self._points(y)
        if not len(points):
            return y.new_zeros(y.shape[:-1])
        return self._log_density(self.target.y_units(points)).reshape(y.shape[:-1])

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y in every target): (..., B, D) -> (..., B); its derivative in y is 0."""
        y = checks.numbers("y", y)
        below = [
            importance.expectation((self.draws <= point).all(dim=-1).to(self.draws), self.weights)
            for point in self._points(y)
        ]
        # Rounding must not lift a probability above 1.
        return torch.stack(below).clamp(max=1).reshape(y.shape[:-1]) if below else y.new_zeros(y.shape[:-1])

    def icdf(self, q: Tensor | float) -> Tensor:
        """Exists for one target only: levels () or (Q,) -> (B, 1) or (Q, B, 1)."""
        return quantiles(self._weighted_quantile, q, *self.draws.shape[1:])

    def quantile(self, q: Tensor | float) -> Tensor:
        """Quantiles of each target by itself: levels () or (Q,) -> (B, D) or (Q, B, D)."""
        levels = check_levels(q)
        y = importance.quantile(self.draws, self.weights, levels)
        if not gradients.tracked(self.weights):
            return y
        B, D = self.draws.shape[1:]
        return self._with_gradient(y.reshape(-1, B, D), levels.reshape(-1, 1).expand(-1, B)).reshape(y.shape)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, (M, B, D) -> (M, B, ...)."""
        return importance.expectation(fn(self.draws), self.weights)

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Resampled from fresh draws, with ten times the effective sample size asked for.

        Shape (n, B, D), not differentiated.
        """
        n = checks.at_least("n", n, 0)
        samples = self.draws.new_empty(n, *self.draws.shape[1:])
        for rows, source in self._sources():
            share = (self.effective_sample_size[rows] / self.n_draws[rows]).clamp_min(1e-3).min().item()
            fresh = _resampled(source, n, math.ceil(10 * n / share), generator)
            samples[:, rows] = self.target.to_units(fresh)
        return samples

    @torch.no_grad()
    def modes(self) -> Modes:
        """Local maxima, with the share of 128 equally weighted draws that climb to each.

        Not differentiated.
        """
        starts = self.target.y_units(self._equally_weighted(_N_CLIMBERS))
        modes = modes_by_ascent(self._continued, starts)
        return Modes(tuple(replace(row, locations=self.target.to_units(row.locations)) for row in modes))

    @torch.no_grad()
    def highest_density_region(self, mass: float) -> Region:
        """Where the density is above the threshold that holds ``mass``; not differentiated."""
        mass = checks.fraction("mass", mass)
        return Region(mass, importance.quantile(self.log_density, self.weights, 1 - mass), self.log_prob)

    def __getitem__(self, rows: Any) -> "WeightedDraws":
        """Some of the rows: a number, a slice, row numbers or a mask."""
        rows = row_index(rows)
        return WeightedDraws(
            self.draws[:, rows],
            self.log_weights[:, rows],
            self.log_density[:, rows],
            self.n_draws[rows],
            self.log_partition[rows],
            self.log_partition_error[rows],
            self.effective_sample_size[rows],
            self.proposal[rows],
            self.target[rows],
            None if self.fitted is None else self.fitted[rows],
            self.is_fitted[rows],
        )

    def joined(self, others: Sequence["WeightedDraws"]) -> "WeightedDraws":
        """These rows and, below them, those of others."""
        parts = [self, *others]
        M = max(len(part.draws) for part in parts)

        def rows(name: str) -> Tensor:
            return torch.cat([getattr(part, name) for part in parts])

        return WeightedDraws(
            torch.cat([_repeat_last(part.draws, M) for part in parts], dim=1),
            torch.cat([_without_weight(part.log_weights, M) for part in parts], dim=1),
            torch.cat([_without_weight(part.log_density, M) for part in parts], dim=1),
            rows("n_draws"),
            rows("log_partition"),
            rows("log_partition_error"),
            rows("effective_sample_size"),
            self.proposal.joined([other.proposal for other in others]),
            self.target.joined([other.target for other in others]),
            joined_mixtures([(len(part), part.fitted) for part in parts]),
            rows("is_fitted"),
        )

    def _log_density(self, z: Tensor) -> Tensor:
        # In the user's units, at targets (n, B, D) in standard units.
        log_p = self.target.energy(z) - self.log_partition
        tail = self.target.tail
        return log_p if tail is None else log_p.masked_fill(~tail.contains(z.detach()), -torch.inf)

    def _continued(self, z: Tensor) -> Tensor:
        # The same, falling off beyond the bounds: an ascent can then slide along a wall.
        tail = self.target.tail
        if tail is None:
            return self._log_density(z)
        inside = z.clamp(tail.bounds.low, tail.bounds.high)
        return self._log_density(inside) - 0.5 * ((z - inside) / tail.width).square().sum(dim=-1)

    def _points(self, y: Tensor) -> Tensor:
        # Targets (..., B, D) as (n, B, D); a wrong shape would otherwise broadcast into a wrong answer.
        B, D = self.draws.shape[1:]
        checks.shape("y", y, (*["..."] * (y.dim() - 2), B, D))
        return y.reshape(math.prod(y.shape[:-2]), B, D).to(self.draws)

    def _sources(self) -> list[tuple[Tensor, Source]]:
        # Rows with where their draws come from; groups without rows are left out.
        groups = []
        for fitted in (False, True):
            rows = (self.is_fitted == fitted).nonzero()[:, 0]
            if len(rows):
                mixture = self.fitted[rows] if fitted and self.fitted is not None else None
                groups.append((rows, Source(self.target[rows], mixture)))
        return groups

    def _equally_weighted(self, n: int) -> Tensor:
        # Draws that divide the mass evenly along the first target, (n, B, D): every sixteenth point of a
        # Sobol sequence, say, is far from uniform.
        M, B, D = self.draws.shape
        levels = (torch.arange(n, device=self.draws.device) + 0.5) / n
        order = self.draws[..., 0].argsort(dim=0)
        cumulative = self.weights.gather(0, order).cumsum(dim=0).T.contiguous()  # (B, M)
        chosen = torch.searchsorted(cumulative, levels.to(cumulative).expand(B, -1).contiguous())
        chosen = order.gather(0, chosen.clamp(max=M - 1).T)
        return self.draws.gather(0, chosen[..., None].expand(-1, -1, D))

    def _weighted_quantile(self, q: Tensor) -> Tensor:
        rows = zip(self.draws[..., 0].split(1, dim=1), self.weights.split(1, dim=1), q.T, strict=True)
        y = torch.cat([importance.quantile(*row) for row in rows], dim=1)
        return self._with_gradient(y[..., None], q)[..., 0] if gradients.tracked(self.weights) else y

    def _with_gradient(self, y: Tensor, q: Tensor) -> Tensor:
        # Quantiles (Q, B, D) of levels (Q, B).
        levels, size = q.to(self.draws), self.effective_sample_size
        return draw_quantiles.with_gradient(y, levels, self.draws, self.weights, size)


def _repeat_last(draws: Tensor, M: int) -> Tensor:
    # Until there are M: (m, B, D) -> (M, B, D). The user's functions see them: they lie within the bounds.
    return torch.cat([draws, draws[-1:].expand(M - len(draws), -1, -1)])


def _without_weight(log_values: Tensor, M: int) -> Tensor:
    # Padded by -inf until there are M: (m, B) -> (M, B).
    return torch.cat(
        [log_values, log_values.new_full((M - len(log_values), log_values.shape[1]), -torch.inf)]
    )


def joined_mixtures(parts: Sequence[tuple[int, FullMixture | None]]) -> FullMixture | None:
    """Mixtures of rows below each other; rows without one get any, None where no row has one."""
    known = [mixture for _, mixture in parts if mixture is not None and len(mixture)]
    if not known:
        return None
    filled = [known[0][[0] * n] if mixture is None else mixture for n, mixture in parts]
    return FullMixture(
        *(torch.cat([getattr(part, name) for part in filled]) for name in ("logits", "means", "cholesky"))
    )


@torch.no_grad()
def _resampled(source: Source, n: int, pool: int, generator: torch.Generator | None) -> Tensor:
    """Samples (n, B, D) of p, in standard units, from a pool of fresh draws.

    In pieces: with the probability that is a piece's share of the weight so far, a sample moves on to it. The
    result is that of one pool, at the memory of one piece.
    """
    B, D = len(source.target), source.target.n_targets
    kept = source.target.y_units.scale.new_empty(n, B, D)
    log_total = kept.new_full((B,), -torch.inf)
    for size in _pieces(pool, at_most=max(1024, 2**20 // B)):
        draws, f, log_q = source.weighted(sampling.independent(size, B, D, generator))
        picked = importance.resample(draws, importance.normalized_weights(f, log_q), n, generator)
        log_piece = torch.logsumexp(f - log_q, dim=0)
        log_total = torch.logaddexp(log_total, log_piece)
        coin = sampling.independent(n, B, 1, generator).to(kept)
        kept = torch.where(coin < (log_piece - log_total).exp()[:, None], picked, kept)
    return kept


def _pieces(total: int, at_most: int) -> list[int]:
    # Of about one size: a last piece of one draw could not have every part of the source in it.
    n = math.ceil(total / at_most)
    return [total // n + (i < total % n) for i in range(n)]
