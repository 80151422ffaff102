"""NodeDensity: p(y | x) of one target as data, nodes and log densities."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ebreg import importance, sampling
from ebreg._utils.row_index import row_index
from ebreg.distributions.log_linear import LogLinear

UNRELIABLE_ERROR = 0.05


class NodeDensity(LogLinear):
    """p(y | x) for B rows of one target: a log-linear density between nodes, with its diagnostics.

    Every verb is a closed form of the nodes; no network is evaluated. Beyond the last node, 8 widths into the
    tail, the density falls exponentially, and more slowly than the energy's parabola. Gradients reach the log
    densities at the nodes; the nodes and the diagnostics of the proposal are not differentiated.

    Args:
        nodes: In the user's units, ascending along the last axis, shape (B, N). Rows are padded by nodes that
            coincide.
        log_f: Unnormalised log density at the nodes, shape (B, N).
        bounded: Whether the density ends at the first node, and at the last.
        log_partition_error: What leaving out every other node changes: with 64 nodes or more, an upper bound
            of the error on smooth densities. Shape (B,).
        proposal: In the user's units.
        n_diagnostic_draws: Draws of the proposal that its diagnostics use.
        n_parts: Cubics cut every segment between the nodes given into so many.
        support: See :class:`LogLinear`.
    """

    def __init__(
        self,
        nodes: Tensor,
        log_f: Tensor,
        bounded: tuple[bool, bool],
        log_partition_error: Tensor,
        proposal: Any,
        n_diagnostic_draws: int = 512,
        n_parts: int = 1,
        support: tuple[float, float] | None = None,
    ):
        super().__init__(nodes, log_f, bounded, n_parts, support)
        self.log_partition_error = log_partition_error
        self.proposal = proposal
        self.n_diagnostic_draws = n_diagnostic_draws

    @property
    def log_partition(self) -> Tensor:
        """Log of the normaliser Z(x), shape (B,)."""
        return self.log_integral

    @property
    def log_density(self) -> Tensor:
        """Normalised, at ``nodes``, shape (B, n)."""
        parts = self._parts
        return parts.log_f - (parts.log_z + parts.log_unit)[:, None]

    @property
    def effective_sample_size(self) -> Tensor:
        """Of the proposal's draws, shape (B,): the answers do not rest on them. Not differentiated."""
        return importance.effective_sample_size(*self._ratios)

    @property
    def pareto_k(self) -> Tensor:
        """Of the proposal's draws, shape (B,); not differentiated."""
        return importance.pareto_k(*self._ratios)

    @property
    def unreliable(self) -> Tensor:
        """Rows whose log Z is not known to 0.05, shape (B,)."""
        return ~(self.log_partition_error <= UNRELIABLE_ERROR)  # NaN included

    def __getitem__(self, rows: Any) -> "NodeDensity":
        """Some of the rows: a number, a slice, row numbers or a mask."""
        rows = row_index(rows)
        return NodeDensity(
            self._knots[rows],
            self._values[rows],
            self.bounded,
            self.log_partition_error[rows],
            self.proposal[rows],
            self.n_diagnostic_draws,
            self._n_parts,
            self.support,
        )

    def joined(self, others: Sequence["NodeDensity"]) -> "NodeDensity":
        """These rows and, below them, those of others."""
        parts = [self, *others]
        N = max(part._knots.shape[1] for part in parts)
        return NodeDensity(
            torch.cat([pad(part._knots, N) for part in parts]),
            torch.cat([pad(part._values, N) for part in parts]),
            self.bounded,
            torch.cat([part.log_partition_error for part in parts]),
            self.proposal.joined([other.proposal for other in others]),
            self.n_diagnostic_draws,
            self._n_parts,
            self.support,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # The data alone: what was derived from it is computed again.
        data = (self._knots, self._values, self.bounded, self.log_partition_error, self.proposal)
        return NodeDensity, (*data, self.n_diagnostic_draws, self._n_parts, self.support)

    @property
    def _ratios(self) -> tuple[Tensor, Tensor]:
        # Log densities of model and proposal at draws of the proposal, (M, B) each. Not kept, for memory.
        u = sampling.sobol(self.n_diagnostic_draws, 1).to(self.nodes.device)
        with torch.no_grad():
            draws = self.proposal.from_uniform(u[:, None].expand(-1, len(self), -1))
            return self.log_prob(draws), self.proposal.log_prob(draws).double()


def pad(values: Tensor, N: int) -> Tensor:
    """Repeat a value in the middle of each row until there are N: (B, n) -> (B, N).

    In the middle: the segments at both ends say how the tails fall off.
    """
    n = values.shape[1]
    if n == N:
        return values
    middle = n // 2
    repeated = values[:, middle : middle + 1].expand(-1, N - n)
    return torch.cat([values[:, :middle], repeated, values[:, middle:]], dim=1)
