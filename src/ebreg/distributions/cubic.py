"""Cubic interpolation of a log density: more nodes without evaluating it."""

import torch
from torch import Tensor

_TINY = 1e-300
# Segments narrower than this share of the whole have no slope: it would be rounding error.
_EMPTY = 1e-11
# A slope that changes the log density by less than this across a segment is always allowed.
_HARMLESS = 1.0
_LOWEST = -1e5  # stands for -inf, below the highest value of a row


def interpolated(nodes: Tensor, log_f: Tensor, n: int = 4) -> tuple[Tensor, Tensor]:
    """Cut every segment between nodes into n, with values of the cubic Hermite interpolant.

    The slopes are those of the parabolas through three neighbours. Beside a steep segment they are limited by
    the flatter one, so that the cubic does not overshoot.

    Args:
        nodes: Ascending along the last axis, shape (B, N). Constants: gradients reach ``log_f``.
        log_f: At the nodes, shape (B, N).
        n: Parts of a segment.

    Returns:
        Nodes and values, shape (B, n (N - 1) + 1) each; those given are among them.
    """
    log_f = log_f.maximum(log_f.detach().amax(dim=1, keepdim=True) + _LOWEST)
    width, rise = nodes.diff(dim=1), log_f.diff(dim=1)
    slope = _segment_slopes(width, rise, nodes[:, -1:] - nodes[:, :1])
    m = _slopes(width, slope)
    before, after = m[:, :-1] - slope, m[:, 1:] - slope
    parts_y, parts_f = [nodes[:, :-1]], [log_f[:, :-1]]
    for k in range(1, n):
        t = k / n
        rest = t * (1 - t) * width * ((1 - t) * before - t * after)
        parts_y.append(nodes[:, :-1] + t * width)
        parts_f.append(log_f[:, :-1] + t * rise + rest)
    return _interleaved(parts_y, nodes), _interleaved(parts_f, log_f)


def _segment_slopes(width: Tensor, rise: Tensor, span: Tensor) -> Tensor:
    # Nodes may coincide: there the slope is that of the parabola through the segments on both sides.
    empty = width <= _EMPTY * span
    slope = torch.where(empty, 0.0, rise / width.clamp_min(_TINY))
    ends = torch.zeros_like(width[:, :1])
    before, after = torch.cat([ends, width[:, :-1]], dim=1), torch.cat([width[:, 1:], ends], dim=1)
    left, right = torch.cat([ends, slope[:, :-1]], dim=1), torch.cat([slope[:, 1:], ends], dim=1)
    return torch.where(empty, (left * after + right * before) / (before + after).clamp_min(_TINY), slope)


def _slopes(width: Tensor, slope: Tensor) -> Tensor:
    before, after = width[:, :-1], width[:, 1:]
    left, right = slope[:, :-1], slope[:, 1:]
    m = (left * after + right * before) / (before + after).clamp_min(_TINY)
    bound = 3 * torch.minimum(left.abs(), right.abs())
    bound = bound.maximum(_HARMLESS / torch.maximum(before, after).clamp_min(_TINY))
    return torch.cat([slope[:, :1], m.clamp(-bound, bound), slope[:, -1:]], dim=1)


def _interleaved(parts: list[Tensor], ends: Tensor) -> Tensor:
    return torch.cat([torch.stack(parts, dim=2).flatten(1), ends[:, -1:]], dim=1)
