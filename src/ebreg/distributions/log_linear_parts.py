"""Parts of log-linear densities: segments between nodes, tails, and their masses."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.distributions import segments
from ebreg.distributions.cubic import interpolated

# Stands for -inf. A steeper segment would need more digits for its quantiles than float64 has.
_LOWEST = -1e5
# The log density of a row without mass.
_NOTHING = -1e300
# The slowest decay allowed outside the nodes, in units of one over the span of the nodes.
_TAIL_RATE = 10.0
# The decay beyond a bound: no mass that a float64 could hold, and still finite, so that 0 times it is 0.
_BOUND_RATE = 1e300


# Whether densities end at their first node, and at their last: those of all rows, or of each, (B, 1).
Ends = tuple[bool | Tensor, bool | Tensor]


@dataclass(frozen=True)
class Parts:
    """A density in units of the span of its nodes, and the masses of its segments.

    Attributes:
        nodes: In the units of y, shape (B, N).
        first: The first node, shape (B, 1).
        last: The last one, shape (B, 1).
        span: From the first to the last, shape (B, 1).
        z: Nodes in units of the span, shape (B, N).
        log_f: Log density relative to the highest, shape (B, N).
        width: Of the segments between nodes, shape (B, N - 1).
        rise: Of the log density there, shape (B, N - 1).
        rate_left: Decay of the left tail, shape (B, 1).
        rate_right: Decay of the right tail, shape (B, 1).
        log_z: Log of the integral of exp log_f, shape (B,).
        mass: Of the tails and segments, shape (B, N + 1).
        log_unit: What turns a log density in units of the span into one in the units of y, shape (B,).
        log_integral: In the units of y, shape (B,).
    """

    nodes: Tensor
    first: Tensor
    last: Tensor
    span: Tensor
    z: Tensor
    log_f: Tensor
    width: Tensor
    rise: Tensor
    rate_left: Tensor
    rate_right: Tensor
    log_z: Tensor
    mass: Tensor
    log_unit: Tensor
    log_integral: Tensor

    @classmethod
    def of(cls, nodes: Tensor, log_f: Tensor, bounded: Ends) -> "Parts":
        """Of nodes and unnormalised log densities, (B, N) each; see :class:`LogLinear`."""
        peak = log_f.detach().amax(dim=1)  # (B,)
        is_empty = peak == -torch.inf
        if is_empty.any():  # without mass anywhere, it is level
            log_f = log_f.masked_fill(is_empty[:, None], _NOTHING)
            peak = peak.masked_fill(is_empty, _NOTHING)
        first, last = nodes[:, :1], nodes[:, -1:]
        span = (last - first).clamp_min(torch.finfo(torch.float64).tiny)
        z = (nodes - first) / span
        log_f = (log_f - peak[:, None]).clamp(min=_LOWEST)
        width, rise = z.diff(dim=1), log_f.diff(dim=1)
        rates = _rates(width, rise, bounded)
        mass = _masses(width, log_f, rise, *rates)
        total = mass.sum(dim=1, keepdim=True)
        log_z, log_unit, mass = total[:, 0].log(), span[:, 0].log(), mass / total
        log_integral = peak + log_z + log_unit
        return cls(
            nodes, first, last, span, z, log_f, width, rise, *rates, log_z, mass, log_unit, log_integral
        )


@torch.no_grad()
def masses(nodes: Tensor, log_f: Tensor, bounded: tuple[bool, bool]) -> Tensor:
    """Masses of the left tail, the segments and the right tail of a :class:`LogLinear` density.

    Args:
        nodes: Shape (B, N).
        log_f: Relative to about the highest, shape (B, N).
        bounded: Whether the density ends at the first node, and at the last.

    Returns:
        In units of the span of the nodes, shape (B, N + 1).
    """
    span = (nodes[:, -1:] - nodes[:, :1]).clamp_min(torch.finfo(torch.float64).tiny)
    width, log_f = nodes.diff(dim=1) / span, log_f.clamp(min=_LOWEST)
    rise = log_f.diff(dim=1)
    return _masses(width, log_f, rise, *_rates(width, rise, bounded))


def with_more_nodes(nodes: Tensor, log_f: Tensor, n_parts: int) -> tuple[Tensor, Tensor]:
    """Nodes and log densities, (B, N) each, with cubics that cut every segment into parts."""
    # Contiguous: searchsorted warns otherwise.
    if n_parts == 1:
        return nodes.contiguous(), log_f
    # In units of the span, which no unit of y changes.
    first, last = nodes[:, :1], nodes[:, -1:]
    span = (last - first).clamp_min(torch.finfo(torch.float64).tiny)
    z, log_f = interpolated(((nodes - first) / span).contiguous(), log_f.contiguous(), n_parts)
    return torch.cat([first, (first + span * z[:, 1:-1]).clamp(first, last), last], dim=1), log_f


def _rates(width: Tensor, rise: Tensor, bounded: Ends) -> tuple[Tensor, Tensor]:
    # At which the density falls off on the left and on the right of the nodes, (B, 1) each.
    ends = (0, -1)
    left, right = (
        rise[:, [end]] / width[:, [end]].clamp_min(torch.finfo(torch.float64).tiny) for end in ends
    )
    return _decay(left, bounded[0]), _decay(-right, bounded[1])


def _masses(width: Tensor, log_f: Tensor, rise: Tensor, rate_left: Tensor, rate_right: Tensor) -> Tensor:
    # Masses of the left tail, the segments and the right tail, (B, N + 1). The highest density is 1, so that
    # none of them overflows, and those that vanish are none beside that at the peak.
    density = log_f.exp()
    inner = width * torch.maximum(density[:, 1:], density[:, :-1]) * segments.mean_decay(rise.abs())
    return torch.cat([density[:, :1] / rate_left, inner, density[:, -1:] / rate_right], dim=1)


def _decay(slope: Tensor, bounded: bool | Tensor) -> Tensor:
    # The rate at which the density falls off outside the nodes, from the slope of the last segment, (B, 1).
    ended, tail = slope.detach().clamp_min(_BOUND_RATE), slope.clamp_min(_TAIL_RATE)
    if isinstance(bounded, Tensor):
        return torch.where(bounded, ended, tail)
    return ended if bounded else tail
