"""Rescaled: the answers of a predictive distribution, in the user's units."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions.regions import Modes, Region
from ebreg.predictive.protocol import Predictive


class Rescaled:
    """A predictive distribution in the user's units: that of shift + scale * y.

    Args:
        base: In standard units.
        shift: Shape (D,), in float64.
        scale: Shape (D,), in float64.
        limits: Ends of the targets in the user's units, two of shape (D,): rounding must not move an answer
            beyond them. None: there are none.
    """

    def __init__(
        self,
        base: Predictive,
        shift: Tensor,
        scale: Tensor,
        limits: tuple[Tensor, Tensor] | None = None,
    ):
        self._base, self._shift, self._scale, self._limits = base, shift, scale, limits
        self._log_scale = scale.log().sum()

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""
        return self._in_units(self._base.mean)

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        return self._scale**2 * self._base.variance

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""
        return self._scale * self._base.stddev

    @property
    def covariance(self) -> Tensor:
        """Shape (B, D, D)."""
        return self._scale[:, None] * self._scale * self._base.covariance

    @property
    def proposal(self) -> Any:
        """The proposal, in the same units."""
        q = self._base.proposal.rescaled(self._shift, self._scale)
        # There and back to standard units the ends may have moved by a rounding error.
        return q.between(*self._limits) if self._limits is not None and hasattr(q, "between") else q

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

    @property
    def weak(self) -> Tensor:
        """Shape (B,)."""
        return self._base.weak

    def log_prob(self, y: Tensor) -> Tensor:
        """(..., B, D) -> (..., B)."""
        return self._base.log_prob(self._standard(y)) - self._log_scale

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (n, B, D)."""
        return self._in_units(self._base.sample(checks.at_least("n", n, 0), generator))

    def cdf(self, y: Tensor) -> Tensor:
        """(..., B, D) -> (..., B)."""
        return self._base.cdf(self._standard(y))

    def icdf(self, q: Tensor | float) -> Tensor:
        """(Q,) -> (Q, B, 1)."""
        return self._in_units(self._base.icdf(q))

    def quantile(self, q: Tensor | float) -> Tensor:
        """(Q,) -> (Q, B, D)."""
        return self._in_units(self._base.quantile(q))

    def modes(self) -> Modes:
        """Local maxima with the mass of their hills."""
        return self._base.modes().rescaled(self._in_units, self._log_scale)

    def highest_density_region(self, mass: float) -> Region:
        """The smallest region that holds ``mass``."""
        return self._base.highest_density_region(mass).rescaled(
            self._in_units, self._log_scale, self.log_prob
        )

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, (M, B, D) -> (M, B, ...)."""
        return self._base.expectation(lambda y: fn(self._in_units(y)))

    def _in_units(self, y: Tensor) -> Tensor:
        y = self._shift + self._scale * y
        return y if self._limits is None else y.clamp(*self._limits)

    def _standard(self, y: Tensor) -> Tensor:
        y = checks.numbers("y", y)
        checks.shape("y", y, (*["..."] * (y.dim() - 1), len(self._scale)))
        return (y.to(self._scale) - self._shift) / self._scale
