"""Quadrature: the density of one target at nodes, as many as each row needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebreg.distributions.cubic import interpolated
from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.distributions.log_linear import LogLinear
from ebreg.distributions.log_linear_parts import log_integral
from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.node_density import NodeDensity, pad
from ebreg.predictive.unnormalized import Unnormalized

# Parts into which cubics cut a segment between nodes.
_N_PARTS = 4
# The first nodes in a tail, in widths of the tail: the energy is a parabola there.
_TAIL = torch.tensor([0.2, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8], dtype=torch.float64)
# The first nodes beside a bound, in widths of the whole: a density may rise without limit there.
_NEAR = 2.0 ** -torch.arange(6, 17, dtype=torch.float64)
# Nodes in the tails of a component, in its standard deviations: where others are far wider, nothing else lies
# there, and a straight line from its quantiles to theirs would be mass.
_COMPONENT_TAIL = torch.tensor([-6, -4.5, -3, 3, 4.5, 6], dtype=torch.float64)
# Where a bound lies far beyond the box, nodes reach towards it so many scales from the outermost components;
# and, of a proposal that is no mixture, to these levels.
_REACH = torch.tensor([3, 4.5, 6, 8], dtype=torch.float64)
_EXTREME = torch.tensor([1e-3, 1e-6, 1e-9], dtype=torch.float64)
# A first or last node as close to a bound, as a share of the span of the nodes, is at it.
_AT_BOUND = 1e-6


def quadrature(target: Unnormalized, accuracy: Accuracy) -> NodeDensity:
    """p(y | x) of one target: f at nodes, normalised, in the user's units.

    Every row starts with ``n_nodes``. A row whose log Z is less accurate than the tolerance is computed again
    with four times as many, up to ``max_nodes``; it decides for itself, so its answer does not depend on the
    other rows. The other rows are padded by nodes that coincide.

    Half of the nodes lie at the proposal's quantiles and evenly over the box of the tail; the other half
    where those have shown mass. Cubics between the nodes give four times as many, and between those the log
    density is linear. Rows that are computed again have nodes in the tails of each component too.

    Gradients reach f, and by it the features. Where the nodes lie is not differentiated: the derivative of
    an integral over fixed nodes is the integral of the derivative.
    """
    return refine(_resolve(target, accuracy.n_nodes), target, accuracy)


def refine(
    curve: "Curve",
    target: Unnormalized,
    accuracy: Accuracy,
    n_parts: int = _N_PARTS,
    n_parts_again: int = _N_PARTS,
) -> NodeDensity:
    """The density of a curve, in the user's units; rows that are not accurate enough get more nodes.

    Args:
        curve: Of all rows.
        target: The rows.
        accuracy: Nodes and tolerance.
        n_parts: Parts into which cubics cut a segment between nodes.
        n_parts_again: The same in rows that get more nodes.
    """
    rows, whole = torch.arange(len(target), device=target.h.device), target
    done: list[Curve] = []
    order: list[Tensor] = []
    for n_nodes in accuracy.node_counts[1:]:
        accurate = curve.error <= accuracy.tolerance
        if accurate.all():
            break
        done.append(curve[accurate].interpolated(n_parts_again if done else n_parts))
        order.append(rows[accurate])
        target, rows = target[~accurate], rows[~accurate]
        curve = _resolve(target, n_nodes, _component_tails(target))
    if done:
        curve = done[0].joined([*done[1:], curve.interpolated(n_parts_again)])
        curve, n_parts = curve[torch.cat([*order, rows]).argsort()], 1
    return _in_units(curve, whole, accuracy, n_parts)


@dataclass(frozen=True)
class Curve:
    """Nodes and values, (B, N), in standard units; the error of log Z, (B,)."""

    nodes: Tensor
    log_f: Tensor
    error: Tensor

    @classmethod
    def of(cls, nodes: Tensor, log_f: Tensor, bounded: tuple[bool, bool]) -> "Curve":
        """The curve through nodes and values, (N, B) each; its error is that of cubics between them."""
        nodes, log_f = nodes.T.contiguous(), log_f.T.contiguous()
        every_other = torch.arange(nodes.shape[1], device=nodes.device) % 2 == 0
        every_other[-1] = True
        fine, coarse = (
            log_integral(*interpolated(nodes[:, some], log_f[:, some], _N_PARTS), bounded)
            for some in (slice(None), every_other)
        )
        return cls(nodes, log_f, (fine - coarse).abs())

    def __getitem__(self, rows: Tensor) -> "Curve":
        return Curve(self.nodes[rows], self.log_f[rows], self.error[rows])

    def interpolated(self, n_parts: int) -> "Curve":
        """With more nodes: cubics cut every segment into parts."""
        if n_parts == 1:
            return self
        nodes, log_f = interpolated(self.nodes, self.log_f, n_parts)
        return Curve(nodes, log_f, self.error)

    def joined(self, others: Sequence["Curve"]) -> "Curve":
        """These rows and, below them, those of others."""
        parts = [self, *others]
        N = max(part.nodes.shape[1] for part in parts)
        return Curve(
            torch.cat([pad(part.nodes, N) for part in parts]),
            torch.cat([pad(part.log_f, N) for part in parts]),
            torch.cat([part.error for part in parts]),
        )


def _resolve(target: Unnormalized, n_nodes: int, further: Tensor | None = None) -> Curve:
    # With further nodes, (n, B), among the first.
    bounded = is_bounded(target)
    nodes = first_nodes(target, n_nodes // 4, n_nodes // 4)  # (N, B)
    if further is not None:
        nodes = torch.cat([nodes, further]).sort(dim=0).values
    log_f = target.energy(nodes[..., None])
    more = more_nodes(nodes, log_f, n_nodes // 2, bounded)
    nodes, order = torch.cat([nodes, more]).sort(dim=0)
    log_f = torch.cat([log_f, target.energy(more[..., None])]).gather(0, order)
    return Curve.of(nodes, log_f, bounded)


@torch.no_grad()
def more_nodes(nodes: Tensor, log_f: Tensor, n: int, bounded: tuple[bool, bool]) -> Tensor:
    """Nodes where the first, (N, B), have shown mass: (n, B)."""
    # A segment errs by about p times its width cubed: nodes as dense as the cube root of p err least.
    sketch = LogLinear(nodes.T, log_f.T / 3, bounded)
    levels = (torch.arange(n, dtype=torch.float64, device=nodes.device) + 0.5) / n
    return sketch.at_levels(levels[:, None].expand(-1, nodes.shape[1]))


def is_bounded(target: Unnormalized) -> tuple[bool, bool]:
    """Whether the target has a lower bound, and an upper one."""
    if target.tail is None:
        return False, False
    below, above = target.tail.is_bounded
    return bool(below), bool(above)


@torch.no_grad()
def _quantile_nodes(target: Unnormalized, n: int) -> Tensor:
    """Nodes that hold equal shares of the proposal's mass, (n, B)."""
    # Even points through from_uniform lie at quantiles of the components: as good, and without a search.
    levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    nodes: Tensor = target.proposal.from_uniform(levels[:, None, None].expand(-1, len(target), -1))
    return nodes[..., 0].double().sort(dim=0).values


