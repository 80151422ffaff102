"""Averages of weights over the steps of a training."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def average_of(module: nn.Module, power: float) -> AveragedModel:
    r"""A copy of a module whose weights, at each call of ``update_parameters``, become an average.

    .. math:: \bar w_t = \bar w_{t-1} + \tfrac{p + 1}{t + p} (w_t - \bar w_{t-1})

    The weights of step t count with about t to the power p, so the average looks back over a fixed share of
    the steps so far: it needs no horizon, and is good at any time training stops. Statistics, such as those
    of batch-norm, are averaged too.

    Args:
        module: What is being trained.
        power: p; 0 is the plain mean of all steps.
    """
    return AveragedModel(module, multi_avg_fn=_towards(power), use_buffers=True)


def _towards(power: float) -> Callable[[Sequence[Tensor], Sequence[Tensor], Tensor | int], None]:
    @torch.no_grad()
    def update(average: Sequence[Tensor], current: Sequence[Tensor], n_averaged: Tensor | int) -> None:
        t = int(n_averaged) + 1
        share = (power + 1) / (t + power)
        for mean, value in zip(average, current, strict=True):
            moved = mean.lerp(value, share) if mean.is_floating_point() else value  # or a counter
            # What does not change stays as it is, to the last bit, and also where it is infinite.
            mean.copy_(torch.where(mean == value, value, moved))

    return update
