"""Derivatives that autograd does not find by itself."""

from typing import Any

import torch
from torch import Tensor

# A quantile may move by this many times its own scale for a change of the level by its distance from 0 or 1.
# In a gap between two modes it jumps, and its true derivative is infinite.
_FASTEST = 1e12


def tracked(*tensors: Tensor) -> bool:
    """Whether what is computed from these tensors now will have a gradient."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def sqrt(values: Tensor) -> Tensor:
    """The square root, whose derivative at 0 is 0 and not infinite."""
    if not tracked(values):
        return values.sqrt()
    positive = values > 0
    return torch.where(positive, torch.where(positive, values, 1.0).sqrt(), values.sqrt().detach())


def weights_of_fixed_points(weights: Tensor, log_p: Tensor) -> Tensor:
    r"""Weights of points that stay where they are while the log density there changes.

    .. math:: dw_m = w_m (d\log p_m - \textstyle\sum_l w_l \, d\log p_l)

    They still sum to one, so the expectation of a constant has no derivative.

    Args:
        weights: Summing to 1 over the first axis, shape (M, B). Not differentiated themselves.
        log_p: Log density at the points, finite, shape (M, B).

    Returns:
        The same numbers, shape (M, B).
    """
    change = log_p - log_p.detach()  # 0
    return weights * (1 + change - (weights * change).sum(dim=0))


def quantile(y: Tensor, cdf: Tensor, sparsity: Tensor) -> Tensor:
    r"""Quantiles y with their derivative, from that of the distribution function at fixed y.

    .. math:: F(y; \theta) = q \;\Rightarrow\; dy = -dF(y; \theta) / p(y)

    Args:
        y: The quantiles, of any shape.
        cdf: The distribution function there, of the same shape.
        sparsity: One over the density there, of the same shape.

    Returns:
        The same numbers. They can be differentiated once.
    """
    return _Quantile.apply(cdf, y, sparsity)


def sparsity(density: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    """One over the density at quantiles of levels q, bounded; scale is that of y. Shapes that broadcast."""
    return 1 / torch.maximum(density, torch.minimum(q, 1 - q) / (_FASTEST * scale))


class _Quantile(torch.autograd.Function):
    """See :func:`quantile`."""

    @staticmethod
    def forward(ctx: Any, cdf: Tensor, y: Tensor, sparsity: Tensor) -> Tensor:
        ctx.save_for_backward(sparsity)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # y and the density depend on the parameters too. Torch's once_differentiable would not notice: it
        # looks at grad alone, and a second derivative would miss a part.
        if torch.is_grad_enabled():
            raise RuntimeError("quantiles can be differentiated once; do not pass create_graph=True")
        (sparsity,) = ctx.saved_tensors
        return -grad * sparsity, None, None