@torch.no_grad()
def first_nodes(target: Unnormalized, n_quantiles: int, n_even: int) -> Tensor:
    """Quantiles of the proposal, nodes evenly over the box of the tail, and some beyond it, (N, B).

    All are within the bounds. The first and the last are at the bounds where the box ends there or the
    proposal has mass there; elsewhere bounds lie further out than any mass.
    """
    quantiles = _quantile_nodes(target, n_quantiles)
    tail = target.tail
    if tail is None:
        low, high = quantiles[0], quantiles[-1]
        width = high - low
    else:
        B = len(target)
        low, high, width = tail.low.expand(B), tail.high.expand(B), tail.width.expand(B)
    t = torch.linspace(0, 1, n_even, dtype=torch.float64, device=low.device)[:, None]
    even = low + t * (high - low)
    even[-1] = high  # rounding must not move the end itself
    left, right = _beyond(low, high, width, _ends_at_bounds(target))
    nodes = torch.cat([quantiles, even, left, right, *towards_bounds(target)]).sort(dim=0).values
    return within_bounds(nodes, target)


def beyond_the_box(target: Unnormalized) -> tuple[Tensor, Tensor]:
    """Nodes in the tails on both sides of the box, or beside bounds, (n,) each."""
    tail = target.tail
    assert tail is not None
    left, right = _beyond(tail.low, tail.high, tail.width, _ends_at_bounds(target))
    return left[:, 0], right[:, 0]


