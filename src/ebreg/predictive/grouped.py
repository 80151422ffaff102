"""Grouped: one predictive distribution from several that answer for some of the rows each."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ebreg.distributions.regions import Modes, Region
from ebreg.predictive.protocol import Predictive


class Grouped:
    """The rows of several predictive distributions, each in its place.

    Args:
        groups: Row numbers, shape (n_i,), and the distribution that answers for them; together every row
            once.
        proposal: The proposal of all rows.
    """

    def __init__(self, groups: Sequence[tuple[Tensor, Predictive]], proposal: Any):
        self._rows = [rows for rows, _ in groups]
        self._parts = [part for _, part in groups]
        self._order = torch.cat(self._rows).argsort()
        self.proposal = proposal

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""
        return self._gather(lambda p: p.mean)

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        return self._gather(lambda p: p.variance)

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""
        return self._gather(lambda p: p.stddev)

    @property
    def covariance(self) -> Tensor:
        """Shape (B, D, D)."""
        return self._gather(lambda p: p.covariance)

    @property
    def effective_sample_size(self) -> Tensor:
        """Shape (B,)."""
        return self._gather(lambda p: p.effective_sample_size)

    @property
    def pareto_k(self) -> Tensor:
        """Shape (B,)."""
        return self._gather(lambda p: p.pareto_k)

    @property
    def log_partition(self) -> Tensor:
        """Shape (B,)."""
        return self._gather(lambda p: p.log_partition)

    @property
    def log_partition_error(self) -> Tensor:
        """Shape (B,)."""
        return self._gather(lambda p: p.log_partition_error)

    @property
    def weak(self) -> Tensor:
        """Shape (B,)."""
        return self._gather(lambda p: p.weak)

    def log_prob(self, y: Tensor) -> Tensor:
        """(..., B, D) -> (..., B)."""
        return self._gather(lambda p, y: p.log_prob(y), y, dim=-1)

    def cdf(self, y: Tensor) -> Tensor:
        """(..., B, D) -> (..., B)."""
        return self._gather(lambda p, y: p.cdf(y), y, dim=-1)

    def icdf(self, q: Tensor | float) -> Tensor:
        """(Q,) -> (Q, B, 1)."""
        return self._quantiles("icdf", q)

    def quantile(self, q: Tensor | float) -> Tensor:
        """(Q,) -> (Q, B, D)."""
        return self._quantiles("quantile", q)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (n, B, D)."""
        return self._gather(lambda p: p.sample(n, generator), dim=-2)

    def modes(self) -> Modes:
        """Local maxima with the mass of their hills."""
        return Modes(self._in_order([part.modes().rows for part in self._parts]))

    def highest_density_region(self, mass: float) -> Region:
        """The smallest region that holds ``mass``."""
        regions = [part.highest_density_region(mass) for part in self._parts]
        intervals = None
        if all(region.intervals is not None for region in regions):
            intervals = self._in_order([region.intervals or () for region in regions])
        threshold = torch.cat([region.log_threshold for region in regions])[self._order]
        return Region(mass, threshold, self.log_prob, intervals)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, (M, B, D) -> (M, B, ...), which sees the rows of one group at a time."""
        return self._gather(lambda p: p.expectation(fn))

    def _quantiles(self, verb: str, q: Tensor | float) -> Tensor:
        q = torch.as_tensor(q, dtype=torch.float64)
        if q.dim() < 2:
            return self._gather(lambda p: getattr(p, verb)(q), dim=-2)
        parts = [getattr(p, verb)(q[:, rows]) for rows, p in zip(self._rows, self._parts, strict=True)]
        return torch.cat(parts, dim=-2).index_select(-2, self._order)

    def _gather(self, question: Callable[..., Tensor], y: Tensor | None = None, dim: int = 0) -> Tensor:
        # Ask every part about its rows, of y too, and put the answers, whose rows lie along dim, in order.
        args = [() if y is None else (y.index_select(-2, rows),) for rows in self._rows]
        answers = [question(part, *arg) for part, arg in zip(self._parts, args, strict=True)]
        return torch.cat(answers, dim=dim).index_select(dim, self._order)

    def _in_order(self, parts: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        flat = [row for part in parts for row in part]
        return tuple(flat[i] for i in self._order.tolist())
