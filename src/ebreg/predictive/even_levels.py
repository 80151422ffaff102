"""Quantiles of densities that are linear between nodes, at even levels: where further nodes go."""

import torch
from torch import Tensor

_SMALLEST = 1e-30


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
