"""Average: weights averaged over the training steps."""

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class Average(Generic[Module]):
    r"""A copy of a module with the weighted average of its weights over the steps.

    .. math:: \bar w_t = \bar w_{t-1} + \tfrac{p + 1}{t + p} (w_t - \bar w_{t-1})

    The weights of step t count with about t to the power p, so the average covers a fixed share of the steps
    so far, however many there will be: training may stop at any time. Buffers, such as the statistics of
    batch-norm, are averaged too.

    Args:
        module: The module under training.
        power: p; 0 is the plain mean of all steps.
    """

    def __init__(self, module: Module, power: float):
        self.module = copy.deepcopy(module)
        self.n_steps = 0
        self._power = power
        pairs = list(zip(_tensors(self.module), _tensors(module), strict=True))
        # Counters are copied, and so are infinite values, which stand for missing bounds.
        smooth = [mean.is_floating_point() and bool(torch.isfinite(mean).all()) for mean, _ in pairs]
        self._smooth = [pair for pair, is_smooth in zip(pairs, smooth, strict=True) if is_smooth]
        self._other = [pair for pair, is_smooth in zip(pairs, smooth, strict=True) if not is_smooth]

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights of the module to the average."""
        self.n_steps += 1
        share = (self._power + 1) / (self.n_steps + self._power)
        means, values = zip(*self._smooth, strict=True)
        torch._foreach_lerp_(means, values, share)  # as torch.optim.swa_utils does: one call for all tensors
        for mean, value in self._other:
            mean.copy_(value)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [tensor.detach() for tensor in (*module.parameters(), *module.buffers())]
