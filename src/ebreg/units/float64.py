"""Buffers in float64, whatever the precision of the networks around them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Float64Module(nn.Module):
    """Buffers that move between devices, but stay in float64 where a model is made single or half."""

    def _keep(self, **buffers: Tensor) -> None:
        for name, value in buffers.items():
            self.register_buffer(name, value.detach().to(torch.float64, copy=True))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Float64Module":
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, value in before.items():
            setattr(self, name, value.to(getattr(self, name).device))
        return self
