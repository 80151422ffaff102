"""Nodes of a curve: where the density of a mixture of one target is to be known."""

import torch
from torch import Tensor

from ebreg.distributions import components

_N_NODES_A_COMPONENT = 4  # beside those of the row
# How far nodes reach from a component, in its scales; nodes that every component has, as shares of that.
_REACH, _FIXED = 8.0, (0.25, 1.0)
# Of the nodes, shared equally by the components; the rest goes by the cube roots of their weights.
_LEAST_SHARE = 0.25
# A bound further out than so many times the span of the other nodes has no node; one there stands for it.
_FARTHEST = 1e3


def curve_nodes(
    logits: Tensor, means: Tensor, scales: Tensor, low: Tensor, high: Tensor, n_nodes: int
) -> Tensor:
    """Nodes that resolve every component, however narrow or light it is.

    They lie at its centre and at two distances from it. In between, a component has a number of nodes that
    grows with its weight, and they are closer together near its centre. All are within the bounds. Finite
    bounds are among them, but for those too far away for the density there to be a number above 0: a span
    that wide would leave no digits for what is inside.

    Args:
        logits: Log weights of the components, shape (B, K).
        means: Shape (B, K, 1).
        scales: Shape (B, K, 1).
        low: Lower bound, or -inf, shape (1,).
        high: Upper bound, or inf, shape (1,).
        n_nodes: Number of nodes that go where the density is.

    Returns:
        Shape (N, B), in no order.
    """
    B, K = logits.shape
    shares = (logits / 3).softmax(dim=1).lerp(torch.full_like(logits, 1 / K), _LEAST_SHARE)
    n = n_nodes + _N_NODES_A_COMPONENT * K
    v = (torch.arange(n, dtype=means.dtype, device=means.device) + 0.5) / n
    component, t = components.choose(shares, v[:, None].expand(-1, B))
    centres, reach = means.clamp(low, high), _REACH * scales
    left, right = torch.minimum(reach, centres - low), torch.minimum(reach, high - centres)
    centre, before, after = (components.pick(table, component)[..., 0] for table in (centres, left, right))
    z = 2 * t - 1
    nodes = centre + torch.where(z < 0, before, after) * z * z.abs()
    around = [place for s in _FIXED for place in (centres - s * left, centres + s * right)]
    fixed = torch.cat([centres, *around], dim=1)[..., 0].T  # (5 K, B)
    inner = torch.cat([fixed, nodes])
    lowest, highest = inner.aminmax(dim=0, keepdim=True)  # (1, B)
    farthest = _FARTHEST * (highest - lowest)
    ends = [bound.clamp(lowest - farthest, highest + farthest) for bound in (low, high) if bound.isfinite()]
    return torch.cat([inner, *ends]).clamp(low, high)  # rounding must not leave the bounds
