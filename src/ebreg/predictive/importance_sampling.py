"""Importance sampling: weighted draws of several targets, as many as each row needs (Eq. 7)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg import importance, objectives, sampling
from ebreg.distributions import FullMixture
from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.adaptive_draws import AdaptiveDraws
from ebreg.predictive.fitted_mixture import fit_mixture
from ebreg.predictive.hidden_modes import FoundModes, ModeSearch
from ebreg.predictive.source import Source
from ebreg.predictive.unnormalized import Unnormalized
from ebreg.predictive.weighted_draws import UNRELIABLE_ERROR

# A row gets other draws until their effective number is this, and this share of them: those of the proposal
# must nearly be draws of p, since what they do not reach does not show in their weights; those of a mixture
# that was fitted to the row have been where the mass is.
_GOOD_SIZE = 200
_GOOD_SHARE, _GOOD_SHARE_FITTED = 0.5, 0.2
_GOOD_ERROR = 0.0125  # of log Z
# The error is at least this share of that of independent draws. Replicates vary by less, but all of them miss
# the same tails.
_LEAST_ERROR = 0.4
# The error of rows with modes narrower than a search sees: it makes them unreliable.
_UNRESOLVED = 2 * UNRELIABLE_ERROR
# Rounds of draws that only show where the next are to come from, and how many draws each: a fit to few draws
# misses some of the tails, and log Z comes out low.
_ROUNDS, _FEWEST_TO_FIT = 2, 1024


def importance_sampling(target: Unnormalized, accuracy: Accuracy) -> AdaptiveDraws:
    """p(y | x) of several targets: self-normalised importance sampling, in the user's units.

    The draws are scrambled Sobol points pushed through the proposal, in a few independent replicates whose
    spread is the error of log Z. A row whose draws have too small an effective sample size gets as many from
    a mixture that is fitted to its first draws, and then more, up to ``max_draws``; it decides for itself, so
    its answer does not depend on the other rows. The other rows are padded by draws of weight 0.

    Gradients reach f at the draws, and by it the features; the draws and log q are constants. That is enough:
    whatever the draws come from, their weighted averages are those of p.
    """
    rows = torch.arange(len(target), device=target.h.device)
    fitted: FullMixture | None = None
    search, found = ModeSearch.of(target) if accuracy.search else None, None
    parts: list[tuple[Tensor, _Part]] = []
    # As many draws once more, from a fitted mixture, before there are more of them.
    counts = [accuracy.n_draws, *accuracy.draw_counts]
    for n_draws in counts[:-1]:
        part = _sample(Source(target[rows], fitted), n_draws, accuracy)
        good = part.is_good
        if fitted is None and search is not None:
            found = search.missed_by(Source(target), part.log_partition)
            good &= ~found.exist
        parts.append((rows[good], part[good]))
        rows, found = rows[~good], None if found is None else found[~good]
        if not len(rows):
            break
        fitted = _fit(target[rows], part[~good], found, accuracy)
    if len(rows) or not parts:
        parts.append((rows, _sample(Source(target[rows], fitted), counts[-1], accuracy)))
    return _joined(parts, target, search)


@dataclass(frozen=True)
class _Part:
    """Draws (M, B, D) with f and log q, (M, B), in standard units; log Z of the replicates, (R, B)."""

    draws: Tensor
    f: Tensor
    log_q: Tensor
    log_z: Tensor
    fitted: FullMixture | None

    def __getitem__(self, rows: Tensor) -> "_Part":
        fitted = None if self.fitted is None else self.fitted[rows]
        return _Part(self.draws[:, rows], self.f[:, rows], self.log_q[:, rows], self.log_z[:, rows], fitted)

    @property
    @torch.no_grad()
    def error(self) -> Tensor:
        """Of log Z, shape (B,)."""
        independent = importance.log_partition_error(self.f, self.log_q)
        return torch.maximum(importance.replicate_error(self.log_z), _LEAST_ERROR * independent)

    @property
    @torch.no_grad()
    def has_good_size(self) -> Tensor:
        """Whether the effective sample size of a row is large enough, shape (B,)."""
        share = _GOOD_SHARE if self.fitted is None else _GOOD_SHARE_FITTED
        size = importance.effective_sample_size(self.f, self.log_q)
        return size >= max(_GOOD_SIZE, share * len(self.f))

    @property
    def is_good(self) -> Tensor:
        """Whether a row needs no other draws, shape (B,)."""
        return self.has_good_size & (self.error <= _GOOD_ERROR)

    @property
    @torch.no_grad()
    def log_partition(self) -> Tensor:
        """Log Z of the rows in standard units, shape (B,)."""
        return objectives.log_partition(self.f, self.log_q)

    @torch.no_grad()
    def fit(self, target: Unnormalized, found: FoundModes | None) -> FullMixture:
        """A mixture fitted to the weighted draws, and to modes that it misses."""
        fitted = fit_mixture(self.draws, importance.log_weights(self.f, self.log_q))
        if found is None:
            return fitted
        is_missed = found.are_missed_by(Source(target, fitted), self.log_partition)
        return found.of_those(is_missed).beside(fitted)


def _sample(source: Source, n_draws: int, accuracy: Accuracy) -> _Part:
    B, D, R = len(source.target), source.target.n_targets, accuracy.n_replicates
    points = [sampling.sobol(n_draws // R, D, accuracy.seed + r) for r in range(R)]
    pieces = [source.draws(u[:, None].expand(-1, B, -1)) for u in points]
    draws, log_q = (torch.cat(values) for values in zip(*pieces, strict=True))
    f = source.target.energy(draws)
    replicates = zip(f.detach().unflatten(0, (R, -1)), log_q.unflatten(0, (R, -1)), strict=True)
    log_z = torch.stack([objectives.log_partition(*replicate) for replicate in replicates])
    return _Part(draws, f, log_q, log_z, source.fitted)


@torch.no_grad()
def _fit(target: Unnormalized, part: _Part, found: FoundModes | None, accuracy: Accuracy) -> FullMixture:
    fitted = part.fit(target, found)
    # A fit to few good draws is a poor one, but its own draws are better.
    is_poor = ~part.has_good_size if found is None else ~part.has_good_size | found.exist
    if part.fitted is not None or not is_poor.any():
        return fitted
    poor, others = is_poor.nonzero()[:, 0], (~is_poor).nonzero()[:, 0]
    better = _refitted(target[poor], fitted[poor], None if found is None else found[poor], accuracy)
    return better.joined([fitted[others]])[torch.cat([poor, others]).argsort()]


def _refitted(
    target: Unnormalized, fitted: FullMixture, found: FoundModes | None, accuracy: Accuracy
) -> FullMixture:
    # The number of rounds is fixed: the first to look good would be the first to have overlooked something.
    n_draws = max(accuracy.n_draws, _FEWEST_TO_FIT)
    for _ in range(_ROUNDS):
        fitted = _sample(Source(target, fitted), n_draws, accuracy).fit(target, found)
    return fitted


def _joined(
    parts: list[tuple[Tensor, _Part]], target: Unnormalized, search: ModeSearch | None
) -> AdaptiveDraws:
    # All rows in their order and in the user's units, those with fewer draws padded.
    order = torch.cat([rows for rows, _ in parts]).argsort()
    first, *others = [
        _in_units(part, target[rows], None if search is None else search[rows]) for rows, part in parts
    ]
    return first.joined(others)[order] if others else first


def _in_units(part: _Part, target: Unnormalized, search: ModeSearch | None) -> AdaptiveDraws:
    return AdaptiveDraws.of(
        target,
        part.draws,
        part.f,
        part.log_q,
        torch.maximum(part.error, _unseen_mass(part, target, search)),
        fitted=part.fitted,
        is_fitted=torch.full((len(target),), part.fitted is not None, device=target.h.device),
    )


@torch.no_grad()
def _unseen_mass(part: _Part, target: Unnormalized, search: ModeSearch | None) -> Tensor:
    # The share of the mass that may lie where no draw does, (B,).
    log_z = part.log_partition
    if target.log_ratio_bound is not None:
        # A region that all draws miss with a probability of a third holds 1 / M of the mass of q.
        return (target.log_ratio_bound.to(log_z) - log_z).exp() / len(part.draws)
    if search is None or not len(target):
        return torch.zeros_like(log_z)
    unseen = search.unseen_mass(Source(target, part.fitted), log_z)
    return torch.where(search.is_too_coarse, unseen.clamp_min(_UNRESOLVED), unseen)
