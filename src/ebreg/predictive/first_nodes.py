"""First nodes of rows of one target: where the proposal has mass, over the box of the tail, and beyond it."""

from typing import Any

import torch
from torch import Tensor

from ebreg.distributions import GaussianMixture
from ebreg.predictive.unnormalized import Unnormalized
from ebreg.units import Tail

# The first nodes in a tail, in widths of the tail: the energy is a parabola there.
_TAIL = torch.tensor([0.2, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8], dtype=torch.float64)
# The first nodes beside a bound, in widths of the whole: a density may rise without limit there.
_NEAR = 2.0 ** -torch.arange(6, 17, dtype=torch.float64)
# Nodes on both sides of an end of the box, in widths of the tail: f has a kink there, and cubics need the
# slope on either side of it.
_KINK = 1e-4
# Nodes in the tails of a component, in its standard deviations: where others are far wider, nothing else lies
# there, and a straight line from its quantiles to theirs would be mass.
_COMPONENT_TAIL = torch.tensor([-6, -4.5, -3, 3, 4.5, 6], dtype=torch.float64)
# Where a bound lies far beyond the box, nodes reach towards it so many scales from the outermost components;
# and, of a proposal that is no mixture, to these levels.
_REACH = torch.tensor([3, 4.5, 6, 8], dtype=torch.float64)
_EXTREME = torch.tensor([1e-3, 1e-6, 1e-9], dtype=torch.float64)


def is_bounded(target: Unnormalized) -> tuple[bool, bool]:
    """Whether the target has a lower bound, and an upper one."""
    if target.tail is None:
        return False, False
    below, above = target.tail.is_bounded
    return bool(below), bool(above)


@torch.no_grad()
def quantile_nodes(target: Unnormalized, n: int) -> Tensor:
    """Nodes that hold equal shares of the proposal's mass, (n, B)."""
    # Even points through from_uniform lie at quantiles of the components: as good, and without a search.
    levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    nodes: Tensor = target.proposal.from_uniform(levels[:, None, None].expand(-1, len(target), -1))
    return nodes[..., 0].double().sort(dim=0).values


@torch.no_grad()
def row_nodes(target: Unnormalized, n_quantiles: int, n_even: int) -> Tensor:
    """Nodes of each row: quantiles of the proposal, and some beyond the box of the tail, (N, B).

    All are within the bounds. The first and the last are at the bounds where the box ends there or the
    proposal has mass there; elsewhere bounds lie further out than any mass. Without a tail the box is that of
    the quantiles, and ``n_even`` nodes lie evenly over it.
    """
    quantiles = quantile_nodes(target, n_quantiles)
    tail = target.tail
    if tail is None:
        low, high = quantiles[0], quantiles[-1]
        t = torch.linspace(0, 1, n_even, dtype=torch.float64, device=low.device)[:, None]
        parts = [quantiles, low + t * (high - low), *_beyond(low, high, high - low, (False, False))]
    else:
        fixed = [*beyond_the_box(target), _beside_kinks(tail)]
        parts = [
            quantiles,
            *(part[:, None].expand(-1, len(target)) for part in fixed),
            *towards_bounds(target),
        ]
    return within_bounds(torch.cat(parts), target)


def beyond_the_box(target: Unnormalized) -> tuple[Tensor, Tensor]:
    """Nodes in the tails on both sides of the box, or beside bounds, (n,) each."""
    tail = target.tail
    assert tail is not None
    left, right = _beyond(tail.low, tail.high, tail.width, ends_at_bounds(target))
    return left[:, 0], right[:, 0]


def _beside_kinks(tail: Tail) -> Tensor:
    # (n,); an end of the box at a bound has no kink.
    kinks = [
        end[0]
        for end, is_bound in zip((tail.low, tail.high), tail.ends_at_bounds, strict=True)
        if not is_bound
    ]
    step = _KINK * tail.width[0]
    return torch.stack([kink + side * step for kink in kinks for side in (-1, 1)]) if kinks else tail.low[:0]


def towards_bounds(target: Unnormalized) -> list[Tensor]:
    """Nodes around the proposal, (n, B), on the sides of bounds that are no ends of the box.

    Far from the data the proposal may reach such a bound, and then the bound is to be a node.
    """
    sides = zip((-1, 1), is_bounded(target), ends_at_bounds(target), strict=True)
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


def ends_at_bounds(target: Unnormalized) -> tuple[bool, bool]:
    """Whether the box ends at the lower bound, and at the upper one."""
    if target.tail is None:
        return False, False
    below, above = target.tail.ends_at_bounds
    return bool(below), bool(above)


def _beyond(low: Tensor, high: Tensor, width: Tensor, bounded: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    # Of boxes, (B,) each: (n, B).
    out, near = _TAIL.to(low.device)[:, None] * width, _NEAR.to(low.device)[:, None] * (high - low)
    return low + near if bounded[0] else low - out, high - near if bounded[1] else high + out


@torch.no_grad()
def component_tails(target: Unnormalized) -> Tensor | None:
    """Nodes in the tails of components, (n, B); None: a proposal that is no mixture has none."""
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
