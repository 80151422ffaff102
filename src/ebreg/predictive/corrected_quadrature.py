"""Quadrature of several corrected mixtures at nodes that they share."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ebreg.distributions.node_positions import NodePositions
from ebreg.errors import UndefinedError
from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.node_density import NodeDensity
from ebreg.predictive.quadrature import (
    Curve,
    first_nodes,
    is_bounded,
    more_nodes,
    refine,
)
from ebreg.predictive.unnormalized import Unnormalized

# Nodes that give a member an integral further from 1 than this do not suit it.
_MOST_MISSED = 0.05
# The error of cubics in a log density, as a share of that of trapezoids: less than this, as measured.
_CUBIC = 0.1
# Parts into which cubics cut a segment between nodes, in rows that need no more nodes.
_N_PARTS = 4
# Rows times members whose mixtures are evaluated at once: what fits the cache.
_TILE = 256


@dataclass(frozen=True)
class CorrectedMembers:
    r"""Densities of E members, :math:`q_e \exp(g_e) / Z_e`, and how they become one.

    Attributes:
        weights: The members' shares of the density of all, shape (E,), summing to 1.
        in_tiles: Whether a few rows at a time are evaluated.
        at: Turns nodes (N, b) and the numbers of their rows, (b,), into :math:`\log q_e` and
            :math:`g_e`, (N, E, b) each; the former is not differentiated, so g has its gradients too.
        merge: Turns :math:`\log Z_e`, (E * B,), into one density of B rows; its proposal is that of the
            :math:`q_e`.
        log_z_by_draws: Turns a mask of rows, (B,), into :math:`\log Z_e` of them, (E, b), from draws of each
            :math:`q_e`.
        over_background: Turns log densities (N, B) of the members at nodes (N, B) into those over a
            background, of which ``share`` is the share.
        share: Of the background, shape ().
    """

    weights: Tensor
    in_tiles: bool
    at: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    merge: Callable[[Tensor], Unnormalized]
    log_z_by_draws: Callable[[Tensor], Tensor]
    over_background: Callable[[Tensor, Tensor], Tensor]
    share: Tensor

    def tiles(self, n_rows: int) -> Tensor:
        """Numbers of the rows that are evaluated at once, shape (n, b)."""
        return _tiles(n_rows, _TILE // len(self.weights) if self.in_tiles else n_rows)


@dataclass(frozen=True)
class _Tile:
    """Members at the nodes of some rows.

    Attributes:
        log_p: Log density of all members, shape (N, b).
        moved: Its difference from that without corrections, no logarithm, shape (N, b).
        log_z: Of each member, shape (E, b).
        missed: By how much the rule's integral of a proposal differs from 1, at most, shape (b,).
        change: Of log Z by leaving out every other node, shape (E, b).
    """

    log_p: Tensor
    moved: Tensor
    log_z: Tensor
    missed: Tensor
    change: Tensor

    @classmethod
    def of(cls, members: CorrectedMembers, nodes: Tensor, rows: Tensor) -> "_Tile":
        """At nodes (N, b) of the rows with these numbers."""
        log_q, g = members.at(nodes, rows)
        top = log_q.amax(dim=1).clamp_min(torch.finfo(log_q.dtype).min)  # (N, b): no density vanishes
        q, ratio = (log_q - top[:, None]).exp(), g.exp()
        height = top.exp()
        rule, half_rule = (
            (_trapezoids(some) * height[::step]).to(q.dtype)[:, None]
            for some, step in ((nodes, 1), (nodes[::2], 2))
        )
        mass = q * rule
        total, z = mass.sum(dim=0), _mean(ratio, mass)  # (E, b)
        weights = members.weights.to(q)[:, None]
        p = (q * ratio * (weights / z)).sum(dim=1)
        with torch.no_grad():
            moved = (p - (q * weights).sum(dim=1)) * height
            change = (_mean(ratio[::2], q[::2] * half_rule) / z).log()
            missed = (total - 1).abs().amax(dim=0)
        return cls(p.log() + top, moved, z.log(), missed, change)


def corrected_quadrature(members: CorrectedMembers, merged: Unnormalized, accuracy: Accuracy) -> NodeDensity:
    """p(y | x) of one target, as :func:`quadrature` gives it, for less.

    A correction is smooth and bounded, so p is to be known where q has its mass, and q is known: nodes that
    suit q are found without the networks, and these are evaluated once, at ``n_nodes`` of them, for the
    normalisers of the members and for p. Rows whose log Z is less accurate than the tolerance, or in which
    these nodes do not suit a member, get four times as many. Those that are still not accurate, far from the
    data, get the members' normalisers from draws of each, and are computed by :func:`quadrature`. Gradients
    are as there.

    Args:
        members: The members.
        merged: Their density with any normalisers: its proposal and its tail are used.
        accuracy: Nodes and tolerance.
    """
    found = _Evaluated.of(members, merged, torch.arange(len(merged)), accuracy.n_nodes, accuracy.tolerance)
    n_parts = _N_PARTS
    for n_nodes in accuracy.node_counts[1:2]:
        is_bad = ~(found.curve.error <= accuracy.tolerance)
        if is_bad.any():
            rows = is_bad.nonzero()[:, 0]
            finer = _Evaluated.of(members, merged, rows, n_nodes, accuracy.tolerance)
            found, n_parts = found.interpolated(n_parts).with_rows(is_bad, finer), 1
    is_bad = ~(found.curve.error <= accuracy.tolerance)
    moments = found.moments if members.in_tiles else None
    if not is_bad.any():
        return refine(found.curve, merged, accuracy, n_parts, 1, moments)
    log_z = found.log_z.clone()
    log_z[:, is_bad] = members.log_z_by_draws(is_bad).to(log_z)
    target = members.merge(log_z.flatten().double())
    return refine(found.curve, target, accuracy, n_parts, 1, moments)


@dataclass(frozen=True)
class _Evaluated:
    """Rows with as many nodes each.

    Attributes:
        curve: Of the density of all members; its error is at least twice the tolerance where the nodes do not
            suit a member.
        log_z: Of the members, shape (E, b).
        moments: Mean and standard deviation in the user's units, shape (b, 1) each.
    """

    curve: Curve
    log_z: Tensor
    moments: tuple[Tensor, Tensor]

    @classmethod
    def of(
        cls, members: CorrectedMembers, merged: Unnormalized, rows: Tensor, n_nodes: int, tolerance: float
    ) -> "_Evaluated":
        """The rows with these numbers, (b,)."""
        target = merged if len(rows) == len(merged) else merged[rows]
        nodes = _nodes(target, n_nodes)  # (N, b)
        tiles = [_Tile.of(members, nodes[:, some], rows[some]) for some in members.tiles(len(rows))]
        log_p, moved, log_z, missed, change = (
            torch.cat([getattr(tile, field.name) for tile in tiles], dim=-1)[..., : len(rows)]
            for field in fields(_Tile)
        )
        # The error of the rule falls with the square of the number of nodes, so that of all is a third of
        # what leaving out every other one changes.
        fits = (missed < _MOST_MISSED) & (change.abs().amax(dim=0) < 3 * tolerance)
        error = torch.maximum(members.weights.to(change) @ change.abs(), _CUBIC * missed)
        error = torch.where(fits, error, error.clamp_min(2 * tolerance)).double()  # NaN included
        curve = Curve(nodes.T, members.over_background(log_p.double(), nodes).T, error)
        return cls(curve, log_z, _moments(target, nodes, (1 - members.share) * moved.detach()))

    def interpolated(self, n_parts: int) -> "_Evaluated":
        """With more nodes: cubics cut every segment into parts."""
        return replace(self, curve=self.curve.interpolated(n_parts))

    def with_rows(self, rows: Tensor, others: "_Evaluated") -> "_Evaluated":
        """With others in place of some of the rows, given as a mask (b,)."""
        order = torch.cat([(~rows).nonzero()[:, 0], rows.nonzero()[:, 0]]).argsort()
        mean, stddev = (
            kept.index_put((rows,), new) for kept, new in zip(self.moments, others.moments, strict=True)
        )
        log_z = torch.cat([self.log_z[:, ~rows], others.log_z], dim=1)[:, order]
        return _Evaluated(self.curve[~rows].joined([others.curve])[order], log_z, (mean, stddev))


@torch.no_grad()
def _moments(merged: Unnormalized, nodes: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
    # Mean and standard deviation, (B, 1) each, in the user's units: those of the proposal are known, and what
    # the corrections change is small, and so is the error of the rule for it.
    q = merged.proposal
    mean, distance = q.mean[:, 0], nodes - q.mean[:, 0]
    moved = moved * _rule(nodes)
    shift = (moved * distance).sum(dim=0)
    variance = q.variance[:, 0] + (moved * distance.square()).sum(dim=0) - shift.square()
    stddev = variance.clamp_min(0).sqrt()[:, None]
    return merged.to_units((mean + shift)[:, None]), merged.y_units.scale * stddev


def in_single_precision(
    q: NodePositions, g: Callable[[Tensor, Tensor], Tensor], nodes: Tensor
) -> tuple[Tensor, Tensor]:
    """What ``CorrectedMembers.at`` returns, rows in blocks: errors are those of the seventh digit.

    They are elementwise, so that a row's do not depend on the other rows.

    Args:
        q: The proposals, R rows.
        g: Turns levels, (N, R, 1), and log densities, (N, R), into g.
        nodes: Shape (N, R).
    """
    log_q, u = q.log_prob_and_levels(nodes)
    values = g(u[..., None], log_q)
    if not torch.isfinite(values).all():
        raise UndefinedError(
            "the log density is NaN or infinite for some targets: weights of networks are not finite; train "
            "again with a lower learning rate"
        )
    return log_q, values


@torch.no_grad()
def _nodes(merged: Unnormalized, n: int) -> Tensor:
    # (n + 2, B), where a sketch of q asks for them.
    sketch = first_nodes(merged, 3 * n // 8, n // 8)
    others = more_nodes(sketch, _log_proposal(merged, sketch), n, is_bounded(merged))
    return torch.cat([sketch[:1].minimum(others[:1]), others, sketch[-1:].maximum(others[-1:])])


def _log_proposal(merged: Unnormalized, nodes: Tensor) -> Tensor:
    # (N, B), a few rows at a time.
    q = merged.proposal
    positions, tiles = q.at_nodes(), _tiles(len(q), 8 * _TILE // q.means.shape[1])
    log_q = torch.cat([positions[rows].log_prob(nodes[:, rows]) for rows in tiles], dim=1)
    return log_q[:, : len(q)].double()


def _tiles(n_rows: int, size: int) -> Tensor:
    # Numbers of rows, (n, size). All tiles have one size, filled up by the last row: the order of a sum, and
    # with it the last bits of a row, would otherwise depend on how many others there are.
    size = max(1, size)
    return torch.arange(size * max(1, -(-n_rows // size))).clamp(max=max(0, n_rows - 1)).view(-1, size)


def _trapezoids(nodes: Tensor) -> Tensor:
    # Weights of nodes (N, b) in an integral.
    width = 0.5 * nodes.diff(dim=0)
    none = torch.zeros_like(width[:1])
    return torch.cat([none, width]) + torch.cat([width, none])


def _rule(nodes: Tensor) -> Tensor:
    # Weights of nodes (N, b), whose distances change smoothly, in an integral: trapezoids at every other node
    # have four times the error, so that it cancels in this.
    weights = 4 / 3 * _trapezoids(nodes)
    weights[::2] -= _trapezoids(nodes[::2]) / 3
    return weights


def _mean(values: Tensor, mass: Tensor) -> Tensor:
    # The integral of q is 1, and dividing by what the rule gives for it cancels most of the error. q is
    # constant here: only in the values do its gradients count.
    return (mass * values).sum(dim=0) / mass.sum(dim=0)
