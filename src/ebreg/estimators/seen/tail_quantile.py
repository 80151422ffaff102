"""Quantiles far out in a sample, also beyond its largest value."""

import math

import torch
from torch import Tensor

_N_LARGEST = 10


def tail_quantile(values: Tensor, share: float) -> Tensor:
    r"""The value that a share of new values is expected to exceed, for each column.

    An order statistic where enough values lie beyond it. Otherwise the k largest values are the start of an
    exponential tail, with the mean of their excess over the smallest of them for its scale:

    .. math:: v_{(k)} + \tfrac12 \bigl[\log r + k (r^{1/k} - 1)\bigr] \,
        \Bigl(\tfrac1k \textstyle\sum_{i \le k} v_{(i)} - v_{(k)}\Bigr), \qquad r = \frac{k}{n s}

    where :math:`v_{(i)}` is the i-th largest value and s the share. The first term in brackets takes the
    scale for known. The second accounts for its error, and is too large for tails that end sooner than
    exponentially, as most do.

    Args:
        values: Shape (n, C).
        share: s.

    Returns:
        Shape (C,).
    """
    n = len(values)
    k = min(_N_LARGEST, max(2, n // 3), n)
    if n * share >= k:
        return values.kthvalue(n - int(n * share), dim=0).values
    largest = values.topk(k, dim=0).values
    ratio = k / (n * share)
    factor = (math.log(ratio) + k * (ratio ** (1 / k) - 1)) / 2
    return largest[-1] + factor * (largest.mean(dim=0) - largest[-1])


def joint_limits(scores: Tensor, share: float) -> Tensor:
    """Limits, one a column, that a share of new rows is expected to exceed in any column: (n, C) -> (C,)."""
    limits = tail_quantile(scores, share / scores.shape[1])
    relative = scores / limits.clamp_min(torch.finfo(scores.dtype).tiny)
    relative = torch.where(scores > 0, relative, 0.0).clamp(max=1e9).amax(dim=1, keepdim=True)
    return limits * tail_quantile(relative, share)
