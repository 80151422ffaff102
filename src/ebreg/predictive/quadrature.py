"""Quadrature: the density of one target at nodes, as many as each row needs."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.predictive.accuracy import DEFAULT, Accuracy
from ebreg.predictive.curve import Curve, more_nodes
from ebreg.predictive.first_nodes import (
    component_tails,
    ends_at_bounds,
    even_nodes,
    is_bounded,
    row_nodes,
)
from ebreg.predictive.node_density import NodeDensity
from ebreg.predictive.unnormalized import Unnormalized

# A first or last node as close to a bound, as a share of the span of the nodes, is at it.
_AT_BOUND = 1e-6
# Distance of the nodes over the box, in standard units: they see modes of a quarter of it. There are at most
# so many for each of the first nodes.
_SPACING, _IN_SCALES, _MOST_EVEN = 0.04, 4.0, 8
# How much closer they may be in rows where the proposal shows narrower modes; its lightest components do not
# count.
_CLOSER = torch.tensor([1.0, 4.0, 16.0], dtype=torch.float64)
_LEAST_WEIGHT = 1e-3
# The error of rows whose narrowest modes are too narrow even for that: it makes them unreliable.
_UNRESOLVED = 0.1


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
    spacing = _spacing(target, accuracy.n_nodes)
    needed = _narrowest(target) if _has_search(target) else torch.full_like(spacing, torch.inf)
    # How much closer the nodes over the box have to be in each row.
    ratio = spacing / needed
    closer = torch.searchsorted(_CLOSER.to(ratio), ratio).clamp(max=len(_CLOSER) - 1)
    curves, order = [], []
    for k in closer.unique().tolist() or [0]:
        rows = (closer == k).nonzero()[:, 0]
        curve = _refined(target[rows], accuracy, int(_CLOSER[k]))
        is_unresolved = ratio[rows] > _CLOSER[-1]
        curves.append(curve.with_error_of_at_least(torch.where(is_unresolved, _UNRESOLVED, 0.0)))
        order.append(rows)
    return _in_order(curves, order)


def _refined(target: Unnormalized, accuracy: Accuracy, closer: int) -> Curve:
    # With nodes over the box that are so many times closer than usual.
    rows = torch.arange(len(target), device=target.h.device)
    curve = _first_curve(target, accuracy.n_nodes, closer)
    done, order = [], []
    n_before = accuracy.n_nodes
    for n_nodes in accuracy.node_counts[1:]:
        is_bad = ~(curve.error <= accuracy.tolerance)
        if not is_bad.any():
            break
        done.append(curve[~is_bad])
        order.append(rows[~is_bad])
        target, rows = target[is_bad], rows[is_bad]
        curve = _finer(curve[is_bad], target, n_nodes - n_before)
        n_before = n_nodes
    return _in_order([*done, curve], [*order, rows])


def _first_curve(target: Unnormalized, n_nodes: int, closer: int) -> Curve:
    nodes = row_nodes(target, n_nodes // 4, n_nodes // 4)  # (N, B)
    log_f = target.energy(nodes[..., None])
    if target.tail is not None:
        even = even_nodes(target.tail, closer * _n_even(target, n_nodes))
        nodes = torch.cat([nodes, even[:, None].expand(-1, len(target))])
        log_f = torch.cat([log_f, target.on_grid(even[:, None])])
    more = more_nodes(nodes, log_f, n_nodes // 2)
    return Curve.of(
        torch.cat([nodes, more]), torch.cat([log_f, target.energy(more[..., None])]), is_bounded(target)
    )


def _finer(curve: Curve, target: Unnormalized, n: int) -> Curve:
    nodes, log_f = curve.nodes.T, curve.log_f.T
    more, tails = more_nodes(nodes, log_f, n), component_tails(target)
    more = more if tails is None else torch.cat([more, tails])
    return Curve.of(
        torch.cat([nodes, more]), torch.cat([log_f, target.energy(more[..., None])]), is_bounded(target)
    )


def _in_order(curves: Sequence[Curve], rows: Sequence[Tensor]) -> Curve:
    # Curves of rows with these numbers, as one.
    first, *others = curves
    return first.joined(others)[torch.cat(list(rows)).argsort()] if others else first


def _has_search(target: Unnormalized) -> bool:
    # Whether there may be mass that the proposal misses, and a box to look for it.
    return target.tail is not None and target.log_ratio_bound is None


def _n_even(target: Unnormalized, n_nodes: int) -> int:
    # Nodes over the box, with the usual distance.
    fewest, most = n_nodes // 4, _MOST_EVEN * n_nodes
    if not _has_search(target):
        return fewest
    assert target.tail is not None
    width = (target.tail.high - target.tail.low).item()
    wanted = width / _SPACING * n_nodes / DEFAULT.n_nodes
    return max(fewest, math.ceil(min(wanted, most)))


def _spacing(target: Unnormalized, n_nodes: int) -> Tensor:
    # Of the nodes over the box, for each row, (B,).
    width = target.h.new_zeros(len(target), dtype=torch.float64)
    if target.tail is None:
        return width
    return width + (target.tail.high - target.tail.low) / (_n_even(target, n_nodes) - 1)


@torch.no_grad()
def _narrowest(target: Unnormalized) -> Tensor:
    # The distance that suits the narrowest component of the proposal, (B,).
    q = target.proposal
    if not isinstance(q, GaussianMixture):
        return torch.full((len(target),), torch.inf, dtype=torch.float64, device=target.h.device)
    scales = q.scales[..., 0].double().masked_fill(q.logits.softmax(dim=1) < _LEAST_WEIGHT, torch.inf)
    return _IN_SCALES * scales.amin(dim=1)


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
