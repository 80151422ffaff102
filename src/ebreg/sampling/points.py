"""Points of the unit cube: independent, stratified and quasi-random.

All points lie inside the cube: a point on its border would be sent to infinity, or into a component that has
next to no weight.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine


def independent(n: int, B: int, D: int, generator: torch.Generator | None = None) -> Tensor:
    """Independent points, shape (n, B, D)."""
    # torch.rand gives multiples of 2^-24; its zero stands for everything below.
    return torch.rand(n, B, D, generator=generator, device=_device(generator)).clamp_min_(2.0**-25)


def stratified(n: int, B: int, D: int, generator: torch.Generator | None = None) -> Tensor:
    """Points whose first coordinate takes each of n equal intervals once, shape (n, B, D).

    Each interval's point is uniform in it and independent of the others, so averages over the n points
    are unbiased. In a mixture the first coordinate chooses the component: component k gets n pi_k draws
    on average, and differs from that by less than one for each of its two borders that cuts an interval.
    """
    u = independent(n, B, D, generator)
    u[..., 0] = (u[..., 0] + torch.arange(n, device=u.device)[:, None]) / n
    return u.clamp_max_(1 - 2.0**-24)


def sobol(n: int, D: int, seed: int = 0) -> Tensor:
    """A scrambled Sobol sequence, (n, D), float64; a longer one of the same seed continues a shorter one."""
    return _sobol(n, D, seed).clone()


@lru_cache(maxsize=32)
def _sobol(n: int, D: int, seed: int) -> Tensor:
    points = SobolEngine(D, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    return points.clamp(2.0**-32, 1 - 2.0**-32)  # moves a point by less than the sequence's resolution


def _device(generator: torch.Generator | None) -> torch.device | None:
    return None if generator is None else generator.device
