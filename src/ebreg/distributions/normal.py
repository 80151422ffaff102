"""The standard Gaussian, accurate in both tails."""

import math

import torch
from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
# The logistic distribution with this factor differs from the normal one by less than 0.01.
LOGISTIC = 1.702


def density(z: Tensor) -> Tensor:
    """The density, of any shape."""
    return torch.exp(-0.5 * z * z - LOG_SQRT_2PI)


def cdf(z: Tensor) -> Tensor:
    """The distribution function, of any shape."""
    return 0.5 * torch.special.erfc(-math.sqrt(0.5) * z)  # ndtr has no digits below 1e-16


def icdf(u: Tensor) -> Tensor:
    """The inverse of :func:`cdf`, never infinite: a level of 0 or 1 counts as the nearest one between."""
    u = inner(u)
    # erfinv is several times faster and does for single precision; ndtri keeps its digits in the tails.
    return math.sqrt(2) * torch.erfinv(2 * u - 1) if u.dtype == torch.float32 else torch.special.ndtri(u)


def inner(u: Tensor) -> Tensor:
    """Levels that rounding may have pushed out of (0, 1), moved back into it."""
    eps = torch.finfo(u.dtype).eps
    return u.clamp(eps / 4, 1 - eps / 2)


def mass_between(low: Tensor, high: Tensor) -> Tensor:
    """Mass between two points, low <= high."""
    # Differences of small numbers have digits, those of numbers near 1 have none: look from the nearer tail.
    flip = low + high > 0
    return cdf(torch.where(flip, -low, high)) - cdf(torch.where(flip, -high, low))
