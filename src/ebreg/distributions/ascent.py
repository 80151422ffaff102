r"""Gradient ascent on f(x, y) from a starting point, and modes found by it.

:math:`y \leftarrow y + \lambda \nabla_y f(x, y)`, T times. It is how earlier work predicts. It needs a good
start and finds one local maximum; from many starts it finds the modes of a density of several targets.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions.regions import Mode, Modes


def gradient_ascent(
    log_f: Callable[[Tensor], Tensor],
    y: Tensor,
    n_steps: int = 10,
    step_size: float = 0.01,
    backoff: float = 0.5,
    growth: float = 1.0,
    box: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Refine targets by steps up the gradient; a step that would go down is rejected and shortens the next.

    The defaults of ``backoff`` and ``growth`` are the rule of earlier work on energy-based regression.

    Args:
        log_f: Unnormalised log density, (..., D) -> (...); every entry depends on its own target alone.
        y: The starting points, shape (..., D). Not changed.
        n_steps: T, the number of steps.
        step_size: The first step length, in units of y squared.
        backoff: Factor on the step length of an entry after a step that was rejected.
        growth: Factor after a step that was accepted.
        box: Lower and upper bounds of the targets, shape (D,) each: a step that leads out of them ends at the
            nearest point of the box, so that y may slide along a bound. None: no bounds.

    Returns:
        The refined targets, shape (..., D), none with a lower log_f than it started from.
    """
    checks.at_least("n_steps", n_steps, 0)
    checks.positive("step_size", step_size)
    step = torch.full(y.shape[:-1], step_size, dtype=y.dtype, device=y.device)
    y = y.detach().clone()
    value, gradient = _value_and_gradient(log_f, y)
    for _ in range(n_steps):
        proposed = y + step[..., None] * gradient
        proposed = proposed if box is None else proposed.clamp(*box)
        proposed_value, proposed_gradient = _value_and_gradient(log_f, proposed)
        better = proposed_value > value
        y = torch.where(better[..., None], proposed, y)
        gradient = torch.where(better[..., None], proposed_gradient, gradient)
        value = torch.where(better, proposed_value, value)
        step = step * torch.where(better, growth, backoff)
    return y


def modes_by_ascent(
    log_prob: Callable[[Tensor], Tensor], draws: Tensor, n_steps: int = 200, prominence: float = 0.2
) -> Modes:
    """Modes of a batch of densities, each with the share of equally weighted draws that climb to it.

    Maxima count as one mode where the straight line between them stays within ``prominence`` (in log density)
    of the lower one: ascent ends anywhere on a ridge.

    Args:
        log_prob: Normalised log density, (S, B, D) -> (S, B).
        draws: Samples of the densities, shape (S, B, D).
        n_steps: Steps of ascent.
        prominence: In nats.
    """
    # Gradients are needed inside, also where the caller has switched them off, and none outside.
    with torch.inference_mode(False), torch.no_grad():
        draws = draws.clone() if draws.is_inference() else draws
        # Where the spread of a row's draws is the unit, one step length and one tolerance suit every target.
        # It is no less than what rounding would move a draw by: draws may all be the same.
        info = torch.finfo(draws.dtype)
        spread = (draws - draws.mean(dim=0)).square().mean(dim=0).sqrt()
        unit = spread.maximum(info.eps * draws.abs().amax(dim=0)).clamp_min(info.tiny)  # (B, D)
        tops = unit * gradient_ascent(
            lambda z: log_prob(z * unit), draws / unit, n_steps=n_steps, step_size=0.1, growth=1.2
        )
        heights = log_prob(tops)
        rows = [_cluster(tops[:, b], heights[:, b], radius=0.2 * unit[b]) for b in range(draws.shape[1])]
        return Modes(tuple(_merged(rows, log_prob, prominence)))


def _value_and_gradient(log_f: Callable[[Tensor], Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        y = y.detach().requires_grad_()
        value = log_f(y)
        (gradient,) = torch.autograd.grad(value.sum(), y)
    return value.detach(), gradient


def _cluster(tops: Tensor, heights: Tensor, radius: Tensor) -> Mode:
    # Highest first: every top within the radius of a mode already found climbed to that mode.
    order = heights.argsort(descending=True, stable=True)
    found: list[int] = []
    counts: list[int] = []
    for i in order.tolist():
        near = [j for j, k in enumerate(found) if ((tops[i] - tops[k]).abs() <= radius).all()]
        if near:
            counts[near[0]] += 1
        else:
            found.append(i)
            counts.append(1)
    masses, heaviest = (torch.tensor(counts, dtype=tops.dtype) / len(tops)).sort(descending=True, stable=True)
    chosen = torch.tensor(found)[heaviest]
    return Mode(tops[chosen], masses.to(tops.device), heights[chosen])


_MOST_TOPS = 16  # compared with each other; further ones are the lightest and join the nearest of these
_STEPS_BETWEEN = 8


def _merged(rows: list[Mode], log_prob: Callable[[Tensor], Tensor], prominence: float) -> list[Mode]:
    n_tops = min(_MOST_TOPS, max((len(row) for row in rows), default=0))
    if n_tops < 2:
        return rows
    # Rows with fewer tops repeat their first, so that all are asked in one call.
    tops = torch.stack([_padded(row.locations, n_tops) for row in rows], dim=1)  # (C, B, D)
    t = torch.linspace(0, 1, _STEPS_BETWEEN + 1, dtype=tops.dtype, device=tops.device)[1:-1]
    i, j = torch.triu_indices(n_tops, n_tops, offset=1, device=tops.device)
    way = torch.lerp(tops[i][:, None], tops[j][:, None], t[:, None, None])  # (pairs, steps, B, D)
    with torch.no_grad():
        lowest = log_prob(way.flatten(0, 1)).unflatten(0, way.shape[:2]).amin(dim=1)  # (pairs, B)
    pairs = torch.stack([i, j], dim=1).tolist()
    return [_joined(row, n_tops, pairs, lowest[:, b].tolist(), prominence) for b, row in enumerate(rows)]


def _padded(locations: Tensor, n: int) -> Tensor:
    kept = locations[:n]
    return torch.cat([kept, locations[:1].expand(n - len(kept), -1)])


def _joined(row: Mode, n_tops: int, pairs: list[list[int]], lowest: list[float], prominence: float) -> Mode:
    n = min(len(row), n_tops)
    heights = row.log_densities.tolist()
    leader = list(range(n))
    for (i, j), low in zip(pairs, lowest, strict=True):
        if j < n and low >= min(heights[i], heights[j]) - prominence:
            old, new = leader[j], leader[i]
            leader = [new if k == old else k for k in leader]
    for k in range(n, len(row)):
        distance = (row.locations[:n] - row.locations[k]).square().sum(dim=1)
        leader.append(leader[int(distance.argmin())])
    groups = [[k for k in range(len(row)) if leader[k] == name] for name in dict.fromkeys(leader)]
    highest = [max(group, key=heights.__getitem__) for group in groups]
    masses = torch.stack([row.masses[group].sum() for group in groups])
    masses, order = masses.sort(descending=True, stable=True)
    chosen = torch.tensor(highest, device=masses.device)[order]
    return Mode(row.locations[chosen], masses, row.log_densities[chosen])
