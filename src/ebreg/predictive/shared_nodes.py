"""Nodes that several members share: as many as are asked for, where the mean density of their mixtures is."""

from collections.abc import Callable

import torch
from torch import Tensor

from ebreg._utils.sorting import sorted_rows
from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.predictive.even_levels import at_even_levels
from ebreg.predictive.first_nodes import beyond_the_box, towards_bounds, within_bounds
from ebreg.predictive.unnormalized import Unnormalized

# Nodes of the sketch: quantiles of all members together, and nodes evenly over the box of the tail.
_N_QUANTILES, _N_EVEN = 48, 16


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
