"""Quadrature: the density of one target at nodes, as many as each row needs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.curve import Curve, more_nodes
from ebreg.predictive.first_nodes import (
    component_tails,
    ends_at_bounds,
    is_bounded,
    quantile_nodes,
    row_nodes,
    within_bounds,
)
from ebreg.predictive.node_density import UNRELIABLE_ERROR, NodeDensity
from ebreg.predictive.search_nodes import SearchNodes
from ebreg.predictive.unnormalized import Unnormalized

# A first or last node as close to a bound, as a share of the span of the nodes, is at it.
_AT_BOUND = 1e-6
# The error of rows whose narrowest modes are too narrow even for that: it makes them unreliable.
_UNRESOLVED = 2 * UNRELIABLE_ERROR


def quadrature(target: Unnormalized, accuracy: Accuracy) -> NodeDensity:
    """p(y | x) of one target: f at nodes, normalised, in the user's units.

    Every row starts with nodes at the proposal's quantiles and evenly over the box of the tail, which all
    rows share, and with half of ``n_nodes`` where those have shown mass or an edge. A row whose log Z is less
    accurate than the tolerance gets four times as many, up to ``max_nodes``; it decides for itself, so its
    answer does not depend on the other rows. The other rows are padded by nodes that coincide. Cubics between
    the nodes give more, and between those the log density is linear.

    The nodes over the box see mass that the proposal misses, in modes whose standard deviation is at least a
    quarter of their distance. Where f - log q is bounded there is nothing to look for, and they are few.

    Gradients reach f, and by it the features. Where the nodes lie is not differentiated: the derivative of
    an integral over fixed nodes is the integral of the derivative.
    """
    return in_units(adaptive_curve(target, accuracy), target, accuracy)


def adaptive_curve(target: Unnormalized, accuracy: Accuracy) -> Curve:
    """F at as many nodes as each row needs, in standard units."""
    search = SearchNodes.of(target, accuracy)
    kind, is_unresolved = search.kinds(target)
    curves, order = [], []
    for k in kind.unique().tolist() or [0]:
        rows = (kind == k).nonzero()[:, 0]
        curve = _refined(target[rows], accuracy, search.nodes(k))
        curves.append(curve.with_error_of_at_least(torch.where(is_unresolved[rows], _UNRESOLVED, 0.0)))
        order.append(rows)
    return _in_order(curves, order)


def _refined(target: Unnormalized, accuracy: Accuracy, even: Tensor) -> Curve:
    # With nodes over the box that all rows share, (G,).
    rows = torch.arange(len(target), device=target.h.device)
    curve = _first_curve(target, accuracy.n_nodes, even)
    done, order = [], []
    for n_nodes in accuracy.node_counts[1:]:
        is_bad = ~(curve.error <= accuracy.tolerance)
        if not is_bad.any():
            break
        done.append(curve[~is_bad])
        order.append(rows[~is_bad])
        target, rows = target[is_bad], rows[is_bad]
        curve = _finer(curve[is_bad], target, n_nodes)
    return _in_order([*done, curve], [*order, rows])


def _first_curve(target: Unnormalized, n_nodes: int, even: Tensor) -> Curve:
    nodes = row_nodes(target, n_nodes // 4, n_nodes // 4)  # (N, B)
    log_f = target.energy(nodes[..., None])
    if len(even):
        nodes = torch.cat([nodes, even[:, None].expand(-1, len(target))])
        log_f = torch.cat([log_f, target.on_grid(even[:, None])])
    more = more_nodes(nodes, log_f, n_nodes // 2)
    return Curve.of(
        torch.cat([nodes, more]), torch.cat([log_f, target.energy(more[..., None])]), is_bounded(target)
    )


def _finer(curve: Curve, target: Unnormalized, n: int) -> Curve:
    nodes, log_f = curve.nodes.T, curve.log_f.T
    parts = [more_nodes(nodes, log_f, n // 2), quantile_nodes(target, n // 4), component_tails(target)]
    more = within_bounds(torch.cat([part for part in parts if part is not None]), target)
    return Curve.of(
        torch.cat([nodes, more]), torch.cat([log_f, target.energy(more[..., None])]), is_bounded(target)
    )


def _in_order(curves: Sequence[Curve], rows: Sequence[Tensor]) -> Curve:
    # Curves of rows with these numbers, as one.
    first, *others = curves
    return first.joined(others)[torch.cat(list(rows)).argsort()] if others else first


def in_units(curve: Curve, target: Unnormalized, accuracy: Accuracy) -> NodeDensity:
    """The density of a curve in standard units, normalised and in the user's."""
    nodes, bounded = target.to_units(curve.nodes[..., None])[..., 0], is_bounded(target)
    # The bounds as they were given: to standard units and back they may move by a rounding error.
    bounds, span = (target.bounds.low, target.bounds.high), nodes[:, -1] - nodes[:, 0]
    for end, bound, is_bound, is_end in zip((0, -1), bounds, bounded, ends_at_bounds(target), strict=True):
        if is_bound:
            is_there = (nodes[:, end] - bound).abs() <= _AT_BOUND * span
            nodes[:, end] = torch.where(is_there | is_end, bound, nodes[:, end])
    return NodeDensity(
        nodes=nodes,
        log_f=curve.log_f,
        bounded=bounded,
        support=(bounds[0].item(), bounds[1].item()),
        log_partition_error=curve.error,
        proposal=target.proposal_in_units,
        n_diagnostic_draws=accuracy.n_diagnostic_draws,
        n_parts=curve.n_parts,
    )
