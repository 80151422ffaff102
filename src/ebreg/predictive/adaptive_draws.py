"""AdaptiveDraws: weighted draws of several targets, from the proposal or from mixtures fitted to rows."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ebreg import importance, sampling
from ebreg._utils import checks
from ebreg.distributions import FullMixture
from ebreg.predictive.source import Source
from ebreg.predictive.weighted_draws import WeightedDraws


class AdaptiveDraws(WeightedDraws):
    """Weighted draws of :func:`ebreg.predictive.importance_sampling`, which knows more than one source.

    Samples come from fresh draws, so that they do not repeat.

    Args:
        *arguments: Those of :class:`WeightedDraws`.
        fitted: The mixtures that the draws of some rows come from; None: of no row.
        is_fitted: Which rows those are, shape (B,).
        **named: Those of :class:`WeightedDraws`.
    """

    def __init__(self, *arguments: Any, fitted: FullMixture | None, is_fitted: Tensor, **named: Any):
        super().__init__(*arguments, **named)
        self.fitted, self.is_fitted = fitted, is_fitted

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

    def _selected(self, rows: Any) -> dict[str, Any]:
        return super()._selected(rows) | {
            "fitted": None if self.fitted is None else self.fitted[rows],
            "is_fitted": self.is_fitted[rows],
        }

    def _together(self, parts: Sequence[Any]) -> dict[str, Any]:
        return super()._together(parts) | {
            "fitted": _joined_mixtures([(len(part), part.fitted) for part in parts]),
            "is_fitted": torch.cat([part.is_fitted for part in parts]),
        }

    def _sources(self) -> list[tuple[Tensor, Source]]:
        # Rows with where their draws come from; groups without rows are left out.
        groups = []
        for fitted in (False, True):
            rows = (self.is_fitted == fitted).nonzero()[:, 0]
            if len(rows):
                mixture = self.fitted[rows] if fitted and self.fitted is not None else None
                groups.append((rows, Source(self.target[rows], mixture)))
        return groups


def _joined_mixtures(parts: Sequence[tuple[int, FullMixture | None]]) -> FullMixture | None:
    """Mixtures of rows below each other; rows without one get any, None where no row has one."""
    known = [mixture for _, mixture in parts if mixture is not None and len(mixture)]
    if not known:
        return None
    filled = [known[0][[0] * n] if mixture is None else mixture for n, mixture in parts]
    return filled[0].joined(filled[1:])


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
