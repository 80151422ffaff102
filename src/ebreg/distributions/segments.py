"""One segment of a log-linear density: a position t in [0, 1] has density proportional to exp(rise t).

The closed forms of a segment divide by its rise. Their derivatives are closed forms too, written out where
autograd would subtract two numbers that are nearly equal, or multiply zero by infinity.
"""

from typing import Any

import torch
from torch import Tensor

# Below this drop across a segment the closed forms of its moments cancel; the series are exact to 1e-10.
_FLAT = 3e-3
# A drop that no other form can tell from zero; it replaces zero where they divide by it.
LEVEL = 1e-20
# A larger drop changes no digit of the moments, but its exponential is infinite, and no gradient with it.
_STEEP = 700.0


def log_mean_decay(drop: Tensor) -> Tensor:
    """Log of the mean of exp(-drop t) over t in [0, 1]; for a drop of at least 0, of any shape."""
    return _LogMeanDecay.apply(drop)


def mean_decay(drop: Tensor) -> Tensor:
    """The mean of exp(-drop t) over t in [0, 1]; for a drop of at least 0, of any shape."""
    return _MeanDecay.apply(drop)


def moments(rise: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the position, of any shape."""
    first, second = _decay_moments(_drop(rise))
    return torch.where(rise > 0, 1 - first, first), (second - first**2).clamp_min(0)


def mean_position(rise: Tensor) -> Tensor:
    """The mean alone, for less: of any shape."""
    is_flat = rise.abs() < _FLAT
    # Not differentiated through the branch that is left out, where a rise of 0 would give NaN.
    steep = torch.where(is_flat, 1.0, rise)
    mean = -torch.expm1(-steep.clamp_min(-_STEEP)).reciprocal() - steep.reciprocal()
    return torch.where(is_flat, 0.5 + rise / 12, mean)


def share_below(t: Tensor, rise: Tensor) -> Tensor:
    """Share of the mass at positions below t; two of one shape."""
    return _ShareBelow.apply(t, rise)


def loss(depth: Tensor) -> Tensor:
    """By how much the density has fallen at a depth below its maximum, as a share of it, of any shape.

    A segment that falls by ``drop`` has the share ``loss(depth) / loss(drop)`` of its mass above the depth,
    for depths of at most ``drop``, where that is at least ``LEVEL``.
    """
    return -torch.expm1(-depth)


def inverse_share(share: Tensor, rise: Tensor) -> Tensor:
    """Inverse of :func:`share_below` in its first argument; not made to be differentiated."""
    drop = rise.abs().clamp_min(LEVEL)
    r = torch.where(rise > 0, 1 - share, share)
    s = (-torch.log1p(r * torch.expm1(-drop)) / drop).clamp(0, 1)
    return torch.where(rise > 0, 1 - s, s)


def _drop(rise: Tensor) -> Tensor:
    # The absolute value, with the derivative -1 at 0, as the other branch of a choice by rise > 0 has it.
    return torch.where(rise > 0, rise, -rise)


def _decay_moments(drop: Tensor) -> tuple[Tensor, Tensor]:
    """First and second moment of t in [0, 1] with density proportional to exp(-drop t)."""
    safe = drop.clamp_min(_FLAT)
    rest = 1 / torch.expm1(safe.clamp(max=_STEEP))
    first = torch.where(drop < _FLAT, 0.5 - drop / 12, 1 / safe - rest)
    second = torch.where(drop < _FLAT, 1 / 3 - drop / 12 + drop**2 / 360, 2 / safe**2 - (1 + 2 / safe) * rest)
    return first, second


class _LogMeanDecay(torch.autograd.Function):
    """See :func:`log_mean_decay`: its derivative is minus the mean position."""

    @staticmethod
    def forward(ctx: Any, drop: Tensor) -> Tensor:
        ctx.save_for_backward(drop)
        drop = drop.clamp_min(LEVEL)
        return (-torch.expm1(-drop) / drop).log()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (drop,) = ctx.saved_tensors
        return -grad * _decay_moments(drop)[0]


class _MeanDecay(torch.autograd.Function):
    """See :func:`mean_decay`: its derivative is minus the mean position, times it."""

    @staticmethod
    def forward(ctx: Any, drop: Tensor) -> Tensor:
        ctx.save_for_backward(drop)
        drop = drop.clamp_min(LEVEL)
        return torch.expm1(-drop).neg_().div_(drop)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (drop,) = ctx.saved_tensors
        return -grad * mean_decay(drop) * _decay_moments(drop)[0]


class _ShareBelow(torch.autograd.Function):
    """See :func:`share_below`.

    Its derivative in t is the density there; in the rise, the share times the distance from the mean position
    of all the mass to that of the mass below t.
    """

    @staticmethod
    def forward(ctx: Any, t: Tensor, rise: Tensor) -> Tensor:
        # Measured from the high end the exponent is negative, so nothing overflows.
        drop = rise.abs().clamp_min(LEVEL)
        s = torch.where(rise > 0, 1 - t, t)
        share = torch.expm1(-drop * s) / torch.expm1(-drop)
        share = torch.where(rise > 0, 1 - share, share)
        ctx.save_for_backward(t, rise, share)
        return share

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        t, rise, share = ctx.saved_tensors
        by_t = by_rise = None
        if ctx.needs_input_grad[0]:
            drop = _drop(rise)
            by_t = grad * (-drop * torch.where(rise > 0, 1 - t, t) - log_mean_decay(drop)).exp()
        if ctx.needs_input_grad[1]:
            by_rise = grad * share * (t * moments(t * rise)[0] - moments(rise)[0])
        return by_t, by_rise
