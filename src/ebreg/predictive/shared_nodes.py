"""Nodes that several members share: as many as are asked for, where the mean density of their mixtures is."""

from collections.abc import Callable

import torch
from torch import Tensor

from ebreg._utils.sorting import sorted_rows
from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.predictive.quadrature import beyond_the_box, towards_bounds, within_bounds
from ebreg.predictive.unnormalized import Unnormalized

# Nodes of the sketch: quantiles of all members together, and nodes evenly over the box of the tail.
_N_QUANTILES, _N_EVEN = 48, 16
_SMALLEST = 1e-30


@torch.no_grad()
def shared_nodes(
    members: GaussianMixture, merged: Unnormalized, n: int, log_density: Callable[[Tensor], Tensor]
) -> Tensor:
    """Nodes of B rows in standard units, (n + 2, B), ascending, float64.

    A sketch of the members' mean density at some nodes says where the others go: a segment errs by about p
    times its width cubed, so nodes as dense as the cube root of p err least. Their distances change smoothly.
    From the mean of the proposal to a node is a number in single precision.

    Args:
        members: Mixtures of one target, rows in blocks, E * B of them.
        merged: The rows; its proposal is the mean of the members' mixtures.
        n: Number of nodes between the two ends.
        log_density: Of that mean, but for a constant of each row: nodes (S, B) -> (S, B).
    """
    centre = merged.proposal.mean[:, :1]
    sketch = sorted_rows((_sketch_nodes(members, merged).T - centre).float().contiguous())  # (B, S)
    log_q = log_density((centre + sketch).T).T.contiguous()
    dense = (log_q - log_q.amax(dim=1, keepdim=True)).float().div_(3).exp_().nan_to_num_(0.0)
    inner = at_even_levels(sketch, dense, n)
    nodes = centre + torch.cat([sketch[:, :1], inner, sketch[:, -1:]], dim=1)
    return within_bounds(nodes.T, merged)


def at_even_levels(nodes: Tensor, density: Tensor, n: int) -> Tensor:
    """Quantiles at n evenly spaced levels of densities that are linear between nodes.

    Args:
        nodes: Ascending, shape (B, S).
        density: At the nodes, at least 0, shape (B, S).
        n: Number of quantiles.

    Returns:
        Shape (B, n), ascending.
    """
    width = nodes.diff(dim=1)
    below = torch.zeros_like(nodes)
    torch.cumsum((density[:, 1:] + density[:, :-1]).mul_(width).mul_(0.5), dim=1, out=below[:, 1:])
    below = below * (n / below[:, -1:].clamp_min(_SMALLEST))  # in steps of the levels, which are j + 1/2
    # The segment of a level: how many nodes, but the first, lie below it.
    first = (below[:, 1:-1] + 0.5).floor_().clamp_(0, n).long()
    counts = torch.zeros(len(nodes), n + 1, dtype=nodes.dtype, device=nodes.device)
    segment = counts.scatter_add_(1, first, torch.ones_like(first, dtype=nodes.dtype)).cumsum(dim=1)
    segment = segment[:, :n].long()
    levels = torch.arange(n, dtype=nodes.dtype, device=nodes.device) + 0.5
    rest = (levels - below.gather(1, segment)).clamp_min_(0)
    mass, width = below.diff(dim=1).gather(1, segment), width.gather(1, segment)
    here, there = density.gather(1, segment), density[:, 1:].gather(1, segment)
    share = (rest / mass.clamp_min(_SMALLEST)).clamp_max_(1)
    # Of a segment's mass, the share below t is (2 a t + (b - a) t^2) / (a + b).
    total = here + there
    t = (
        share
        * total
        / (here + (here * here + (there - here) * total * share).clamp_min(0).sqrt()).clamp_min(_SMALLEST)
    )
    return nodes.gather(1, segment) + t.clamp_max_(1) * width


def _sketch_nodes(members: GaussianMixture, merged: Unnormalized) -> Tensor:
    # (S, B), in no order.
    E = len(members) // len(merged)
    n = -(-_N_QUANTILES // E)
    # The levels of the members lie between each other.
    levels = (torch.arange(n * E, dtype=torch.float64).view(n, E, 1, 1) + 0.5) / (n * E)
    levels = levels.expand(n, E, len(merged), 1).flatten(1, 2)
    quantiles = members.from_uniform(levels)[..., 0].double().unflatten(1, (E, -1)).flatten(0, 1)
    tail = merged.tail
    if tail is None:
        return quantiles
    t = torch.linspace(0, 1, _N_EVEN, dtype=torch.float64, device=quantiles.device)
    even = tail.low + t * (tail.high - tail.low)
    fixed = torch.cat([even, *beyond_the_box(merged)])
    fixed = fixed[:, None].expand(-1, len(merged))
    return within_bounds(torch.cat([quantiles, fixed, *towards_bounds(merged)]), merged)
