"""The questions that every predictive distribution answers, and the shape they are asked in."""

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions.regions import Modes, Region

Energy = Callable[[Tensor], Tensor]


@runtime_checkable
class Predictive(Protocol):
    """The questions; B rows, D targets."""

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""

    @property
    def covariance(self) -> Tensor:
        """Shape (B, D, D)."""

    @property
    def proposal(self) -> Any:
        """The distribution the draws come from."""

    @property
    def effective_sample_size(self) -> Tensor:
        """How many independent draws of p the proposal's draws are worth, shape (B,)."""

    @property
    def pareto_k(self) -> Tensor:
        """Tail index of the importance ratios, shape (B,).

        Above 0.7 their averages are not to be trusted, unless the ratios are nearly equal anyway: read it
        together with the effective sample size.
        """

    @property
    def log_partition(self) -> Tensor:
        """Log of the normaliser Z(x), shape (B,)."""

    @property
    def log_partition_error(self) -> Tensor:
        """Standard error of log Z(x), shape (B,)."""

    @property
    def weak(self) -> Tensor:
        """Rows whose answers the sampling or the quadrature does not support, shape (B,)."""

    def log_prob(self, y: Tensor, /) -> Tensor:
        """Normalised log density: (..., B, D) -> (..., B)."""

    def sample(self, n: int, /, generator: torch.Generator | None = None) -> Tensor:
        """Shape (n, B, D)."""

    def cdf(self, y: Tensor, /) -> Tensor:
        """P(Y <= y in every target): (..., B, D) -> (..., B)."""

    def icdf(self, q: Tensor | float, /) -> Tensor:
        """Quantiles of a single target: (Q,) -> (Q, B, 1)."""

    def quantile(self, q: Tensor | float, /) -> Tensor:
        """Quantiles of each target by itself: (Q,) -> (Q, B, D)."""

    def modes(self) -> Modes:
        """Local maxima with the mass of their hills."""

    def highest_density_region(self, mass: float) -> Region:
        """The smallest region that holds ``mass``."""

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, which maps (M, B, D) to (M, B, ...); returns (B, ...)."""


def flat(y: Tensor, B: int, D: int) -> Tensor:
    """Targets (..., B, D) as (n, B, D); a wrong shape would else broadcast into a wrong answer."""
    checks.shape("y", y, (*["..."] * (y.dim() - 2), B, D))
    return y.reshape(math.prod(y.shape[:-2]), B, D)
