"""WeightedDraws: p(y | x) as data, draws and log weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from ebreg import importance, objectives
from ebreg._utils import checks, gradients
from ebreg._utils.row_index import row_index
from ebreg.distributions import Modes, Region, check_levels, level_sets, quantiles
from ebreg.distributions.ascent import modes_by_ascent
from ebreg.predictive import draw_quantiles
from ebreg.predictive.unnormalized import Unnormalized

_UNRELIABLE_SIZE, UNRELIABLE_ERROR = 100, 0.1
# Draws that climb to the modes.
_N_CLIMBERS = 128
# Of the distance between two draws, to find the end of an interval between them.
_HALVINGS = 30
# Arguments with one value for each row.
_BY_ROW = ("n_draws", "log_partition", "log_partition_error", "effective_sample_size")


class WeightedDraws:
    """p(y | x) for B rows: weighted draws, with their diagnostics (Eq. 7).

    Every verb is a weighted sum over the draws. Only what draws cannot say evaluates the energy: the density
    at other targets (``log_prob``, ``modes``, ``contains`` of a region).

    Gradients reach the weights, which depend on x and on the energy; the draws are constants.

    Args:
        draws: In the user's units, shape (M, B, D). Rows are padded by draws of weight 0.
        log_weights: Normalised, shape (M, B).
        log_density: Of the draws, normalised, shape (M, B).
        n_draws: Draws of each row without padding, shape (B,).
        log_partition: Log of the normaliser Z(x), shape (B,).
        log_partition_error: Its standard error, shape (B,).
        effective_sample_size: Of the draws in use, shape (B,).
        proposal: In the user's units.
        target: The energy and the proposal of the rows.
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
    ):
        self.draws, self.log_weights, self.log_density = draws, log_weights, log_density
        self.weights = log_weights.exp()  # Eq. (7)
        self.n_draws = n_draws
        self.log_partition, self.log_partition_error = log_partition, log_partition_error
        self.effective_sample_size = effective_sample_size
        self.proposal = proposal
        self.target = target

    @classmethod
    def of(
        cls, target: Unnormalized, draws: Tensor, f: Tensor, log_q: Tensor, error: Tensor, **others: Any
    ) -> Self:
        """From draws (M, B, D) in standard units, with f and log q there, (M, B), and the error of log Z."""
        log_partition = objectives.log_partition(f, log_q) + target.log_scale
        return cls(
            draws=target.to_units(draws),
            log_weights=importance.log_weights(f, log_q),
            log_density=f - log_partition,
            n_draws=torch.full_like(log_partition, len(f), dtype=torch.long),
            log_partition=log_partition,
            log_partition_error=error,
            effective_sample_size=importance.effective_sample_size(f.detach(), log_q),
            proposal=target.proposal_in_units,
            target=target,
            **others,
        )

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
        return ~(large & (self.log_partition_error <= UNRELIABLE_ERROR))  # NaN included

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
        """Resampled from the draws by their weights, with replacement: they repeat.

        Shape (n, B, D), not differentiated.
        """
        n = checks.at_least("n", n, 0)
        if not n or not len(self):
            return self.draws.new_empty(n, *self.draws.shape[1:])
        return importance.resample(self.draws, self.weights, n, generator)

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
        region = self.region_by_density(mass)
        if self.draws.shape[-1] > 1:
            return region
        threshold, cut = region.log_threshold, torch.as_tensor(region.cut)
        intervals = self._intervals(threshold)
        if cut.isfinite().any():
            of_mass = level_sets.intervals_of_mass(
                self._intervals, threshold, mass, self._share_below, self._at_shares
            )
            rows = zip(cut.isfinite().tolist(), of_mass, intervals, strict=True)
            intervals = tuple(part if is_level else plain for is_level, part, plain in rows)
        return Region(mass, threshold, self.log_prob, intervals)

    @torch.no_grad()
    def region_by_density(self, mass: float) -> Region:
        """The same, also of one target without intervals: only the density says what lies in it."""
        mass = checks.fraction("mass", mass)
        threshold = importance.quantile(self.log_density, self.weights, 1 - mass)
        cut = level_sets.cut_of(self.log_density, self.weights, self.draws[..., 0], threshold, mass)
        return Region(mass, threshold, self.log_prob, cut=cut)

    @torch.no_grad()
    def region_above(self, log_threshold: Tensor, mass: float) -> Region:
        """Where the log density is at least a threshold, (B,), said to hold ``mass``; without intervals."""
        return Region(mass, log_threshold, self.log_prob)

    @torch.no_grad()
    def hpd_mass(self, y: Tensor) -> Tensor:
        """The mass of draws that enter a highest-density region before y: (..., B, D) -> (..., B)."""
        y = checks.numbers("y", y).to(self.draws)
        first = self.draws[..., 0]
        return level_sets.hpd_mass_by_draws(self.log_density, self.weights, first, self.log_prob(y), y)

    def __getitem__(self, rows: Any) -> Self:
        """Some of the rows: a number, a slice, row numbers or a mask."""
        return type(self)(**self._selected(row_index(rows)))

    def joined(self, others: Sequence["WeightedDraws"]) -> Self:
        """These rows and, below them, those of others."""
        return type(self)(**self._together([self, *others]))

    def _selected(self, rows: Any) -> dict[str, Any]:
        # The arguments of some of the rows.
        return {
            **{name: getattr(self, name)[:, rows] for name in ("draws", "log_weights", "log_density")},
            **{name: getattr(self, name)[rows] for name in (*_BY_ROW, "proposal", "target")},
        }

    def _together(self, parts: Sequence[Any]) -> dict[str, Any]:
        # The arguments of all parts below each other.
        M = max(len(part.draws) for part in parts)
        return {
            "draws": torch.cat([_repeat_last(part.draws, M) for part in parts], dim=1),
            **{
                name: torch.cat([_without_weight(getattr(part, name), M) for part in parts], dim=1)
                for name in ("log_weights", "log_density")
            },
            **{name: torch.cat([getattr(part, name) for part in parts]) for name in _BY_ROW},
            **{
                name: getattr(parts[0], name).joined([getattr(part, name) for part in parts[1:]])
                for name in ("proposal", "target")
            },
        }

    def _intervals(self, log_threshold: Tensor) -> tuple[Tensor, ...]:
        # Of one target: around neighbouring draws above the threshold, to where the density falls below it.
        order = self.draws[..., 0].argsort(dim=0)
        y = self.draws[..., 0].gather(0, order).T  # (B, M)
        inside = (self.log_density.gather(0, order) >= log_threshold).T
        edges = torch.nn.functional.pad(inside, (1, 1))
        before, after = torch.cat([y[:, :1], y[:, :-1]], dim=1), torch.cat([y[:, 1:], y[:, -1:]], dim=1)
        ends = (
            self._crossings(inside & ~edges[:, :-2], y, before, log_threshold),
            self._crossings(inside & ~edges[:, 2:], y, after, log_threshold),
        )
        return tuple(torch.stack(pair, dim=1) for pair in zip(*ends, strict=True))

    def _share_below(self, y: Tensor) -> Tensor:
        # Of one target: (Q, B) -> (Q, B).
        return self.cdf(y[..., None])

    def _at_shares(self, q: Tensor) -> Tensor:
        # The inverse, (Q, B) -> (Q, B).
        inner = torch.finfo(q.dtype).eps
        return self._weighted_quantile(q.clamp(inner, 1 - inner))

    def _crossings(self, ends: Tensor, y: Tensor, beyond: Tensor, log_threshold: Tensor) -> list[Tensor]:
        # Where the density crosses the threshold, between an end, (B, M), and the draw beyond it: bisection.
        counts = ends.sum(dim=1).tolist()
        rows = [
            torch.nn.functional.pad(torch.stack([inner[end], outer[end]]), (0, max(counts, default=0) - n))
            for inner, outer, end, n in zip(y, beyond, ends, counts, strict=True)
        ]
        if not rows:
            return []
        low, high = torch.stack(rows, dim=-1)  # (E, B) each
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            above = self.log_prob(middle[..., None]) >= log_threshold
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return [row[:n] for row, n in zip(low.T, counts, strict=True)]

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
