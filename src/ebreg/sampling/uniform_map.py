"""UniformMap: how points of the unit cube become draws of a torch Distribution, and back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)


@dataclass(frozen=True)
class UniformMap:
    """A map from the unit cube to draws that is one to one: independent base noise, then transforms.

    All rows are computed at once, and each from its own points alone.

    Attributes:
        base: Independent noise with ``icdf`` and ``cdf``; its batch shape ends in (B, D).
        transforms: From the noise to the targets, each with an inverse ``inv``.
    """

    base: Any
    transforms: tuple[Any, ...] = ()

    def __call__(self, u: Tensor) -> Tensor:
        """Points (M, B, D) -> draws (M, B, D)."""
        y = _icdf(self.base, u)
        for transform in self.transforms:
            y = transform(y)
        return y

    def inverse(self, y: Tensor) -> Tensor:
        """Targets (..., B, D) -> the points that are mapped to them, (..., B, D)."""
        for transform in reversed(self.transforms):
            y = transform.inv(y)
        return self.base.cdf(y)


def uniform_map(q: Distribution) -> UniformMap | None:
    """The map of a Distribution; None where it has none.

    There is one for a normalizing flow, for a :class:`torch.distributions.TransformedDistribution`, for a
    ``MultivariateNormal``, and for independent coordinates with a quantile function ``icdf``.
    """
    if isinstance(q, Independent):
        return uniform_map(q.base_dist)
    if isinstance(q, MultivariateNormal):
        return UniformMap(_standard_normal(q.loc), (_Cholesky(q.loc, q.scale_tril),))
    if isinstance(q, TransformedDistribution):
        keeps_shape = all(_keeps_shape(transform, q.event_shape) for transform in q.transforms)
        return _then(uniform_map(q.base_dist), tuple(q.transforms)) if keeps_shape else None
    base, transform = getattr(q, "base", None), getattr(q, "transform", None)
    if isinstance(base, Distribution) and transform is not None:  # zuko's flows map targets to noise
        return _then(uniform_map(base), (transform.inv,))
    has_quantiles = type(q).icdf is not Distribution.icdf and type(q).cdf is not Distribution.cdf
    return UniformMap(q) if has_quantiles and not q.event_shape else None


def _then(base: UniformMap | None, transforms: tuple[Any, ...]) -> UniformMap | None:
    return None if base is None else UniformMap(base.base, (*base.transforms, *transforms))


def _keeps_shape(transform: Any, shape: torch.Size) -> bool:
    return transform.bijective and transform.forward_shape(shape) == shape


def _icdf(base: Any, u: Tensor) -> Tensor:
    reference = base.icdf(torch.tensor(0.5))  # its dtype and device are those of the parameters
    info = torch.finfo(reference.dtype)
    u = u.to(reference).clamp(info.tiny, 1 - info.eps / 2)
    if type(base) is Normal:  # torch's own loses the digits of small levels
        return base.loc + base.scale * torch.special.ndtri(u)
    return base.icdf(u)


def _standard_normal(like: Tensor) -> Normal:
    return Normal(torch.zeros_like(like), torch.ones_like(like), validate_args=False)


@dataclass(frozen=True)
class _Cholesky:
    """z -> loc + L z, for loc (B, D) and L (B, D, D)."""

    loc: Tensor
    factor: Tensor

    def __call__(self, z: Tensor) -> Tensor:
        return self.loc + (self.factor @ z[..., None])[..., 0]

    @property
    def inv(self) -> Callable[[Tensor], Tensor]:
        def inverse(y: Tensor) -> Tensor:
            residual = (y - self.loc)[..., None]
            return torch.linalg.solve_triangular(self.factor, residual, upper=False)[..., 0]

        return inverse
