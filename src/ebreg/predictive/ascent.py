"""Gradient ascent on f(x, y) from initial estimates: how earlier work predicts."""

import torch
from torch import Tensor

from ebreg import sampling
from ebreg.distributions import gradient_ascent
from ebreg.predictive.unnormalized import Unnormalized

_N_DRAWS = 1024  # for the mean of a proposal that does not know it


def ascend(target: Unnormalized, y_start: Tensor | None, n_steps: int, step_size: float) -> Tensor:
    """Refine an initial estimate for each row, without leaving the bounds.

    Args:
        target: The rows.
        y_start: In the user's units and within the bounds, shape (B, D); None: the mean of the proposal.
        n_steps: T.
        step_size: The first step length, in standard units squared.

    Returns:
        Shape (B, D), in the user's units, float64.
    """
    start = _mean_of_proposal(target) if y_start is None else target.y_units(y_start)
    box = _box(target)
    one_draw = start.clamp(*box)[None]  # (1, B, D)
    return target.to_units(gradient_ascent(target.energy, one_draw, n_steps, step_size, box=box)[0])


def _box(target: Unnormalized) -> tuple[Tensor, Tensor]:
    # Corners of a box that holds every maximum, in standard units. Outside the tail's box f has no slope but
    # that of the tail: the ascent would approach the border from outside and stay there.
    if target.tail is not None:
        return target.tail.low, target.tail.high
    return target.y_units(target.bounds.low), target.y_units(target.bounds.high)


def _mean_of_proposal(target: Unnormalized) -> Tensor:
    # In standard units, float64.
    q = getattr(target.proposal, "distribution", target.proposal)
    try:
        mean = q.mean.double()
    except NotImplementedError:  # such as a flow
        u = sampling.sobol(_N_DRAWS, target.n_targets)[:, None].expand(-1, len(target), -1)
        mean = target.proposal.from_uniform(u).double().mean(dim=0)
    if not torch.isfinite(mean).all():
        raise ValueError("y_start must be given: the proposal has no finite mean")
    return mean
