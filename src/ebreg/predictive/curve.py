"""Curve: the log density of one target at nodes, with the error of its integral."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ebreg.distributions.cubic import interpolated
from ebreg.distributions.log_linear_parts import masses
from ebreg.predictive.even_levels import at_even_levels
from ebreg.predictive.node_density import pad

# Parts into which cubics cut a segment.
_N_PARTS = 4
# A segment across which the log density changes by less is as smooth as cubics take it to be. One across
# which it changes by so much more may hold an edge, anywhere in it.
_SMOOTH, _EDGE = 2.0, 4.0


@dataclass(frozen=True)
class Curve:
    """Nodes and values in standard units.

    Attributes:
        nodes: Ascending, shape (B, N).
        log_f: There, shape (B, N).
        error: Of log Z, shape (B,).
        n_parts: Cubics cut every segment into so many.
    """

    nodes: Tensor
    log_f: Tensor
    error: Tensor
    n_parts: int

    @classmethod
    def of(cls, nodes: Tensor, log_f: Tensor, bounded: tuple[bool, bool]) -> "Curve":
        """The curve through nodes and values, (N, B) each, in any order."""
        nodes, order = nodes.T.contiguous().sort(dim=1)
        log_f = log_f.T.gather(1, order)
        return cls(nodes, log_f, _error(nodes, log_f.detach(), bounded), _N_PARTS)

    def __getitem__(self, rows: Tensor) -> "Curve":
        """Some of the rows: row numbers or a mask."""
        return Curve(self.nodes[rows], self.log_f[rows], self.error[rows], self.n_parts)

    def with_error_of_at_least(self, error: Tensor) -> "Curve":
        """With a larger error, (B,)."""
        return replace(self, error=self.error.maximum(error.to(self.error)))

    def interpolated(self) -> "Curve":
        """With the nodes that cubics make."""
        if self.n_parts == 1:
            return self
        nodes, log_f = interpolated(self.nodes, self.log_f, self.n_parts)
        return Curve(nodes, log_f, self.error, 1)

    def joined(self, others: Sequence["Curve"]) -> "Curve":
        """These rows and, below them, those of others."""
        if not others:
            return self
        parts = [part.interpolated() for part in (self, *others)]
        N = max(part.nodes.shape[1] for part in parts)
        return Curve(
            torch.cat([pad(part.nodes, N) for part in parts]),
            torch.cat([pad(part.log_f, N) for part in parts]),
            torch.cat([part.error for part in parts]),
            1,
        )


@torch.no_grad()
def more_nodes(nodes: Tensor, log_f: Tensor, n: int) -> Tensor:
    """Nodes where others, (N, B) in any order, have shown mass or an edge: (n, B)."""
    nodes, order = nodes.T.contiguous().sort(dim=1)
    log_f = log_f.T.gather(1, order)
    # A segment errs by about p times its width cubed: nodes as dense as the cube root of p err least. Its
    # linear interpolant puts some into segments that hold an edge, too.
    dense = ((log_f - log_f.amax(dim=1, keepdim=True)) / 3).exp().nan_to_num(0.0)
    return at_even_levels(nodes, dense, n).T


@torch.no_grad()
def _error(nodes: Tensor, log_f: Tensor, bounded: tuple[bool, bool]) -> Tensor:
    # What leaving out every other node changes, pair of segments by pair, and what edges may hide.
    log_f = log_f - log_f.amax(dim=1, keepdim=True).clamp_min(-1e300)
    N = nodes.shape[1]
    kept = [*range(0, N - 1, 2), N - 1]
    fine = masses(*interpolated(nodes, log_f, _N_PARTS), bounded)
    coarse = masses(*interpolated(nodes[:, kept], log_f[:, kept], _N_PARTS), bounded)
    fine, coarse = (_cumulated(mass) for mass in (fine, coarse))
    total = fine[:, -1]
    change = (fine[:, [*kept, -1]].diff(dim=1) - coarse.diff(dim=1)).abs().sum(dim=1)
    change = change + (fine[:, 0] - coarse[:, 0]).abs()
    span = (nodes[:, -1:] - nodes[:, :1]).clamp_min(torch.finfo(torch.float64).tiny)
    width, rise = nodes.diff(dim=1) / span, log_f.diff(dim=1).abs()
    top = torch.maximum(log_f[:, 1:], log_f[:, :-1]).exp()
    edges = (width * top * ((rise - _SMOOTH) / _EDGE).clamp(0, 1)).sum(dim=1)
    return torch.log1p((change + edges) / total)


def _cumulated(mass: Tensor) -> Tensor:
    # From masses of the tails and of the parts of segments: mass below each node, and of all, (B, N + 1).
    below = mass.cumsum(dim=1)
    return torch.cat([below[:, :-1:_N_PARTS], below[:, -1:]], dim=1)