def towards_bounds(target: Unnormalized) -> list[Tensor]:
    """Nodes around the proposal, (n, B), on the sides of bounds that are no ends of the box.

    Far from the data the proposal may reach such a bound, and then the bound is to be a node.
    """
    sides = zip((-1, 1), is_bounded(target), _ends_at_bounds(target), strict=True)
    return [
        _reach(target.proposal, sign)
        for sign, is_bound, is_end in sides
        if is_bound and not is_end and len(target)
    ]


@torch.no_grad()
def _reach(q: Any, sign: int) -> Tensor:
    if not isinstance(q, GaussianMixture):
        levels = _EXTREME if sign < 0 else 1 - _EXTREME
        draws: Tensor = q.from_uniform(levels[:, None, None].expand(-1, len(q), -1))
        return draws[..., 0].double()
    means, scales = q.means[..., 0].double(), q.scales[..., 0].double()  # (B, K)
    places = sign * means + _REACH.to(means.device)[:, None, None] * scales
    return sign * places.amax(dim=2)


def _ends_at_bounds(target: Unnormalized) -> tuple[bool, bool]:
    # Whether the box ends at the lower bound, and at the upper one.
    if target.tail is None:
        return False, False
    below, above = target.tail.ends_at_bounds
    return bool(below), bool(above)


def _beyond(low: Tensor, high: Tensor, width: Tensor, bounded: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    # Of boxes, (B,) each: (n, B).
    out, near = _TAIL.to(low.device)[:, None] * width, _NEAR.to(low.device)[:, None] * (high - low)
    return low + near if bounded[0] else low - out, high - near if bounded[1] else high + out


@torch.no_grad()
def _component_tails(target: Unnormalized) -> Tensor | None:
    # (n, B); a proposal that is no mixture has no components.
    q = target.proposal
    if not isinstance(q, GaussianMixture):
        return None
    means, scales = q.means[..., 0].double(), q.scales[..., 0].double()  # (B, K)
    nodes = means[..., None] + scales[..., None] * _COMPONENT_TAIL.to(means.device)
    return within_bounds(nodes.flatten(1).T, target)


def within_bounds(nodes: Tensor, target: Unnormalized) -> Tensor:
    """Nodes (N, B), those beyond a bound moved to it."""
    tail = target.tail
    return nodes if tail is None else nodes.clamp(tail.bounds.low, tail.bounds.high)


def _in_units(curve: Curve, target: Unnormalized, accuracy: Accuracy, n_parts: int) -> NodeDensity:
    nodes, bounded = target.to_units(curve.nodes[..., None])[..., 0], is_bounded(target)
    # The bounds as they were given: to standard units and back they may move by a rounding error.
    bounds, span = (target.bounds.low, target.bounds.high), nodes[:, -1] - nodes[:, 0]
    for end, bound, is_bound, is_end in zip((0, -1), bounds, bounded, _ends_at_bounds(target), strict=True):
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
        n_parts=n_parts,
    )
