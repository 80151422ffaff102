"""Components of mixtures, chosen by points of the unit cube, for each of B rows."""

import torch
from torch import Tensor

from ebreg._utils import checks


def points(u: Tensor, B: int, D: int) -> Tensor:
    """Points for every row: (M, B, D), or (M, D) for the same in all of them, -> (M, B, D)."""
    u = u[:, None].expand(-1, B, -1) if u.dim() == 2 else u
    checks.shape("u", u, ("M", B, D))
    return u


def choose(weights: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The component whose interval v falls into, and the position in it.

    Args:
        weights: Of the components, summing to 1, shape (B, K).
        v: In [0, 1], shape (M, B).

    Returns:
        Components counted through all rows, and positions in [0, 1]; both (M, B).
    """
    upper = weights.cumsum(dim=1)
    # Rounding must not let v fall outside of every interval, or into one of no width.
    v = v.clamp_min(torch.finfo(v.dtype).tiny) * upper[:, -1]
    B, K = weights.shape
    component = torch.arange(0, B * K, K, dtype=torch.int32, device=v.device).repeat(len(v), 1)
    for border in upper.T[:-1].contiguous():  # K comparisons of (M, B) beat one of (M, B, K)
        component += v > border
    weight, top = _at(weights, component), _at(upper, component)
    return component, (v - (top - weight)) / weight


def place(weights: Tensor, log_joint: Tensor, share_below: Tensor, u: Tensor) -> Tensor:
    """An inverse of :func:`choose` for a value: a component by its responsibility, then the position in it.

    Args:
        weights: Of the components, summing to 1, shape (B, K).
        log_joint: Log weight times density of each component at the value, up to a constant, shape (B, K).
        share_below: Mass of each component below the value, in the first target, shape (B, K).
        u: Uniform numbers that draw the component, shape (B,).

    Returns:
        Shape (B,), in [0, 1].
    """
    responsibility = log_joint.T.softmax(dim=0).T  # several times faster than along the rows
    component = (u[:, None] > responsibility.cumsum(dim=1)[:, :-1]).sum(dim=1, keepdim=True)
    places = weights.cumsum(dim=1) - weights * (1 - share_below)
    return places.gather(1, component)[:, 0].clamp(0, 1)


def pick(table: Tensor, component: Tensor) -> Tensor:
    """Entries of a table (B, K, n) for components that :func:`choose` chose: (M, B) -> (M, B, n)."""
    n = table.shape[-1]
    return _at(table, component[..., None] * n + torch.arange(n, dtype=component.dtype, device=table.device))


def _at(table: Tensor, index: Tensor) -> Tensor:
    # Entries by their place in the flat table: ten times faster than by one index for each axis.
    return table.flatten().index_select(0, index.flatten()).reshape(index.shape)
