"""How questions are put to any distribution: the levels of quantiles, the mass of a region."""

from collections.abc import Callable

import torch
from torch import Tensor

from ebreg import checks


def check_levels(q: Tensor | float) -> Tensor:
    """Levels of quantiles in float64; all must lie in (0, 1)."""
    q = torch.as_tensor(q, dtype=torch.float64)
    if not ((q > 0) & (q < 1)).all():
        raise ValueError(f"quantile levels must lie in (0, 1), got {q.flatten().tolist()}")
    return q


def check_mass(mass: float) -> None:
    """Require a mass in (0, 1)."""
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie in (0, 1), got {mass}")


def quantiles(icdf: Callable[[Tensor], Tensor], q: Tensor | float, B: int, D: int) -> Tensor:
    """Call ``icdf``, (Q, B) -> (Q, B), with levels of any allowed shape, and add the target's dimension."""
    if D != 1:
        raise ValueError(
            f"icdf exists for one target only, and this distribution has {D}: points of several dimensions "
            "have no order. Ask for a highest_density_region, or for the quantile of each target by itself."
        )
    q = check_levels(q)
    if q.dim() >= 2:
        checks.shape("q", q, ("Q", B))
    levels = q.reshape(-1, 1).expand(-1, B) if q.dim() < 2 else q
    values = icdf(levels)[..., None]
    return values[0] if q.dim() == 0 else values
