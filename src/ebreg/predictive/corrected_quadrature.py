"""Quadrature of several corrected mixtures at nodes that they share."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.node_density import NodeDensity
from ebreg.predictive.quadrature import (
    Curve,
    first_nodes,
    is_bounded,
    more_nodes,
    quantile_nodes,
    refine,
)
from ebreg.predictive.unnormalized import Unnormalized

# Nodes that give a member an integral further from 1 than this, in logarithms, do not suit it.
_MOST_MISSED = 0.05


@dataclass(frozen=True)
class CorrectedMembers:
    r"""Densities of E members, :math:`q_e \exp(g_e) / Z_e`, and how they become one.

    Attributes:
        n_members: E.
        parts: Rows of E members in blocks, E * B; f is :math:`\log q_e + g_e`.
        merge: Turns :math:`\log Z_e`, (E * B,), into one density of B rows; its proposal is that of the
            :math:`q_e`.
        log_z_by_draws: Turns a mask of rows, (B,), into :math:`\log Z_e` of them, (E, b), from draws of each
            :math:`q_e`.
        mean: Turns normalised log densities of the members, (M, E * B), at targets (M, B, 1) into that of
            their mean, (M, B).
    """

    n_members: int
    parts: Unnormalized
    merge: Callable[[Tensor], Unnormalized]
    log_z_by_draws: Callable[[Tensor], Tensor]
    mean: Callable[[Tensor, Tensor], Tensor]


def corrected_quadrature(members: CorrectedMembers, accuracy: Accuracy) -> NodeDensity:
    """p(y | x) of one target, as :func:`quadrature` gives it, for less.

    A correction is smooth and bounded, so p is to be known where q has its mass, and q is known: nodes that
    suit q are found without the networks, and these are evaluated once, at ``n_nodes`` of them, for the
    normalisers of the members and for p. Rows in which these nodes do not suit a member, far from the data,
    get its normaliser from draws of its own. They, and rows whose log Z is less accurate than the tolerance,
    are computed by :func:`quadrature`, with four times as many nodes. Gradients are as there.
    """
    parts = members.parts
    merged = members.merge(torch.zeros(len(parts), dtype=torch.float64, device=parts.h.device))
    nodes = _nodes(merged, accuracy.n_nodes)  # (N, B)
    y = nodes.repeat(1, members.n_members)[..., None]
    f, log_q = parts.energy(y), _log_proposal(parts, y)
    log_z = _log_normalizers(y[..., 0], f, log_q)
    unsuited = _is_unsuited(y[..., 0], f, log_q, log_z, accuracy.tolerance)
    unsuited = unsuited.view(members.n_members, -1).any(dim=0)  # (B,)
    if unsuited.any():
        blocks = log_z.view(members.n_members, -1).clone()
        blocks[:, unsuited] = members.log_z_by_draws(unsuited).to(blocks)
        log_z = blocks.flatten()
    curve = Curve.of(nodes, members.mean(f - log_z, nodes[..., None]), is_bounded(merged))
    error = torch.where(unsuited, curve.error.clamp_min(2 * accuracy.tolerance), curve.error)
    return refine(replace(curve, error=error), members.merge(log_z), accuracy)


def _nodes(merged: Unnormalized, n: int) -> Tensor:
    # (n + 2, B). A quarter at quantiles, so that every member has some where its mass is; the others where a
    # sketch of q asks for them.
    sketch = first_nodes(merged, n // 2)
    quantiles = quantile_nodes(merged, n // 4)
    others = more_nodes(sketch, _log_proposal(merged, sketch[..., None]), n - n // 4, is_bounded(merged))
    return torch.cat([sketch[:1], quantiles, others, sketch[-1:]]).sort(dim=0).values


@torch.no_grad()
def _log_proposal(target: Unnormalized, y: Tensor) -> Tensor:
    # At targets (M, B, 1), (M, B).
    log_q: Tensor = target.proposal.log_prob(y.to(target.h.dtype)).double()
    return log_q


def _log_weights(nodes: Tensor, log_q: Tensor) -> Tensor:
    # Log of twice the weight of each node, (N, B), in the integral of q by trapezoids.
    width = nodes.diff(dim=0)
    none = torch.zeros_like(width[:1])
    return (torch.cat([none, width]) + torch.cat([width, none])).log() + log_q


def _log_normalizers(nodes: Tensor, f: Tensor, log_q: Tensor) -> Tensor:
    # (N, E * B) each -> (E * B,): the mean of exp g, with the trapezoid rule for q as its weights. The
    # integral of q is 1, and dividing by what the rule gives for it cancels most of the error. q is constant
    # here: it is in f too, and only there do its gradients count.
    log_weights = _log_weights(nodes, log_q)
    g = torch.where(log_q.isinf(), 0.0, f - log_q)  # far out both densities may be 0
    return torch.logsumexp(log_weights + g, dim=0) - torch.logsumexp(log_weights, dim=0)


@torch.no_grad()
def _is_unsuited(nodes: Tensor, f: Tensor, log_q: Tensor, log_z: Tensor, tolerance: float) -> Tensor:
    # Whether the nodes miss mass of q, or half of them give another normaliser, (E * B,). The error of the
    # rule falls with the square of the number of nodes, so that of all is a third of the difference.
    log_integral = torch.logsumexp(_log_weights(nodes, log_q), dim=0) - math.log(2)
    half = _log_normalizers(nodes[::2], f[::2], log_q[::2])
    fits = (log_integral.abs() < _MOST_MISSED) & ((log_z - half).abs() < 3 * tolerance)
    return ~fits  # NaN included
