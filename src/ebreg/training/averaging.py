"""Average: the weights of a module, averaged over the steps of its training."""

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class Average(Generic[Module]):
    r"""A copy of a module whose weights become an average of those it has been shown.

    .. math:: \bar w_t = \bar w_{t-1} + \tfrac{p + 1}{t + p} (w_t - \bar w_{t-1})

    The weights of step t count with about t to the power p, so the average looks back over a fixed share of
    the steps so far: it needs no horizon, and is good at any time training stops. Statistics, such as those
    of batch-norm, are averaged too.

    Args:
        module: What is being trained.
        power: p; 0 is the plain mean of all steps.
    """

    def __init__(self, module: Module, power: float):
        self.module = copy.deepcopy(module)
        self.n_steps = 0
        self._power = power
        pairs = list(zip(_tensors(self.module), _tensors(module), strict=True))
        # Counters are copied, and so is what is infinite: bounds that are not there.
        smooth = [mean.is_floating_point() and bool(torch.isfinite(mean).all()) for mean, _ in pairs]
        self._smooth = [pair for pair, is_smooth in zip(pairs, smooth, strict=True) if is_smooth]
        self._other = [pair for pair, is_smooth in zip(pairs, smooth, strict=True) if not is_smooth]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights that the module has now."""
        self.n_steps += 1
        share = (self._power + 1) / (self.n_steps + self._power)
        means, values = zip(*self._smooth, strict=True)
        torch._foreach_lerp_(means, values, share)  # as torch's own averages do; one call, not one a tensor
        for mean, value in self._other:
            mean.copy_(value)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [tensor.detach() for tensor in (*module.parameters(), *module.buffers())]
