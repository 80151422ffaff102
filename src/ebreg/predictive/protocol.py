"""Predictive: what every predictive distribution answers, and in which shapes."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ebreg.distributions.regions import Modes, Region


@runtime_checkable
class Predictive(Protocol):
    """p(y | x) of B rows and D targets, in the user's units.

    Moments, ``log_prob``, ``cdf``, quantiles, expectations and ``log_partition`` are differentiable where
    gradients are enabled; quantiles once. Samples, modes, regions and the other diagnostics are not.
    """

    def __len__(self) -> int:
        """B."""

    def __getitem__(self, rows: Any, /) -> "Predictive":
        """Some of the rows: a slice, row numbers or a mask."""

    def joined(self, others: Sequence[Any], /) -> "Predictive":
        """These rows and, below them, those of others of the same form."""

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
    def unreliable(self) -> Tensor:
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

    def hpd_mass(self, y: Tensor, /) -> Tensor:
        """The mass of the highest-density region that y just enters: (..., B, D) -> (..., B)."""

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, which maps (M, B, D) to (M, B, ...); returns (B, ...)."""
