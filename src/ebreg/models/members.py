"""Members: rows of several members of a model, each by itself, and one unnormalised density of them all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ebreg.models.calibration import Calibration
from ebreg.predictive import Unnormalized

LogDensity = Callable[[Tensor, Tensor], Tensor]


def to_blocks(rows: Tensor, n_members: int) -> Tensor:
    """(B, E * C), members side by side -> (E * B, C), members in blocks."""
    B, n_columns = len(rows), rows.shape[1] // n_members
    return rows.view(B, n_members, n_columns).transpose(0, 1).reshape(n_members * B, n_columns)


def to_rows(blocks: Tensor, n_members: int) -> Tensor:
    """(E * B, C), members in blocks -> (B, E * C), members side by side."""
    B, n_columns = len(blocks) // n_members, blocks.shape[1]
    return blocks.view(n_members, B, n_columns).transpose(0, 1).reshape(B, n_members * n_columns)


def repeated(x: Tensor, n_members: int) -> Tensor:
    """(B, ...) -> (E * B, ...), the same rows for every member."""
    return x if n_members == 1 else x.repeat(n_members, *[1] * (x.dim() - 1))


def separated(target: Unnormalized, n_members: int) -> Unnormalized:
    """Rows of E members in blocks, E * B, of which any can be selected.

    The number of a row's member follows its features, (E * B, H + 1): layers of members need whole blocks.
    """
    numbers = torch.arange(n_members, device=target.h.device).repeat_interleave(len(target) // n_members)
    return replace(
        target,
        f=_by_member(target.f, n_members),
        grid=None,
        h=torch.cat([target.h, numbers[:, None].to(target.h)], dim=1),
    )


def of_each(target: Unnormalized, n_members: int, question: Callable[[Unnormalized], Tensor]) -> Tensor:
    """Answers for every member by itself, (E * B, ...).

    Args:
        target: Rows of E members in blocks, E * B.
        n_members: E.
        question: Turns some of the rows, n, into answers (n, ...). It is asked about some B of them at once,
            as many as a prediction has.
    """
    E, B = n_members, len(target) // n_members
    target = separated(target, E)
    rows = torch.arange(E * B, device=target.h.device).view(E, B)
    pieces = rows.split(max(1, -(-B // E)), dim=1)
    answers = [question(target[piece.flatten()]).unflatten(0, (E, -1)) for piece in pieces]
    return torch.cat(answers, dim=1).flatten(0, 1)


def variance_of_means(means: Tensor, calibration: Calibration) -> Tensor:
    """The part of the variance of the merged density that the members' means explain.

    Args:
        means: Of the members, shape (E, B, D).
        calibration: The weights, and the share of the background.

    Returns:
        Shape (B, D).
    """
    weights = calibration.weights[:, None, None].to(means)
    variance = (weights * (means - (weights * means).sum(dim=0)).square()).sum(dim=0)
    return (1 - calibration.background_share) * variance


def merge(target: Unnormalized, calibration: Calibration, log_z: Tensor) -> Unnormalized:
    r"""The density of all members, :math:`\sum_e w_e \exp(f_e(x, y)) / Z_e(x)`, over the background.

    Args:
        target: Rows of E members in blocks, E * B; its proposal is a mixture.
        calibration: The weights and the background.
        log_z: Log of the members' normalisers, shape (E * B,).

    Returns:
        B rows. Their features are those of all members and then the normalisers, (B, E * H + E).
    """
    E, log_weights, share = calibration.n_members, calibration.log_weights, calibration.background_share
    proposal = merged_mixture(target.proposal, log_weights)
    f = _merged(target.f, proposal[:1], calibration)
    h = torch.cat([to_rows(target.h, E), to_rows(log_z[:, None].to(target.h), E)], dim=1)
    if share > 0:
        proposal = _with_background(proposal, calibration)
    return replace(
        target,
        f=f,
        h=h,
        proposal=proposal,
        grid=None,
        log_ratio_bound=_merged_bound(target, log_z, E),
    )


def mean_log_density(log_p: Tensor, y: Tensor, q: Any, calibration: Calibration) -> Tensor:
    """The log density of all members over the background.

    Args:
        log_p: Log densities of the members, normalised, shape (M, E * B).
        y: Targets in standard units, shape (M, B, D).
        q: A mixture of the family and bounds of the background.
        calibration: The weights and the background.

    Returns:
        Shape (M, B).
    """
    blocks = log_p.unflatten(1, (calibration.n_members, -1))
    mean = torch.logsumexp(blocks + calibration.log_weights.to(log_p)[:, None], dim=1)
    return over_background(mean, y, q, calibration)


def over_background(log_p: Tensor, y: Tensor, q: Any, calibration: Calibration) -> Tensor:
    """Log densities (M, B) of the members' mean at targets (M, B, D), over the background: (M, B).

    ``q`` is a mixture of the family and bounds of the background.
    """
    return _over(_background(q[:1], calibration), calibration.background_share, log_p, y)


def merged_mixture(q: Any, log_weights: Tensor) -> Any:
    """One mixture of the components of all members: E * B rows with K -> B rows with E * K components."""
    E = len(log_weights)
    B = len(q) // E
    K, D = q.means.shape[1:]
    logits = q.logits.view(E, B, K) + log_weights.to(q.logits)[:, None, None]
    logits = logits.transpose(0, 1).reshape(B, E * K)
    means, scales = (
        part.view(E, B, K, D).transpose(0, 1).reshape(B, E * K, D) for part in (q.means, q.scales)
    )
    return q.with_components(logits, means, scales)


def _by_member(f: LogDensity, n_members: int) -> LogDensity:
    def by_member(h: Tensor, y: Tensor) -> Tensor:
        # Features and numbers (B, H + 1), targets (M, B, D) -> (M, B).
        rows, places = _whole_blocks(h[:, -1].long(), n_members)
        return f(h[rows, :-1], y[:, rows])[:, places]

    return by_member


def _whole_blocks(numbers: Tensor, n_members: int) -> tuple[Tensor, Tensor]:
    # Rows in blocks of one size, filled up by the first row, from the members' numbers of rows, (B,); and the
    # places of the rows there, (B,).
    counts = numbers.bincount(minlength=n_members)
    order = numbers.argsort(stable=True)
    size = int(counts.max())
    starts = size * torch.arange(n_members, device=numbers.device) - (counts.cumsum(0) - counts)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device) + starts[numbers[order]]
    rows = order.new_zeros(n_members * size)
    rows[places] = torch.arange(len(order), device=order.device)
    return rows, places


def _merged(f: LogDensity, q: Any, calibration: Calibration) -> LogDensity:
    E = calibration.n_members

    def log_mean(h: Tensor, y: Tensor) -> Tensor:
        # Features and normalisers (B, E * H + E), targets (M, B, D) -> (M, B).
        features, log_z = to_blocks(h[:, :-E], E), h[:, -E:].T  # (E, B)
        log_p = f(features, y.repeat(1, E, 1)).double() - log_z.flatten()
        return mean_log_density(log_p, y, q, calibration)

    return log_mean


def _merged_bound(target: Unnormalized, log_z: Tensor, n_members: int) -> Tensor | None:
    # No ratio of means exceeds the largest of the ratios, and that of the background is 1.
    if target.log_ratio_bound is None:
        return None
    bounds = target.log_ratio_bound.to(log_z) - log_z
    return bounds.view(n_members, -1).amax(dim=0).clamp_min(0.0)


def _with_background(q: Any, calibration: Calibration) -> Any:
    # One more component in every row.
    B, _, D = q.means.shape
    share = calibration.background_share.to(q.logits)
    return q.with_components(
        torch.cat([q.logits + torch.log1p(-share), share.log().expand(B, 1)], dim=1),
        torch.cat([q.means, calibration.background_mean.to(q.means).expand(B, 1, D)], dim=1),
        torch.cat([q.scales, calibration.background_scale.to(q.scales).expand(B, 1, D)], dim=1),
    )


def _background(q: Any, calibration: Calibration) -> Any:
    # The background alone, of the family of q and with its bounds; one row.
    mean, scale = calibration.background_mean, calibration.background_scale
    return q.with_components(mean.new_zeros(1, 1), mean[None, None], scale[None, None])


def _over(background: Any, share: Tensor, log_p: Tensor, y: Tensor) -> Tensor:
    # (M, B), at targets (M, B, D).
    if share == 0:
        return log_p
    values = y.double()
    log_background = background.log_prob(values.flatten(0, 1)[:, None]).view(values.shape[:2])
    return torch.logaddexp(torch.log1p(-share) + log_p, share.log() + log_background)
