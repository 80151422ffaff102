"""Rescaled: the answers of a predictive distribution, in the user's units."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ebreg import checks
from ebreg.predictive.protocol import Predictive
from ebreg.regions import Modes, Region


class Rescaled:
    """A predictive distribution in the user's units: that of shift + scale * y, each (D,) in float64."""

    def __init__(self, base: Predictive, shift: Tensor, scale: Tensor):
        self._base, self._shift, self._scale = base, shift, scale
        self._log_scale = scale.log().sum()

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""
        return self._shift + self._scale * self._base.mean

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        return self._scale**2 * self._base.variance

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""
        return self._scale * self._base.stddev

    @property
    def proposal(self) -> Any:
        """The proposal, in the same units."""
        return self._base.proposal.rescaled(self._shift, self._scale)

    @property
    def effective_sample_size(self) -> Tensor:
        """Shape (B,)."""
        return self._base.effective_sample_size

    @property
    def pareto_k(self) -> Tensor:
        """Shape (B,)."""
        return self._base.pareto_k

    @property
    def log_partition(self) -> Tensor:
        """Shape (B,)."""
        return self._base.log_partition + self._log_scale

    @property
    def log_partition_error(self) -> Tensor:
        """Shape (B,)."""
        return self._base.log_partition_error

    def log_prob(self, y: Tensor) -> Tensor:
        """(..., B, D) -> (..., B)."""
        return self._base.log_prob(self._standard(y)) - self._log_scale

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (n, B, D)."""
        return self._shift + self._scale * self._base.sample(checks.at_least("n", n, 0), generator)

    def cdf(self, y: Tensor) -> Tensor:
        """(..., B, D) -> (..., B)."""
        return self._base.cdf(self._standard(y))

    def icdf(self, q: Tensor | float) -> Tensor:
        """(Q,) -> (Q, B, 1)."""
        return self._shift + self._scale * self._base.icdf(q)

    def modes(self) -> Modes:
        """Local maxima with the mass of their hills."""
        return self._base.modes().rescaled(self._shift, self._scale)

    def highest_density_region(self, mass: float) -> Region:
        """The smallest region that holds ``mass``."""
        return self._base.highest_density_region(mass).rescaled(self._shift, self._scale)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, (M, B, D) -> (M, B, ...)."""
        return self._base.expectation(lambda y: fn(self._shift + self._scale * y))

    def _standard(self, y: Tensor) -> Tensor:
        y = checks.numbers("y", y)
        checks.shape("y", y, (*["..."] * (y.dim() - 1), len(self._scale)))
        return (y.to(self._scale) - self._shift) / self._scale
