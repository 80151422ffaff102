"""Quadrature of several corrected mixtures at nodes that they share."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.distributions.node_positions import NodePositions
from ebreg.errors import UndefinedError
from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.curve import Curve
from ebreg.predictive.node_density import NodeDensity, pad
from ebreg.predictive.quadrature import adaptive_curve, in_units
from ebreg.predictive.row_tiles import row_tiles
from ebreg.predictive.shared_nodes import shared_nodes
from ebreg.predictive.unnormalized import Unnormalized

# Nodes that give a member an integral further from 1 than this do not suit it.
_MOST_MISSED = 0.01
# The error of cubics in a log density, as a share of that of trapezoids: less than this, as measured.
_CUBIC = 0.1
# Parts into which cubics cut a segment between nodes, in rows that need no more nodes.
_N_PARTS = 4
# Log densities lower than this, relative to the highest or at all, hold no mass: their exponentials are not
# denormal numbers, with which a processor is a hundred times slower.
_LOWEST = -35.0
# Numbers of one kind that are computed at once: as many as the cache holds.
_TILE = 2**18


@dataclass(frozen=True)
class CorrectedMembers:
    r"""Densities of E members, :math:`q_e \exp(g_e) / Z_e`, and how they become one.

    Attributes:
        proposals: The :math:`q_e`, rows in blocks, E * B.
        weights: The members' shares of the density of all, shape (E,), summing to 1.
        in_tiles: Whether a few rows at a time are evaluated.
        log_q: Turns nodes (N, b) and the numbers of their rows, (b,), into :math:`\log q_e`, (N, E, b).
        at: Turns nodes (N, b) and the numbers of their rows, (b,), into :math:`\log q_e` and
            :math:`g_e`, (N, E, b) each; the former is not differentiated, so g has its gradients too.
        merge: Turns :math:`\log Z_e`, (E * B,), into one density of B rows; its proposal is that of the
            :math:`q_e`.
        log_z_by_draws: Turns a mask of rows, (B,), into :math:`\log Z_e` of them, (E, b), from draws of each
            :math:`q_e`.
        over_background: Turns log densities (N, B) of the members at nodes (N, B) into those over a
            background.
    """

    proposals: GaussianMixture
    weights: Tensor
    in_tiles: bool
    log_q: Callable[[Tensor, Tensor], Tensor]
    at: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    merge: Callable[[Tensor], Unnormalized]
    log_z_by_draws: Callable[[Tensor], Tensor]
    over_background: Callable[[Tensor, Tensor], Tensor]

    def tiles(self, n_rows: int, n_nodes: int) -> Tensor:
        """Numbers of the rows that are evaluated at once, shape (n, b)."""
        n_numbers = n_nodes * len(self.weights) * self.proposals.means.shape[1]  # of a row
        return row_tiles(n_rows, _TILE // n_numbers if self.in_tiles else n_rows)

    def log_mean_q(self, nodes: Tensor, rows: Tensor) -> Tensor:
        """Log of the mean of the :math:`q_e` at nodes (N, b) of the rows with these numbers: (N, b)."""
        parts = []
        for some in self.tiles(len(rows), len(nodes)):
            log_q = self.log_q(nodes[:, some], rows[some])
            top = log_q.amax(dim=1).clamp_min(torch.finfo(log_q.dtype).min)
            q = (log_q - top[:, None]).clamp_min(_LOWEST).exp()
            parts.append((q * self.weights.to(q)[:, None]).sum(dim=1).log() + top)
        return torch.cat(parts, dim=1)[:, : len(rows)]


@dataclass(frozen=True)
class _Tile:
    """Members at the nodes of some rows.

    Attributes:
        log_p: Log density of all members, shape (N, b).
        log_z: Of each member, shape (E, b).
        missed: By how much the rule's integral of a proposal differs from 1, at most, shape (b,).
        change: Of log Z by leaving out every other node, shape (E, b).
    """

    log_p: Tensor
    log_z: Tensor
    missed: Tensor
    change: Tensor

    @classmethod
    def of(cls, members: CorrectedMembers, nodes: Tensor, rows: Tensor) -> "_Tile":
        """At nodes (N, b) of the rows with these numbers."""
        log_q, g = members.at(nodes, rows)
        top = log_q.amax(dim=1).clamp_min(torch.finfo(log_q.dtype).min)  # (N, b): no density vanishes
        q = (log_q - top[:, None]).clamp_min(_LOWEST).exp()
        p, height = q * g.exp(), top.clamp_min(_LOWEST).exp()  # of each member, without their normalisers
        rule, half_rule = (
            (_trapezoids(some) * height[::step]).to(q.dtype)[:, None]
            for some, step in ((nodes, 1), (nodes[::2], 2))
        )
        # The integral of q is 1, and dividing by what the rule gives for it cancels most of the error. q is
        # constant here: only in g do the members' gradients count.
        total = (q * rule).sum(dim=0)
        z = (p * rule).sum(dim=0) / total  # (E, b)
        log_p = (p * (members.weights.to(q)[:, None] / z)).sum(dim=1).log() + top
        with torch.no_grad():
            rough = (p[::2] * half_rule).sum(dim=0) / (q[::2] * half_rule).sum(dim=0)
            change, missed = (rough / z).log(), (total - 1).abs().amax(dim=0)
        return cls(log_p, z.log(), missed, change)


def corrected_quadrature(members: CorrectedMembers, merged: Unnormalized, accuracy: Accuracy) -> NodeDensity:
    """p(y | x) of one target, as :func:`quadrature` gives it, for less.

    A correction is smooth and bounded, so p is to be known where q has its mass, and q is known: nodes that
    suit q are found without the networks, and these are evaluated once, at ``n_nodes`` of them, for the
    normalisers of the members and for p. Rows whose log Z is less accurate than the tolerance, or in
    which these nodes do not suit a member, get four times as many. Those that are still not accurate, far
    from the data, get the members' normalisers from draws of each, and are computed by :func:`quadrature`.
    Gradients are as there.

    Args:
        members: The members.
        merged: Their density with any normalisers: its proposal and its tail are used.
        accuracy: Nodes and tolerance.
    """
    all_rows = torch.arange(len(merged))
    found = _Evaluated.of(members, merged, all_rows, accuracy.n_nodes, accuracy.tolerance)
    for n_nodes in accuracy.node_counts[1:2]:
        is_bad = ~(found.curve.error <= accuracy.tolerance)
        if is_bad.any():
            rows = is_bad.nonzero()[:, 0]
            finer = _Evaluated.of(members, merged, rows, n_nodes, accuracy.tolerance)
            found = found.interpolated().with_rows(is_bad, finer)
    is_bad = ~(found.curve.error <= accuracy.tolerance)
    if len(accuracy.node_counts) == 1 or not is_bad.any():
        return in_units(found.curve, merged, accuracy)
    log_z = found.log_z.clone()
    log_z[:, is_bad] = members.log_z_by_draws(is_bad).to(log_z)
    exact = adaptive_curve(members.merge(log_z.flatten().double())[is_bad], accuracy)
    order = torch.cat([(~is_bad).nonzero()[:, 0], is_bad.nonzero()[:, 0]]).argsort()
    return in_units(found.curve[~is_bad].joined([exact])[order], merged, accuracy)


@dataclass(frozen=True)
class _Evaluated:
    """Rows with as many nodes each.

    Attributes:
        curve: Of the density of all members; its error is at least twice the tolerance where the nodes do not
            suit a member.
        log_z: Of the members, shape (E, b).
    """

    curve: Curve
    log_z: Tensor

    @classmethod
    def of(
        cls, members: CorrectedMembers, merged: Unnormalized, rows: Tensor, n_nodes: int, tolerance: float
    ) -> "_Evaluated":
        """The rows with these numbers, (b,)."""
        proposals = members.proposals
        if len(rows) < len(merged):
            blocks = torch.arange(len(proposals), device=rows.device).view(-1, len(merged))
            merged, proposals = merged[rows], proposals[blocks[:, rows].flatten()]
        nodes = shared_nodes(proposals, merged, n_nodes, lambda y: members.log_mean_q(y, rows))  # (N, b)
        tiles = [
            _Tile.of(members, nodes[:, some], rows[some]) for some in members.tiles(len(rows), len(nodes))
        ]
        log_p, log_z, missed, change = (
            torch.cat([getattr(tile, field.name) for tile in tiles], dim=-1)[..., : len(rows)]
            for field in fields(_Tile)
        )
        # The error of the rule falls with the square of the number of nodes, so that of all is a third of
        # what leaving out every other one changes.
        fits = (missed < _MOST_MISSED) & (change.abs().amax(dim=0) < 3 * tolerance)
        error = torch.maximum(members.weights.to(change) @ change.abs(), _CUBIC * missed)
        error = torch.where(fits, error, error.clamp_min(2 * tolerance)).double()  # NaN included
        log_f = members.over_background(log_p.double(), nodes)
        return cls(Curve(nodes.T.contiguous(), log_f.T.contiguous(), error, _N_PARTS), log_z)

    def interpolated(self) -> "_Evaluated":
        """With the nodes that cubics make."""
        return replace(self, curve=self.curve.interpolated())

    def with_rows(self, rows: Tensor, others: "_Evaluated") -> "_Evaluated":
        """With others in place of some of the rows, given as a mask (b,)."""
        mine, theirs = self.curve, others.curve
        N = max(mine.nodes.shape[1], theirs.nodes.shape[1])
        nodes, log_f = (
            pad(old, N).index_put((rows,), pad(new, N))
            for old, new in ((mine.nodes, theirs.nodes), (mine.log_f, theirs.log_f))
        )
        log_z = self.log_z.T.index_put((rows,), others.log_z.T).T
        return _Evaluated(Curve(nodes, log_f, mine.error.index_put((rows,), theirs.error), 1), log_z)


def in_single_precision(
    q: NodePositions, g: Callable[[Tensor, Tensor], Tensor], distances: Tensor
) -> tuple[Tensor, Tensor]:
    """What ``CorrectedMembers.at`` returns, rows in blocks, to seven digits.

    Args:
        q: The proposals, R rows.
        g: Turns levels, (N, R, 1), and log densities, (N, R), into g.
        distances: Of nodes, as ``q`` takes them, shape (N, R).
    """
    log_q, u = q.log_prob_and_levels(distances)
    values = g(u[..., None], log_q)
    if not torch.isfinite(values.sum()):
        raise UndefinedError(
            "the log density is NaN or infinite for some targets: weights of networks are not finite; train "
            "again with a lower learning rate"
        )
    return log_q, values


def _trapezoids(nodes: Tensor) -> Tensor:
    # Weights of nodes (N, b) in an integral.
    width = 0.5 * nodes.diff(dim=0)
    none = torch.zeros_like(width[:1])
    return torch.cat([none, width]) + torch.cat([width, none])
