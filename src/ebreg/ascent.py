r"""Gradient ascent on f(x, y) from a starting point: the prediction of the work before learned proposals.

:math:`y \leftarrow y + \lambda \nabla_y f(x, y)`, T times. It needs a good start and finds one local maximum;
here it also finds the modes of densities of several targets, started from their own samples.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ebreg import checks
from ebreg.regions import Mode, Modes


def gradient_ascent(
    log_f: Callable[[Tensor], Tensor],
    y: Tensor,
    n_steps: int = 10,
    step_size: float = 0.01,
    backoff: float = 0.5,
    growth: float = 1.0,
) -> Tensor:
    """Refine targets by steps up the gradient; a step that would go down is not taken and shortens the next.

    Args:
        log_f: Unnormalised log density, (..., D) -> (...); every entry depends on its own target alone.
        y: The starting points, shape (..., D). Not changed.
        n_steps: T, the number of steps.
        step_size: The first step length, in units of y squared.
        backoff: Factor on the step length of an entry after a step that was not taken.
        growth: Factor after a step that was.

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
        proposed_value, proposed_gradient = _value_and_gradient(log_f, proposed)
        better = proposed_value > value
        y = torch.where(better[..., None], proposed, y)
        gradient = torch.where(better[..., None], proposed_gradient, gradient)
        value = torch.where(better, proposed_value, value)
        step = step * torch.where(better, growth, backoff)
    return y


def modes_by_ascent(log_prob: Callable[[Tensor], Tensor], draws: Tensor, n_steps: int = 200) -> Modes:
    """Modes of a batch of densities, each with the share of equally weighted draws that climb to it.

    Args:
        log_prob: Normalised log density, (S, B, D) -> (S, B).
        draws: Samples of the densities, shape (S, B, D).
        n_steps: Steps of ascent.
    """
    # Where the spread of a row's draws is the unit, one step length and one tolerance suit every target.
    unit = (
        (draws - draws.mean(dim=0)).square().mean(dim=0).sqrt().clamp_min(torch.finfo(draws.dtype).tiny)
    )  # (B, D)
    tops = unit * gradient_ascent(
        lambda z: log_prob(z * unit), draws / unit, n_steps=n_steps, step_size=0.1, growth=1.2
    )
    heights = log_prob(tops)
    return Modes(
        tuple(_cluster(tops[:, b], heights[:, b], radius=0.2 * unit[b]) for b in range(draws.shape[1]))
    )


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
