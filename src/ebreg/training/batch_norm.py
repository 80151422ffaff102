"""Batch-norm over several processes: the statistics are those of the whole batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class _Sum(torch.autograd.Function):
    """The sum over the processes; its gradient is the sum of their gradients, since each of them uses it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class SharedBatchNorm(_BatchNorm):
    """A batch-norm layer whose mean and variance are those of the rows of all processes.

    ``torch.nn.SyncBatchNorm`` needs a GPU; this is a differentiable sum over the processes, on any device.
    """

    @classmethod
    def of(cls, norm: _BatchNorm) -> "SharedBatchNorm":
        """A layer that shares the parameters and running statistics of ``norm``."""
        shared = cls.__new__(cls)
        shared.__dict__ = norm.__dict__
        return shared

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, ...) -> (B, C, ...)."""
        if not self.training and self.running_mean is not None:
            return super().forward(x)
        dims = [0, *range(2, x.dim())]
        values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        n = _Sum.apply(values.new_tensor([values.numel() / values.shape[1]]))
        mean = _Sum.apply(values.sum(dim=dims)) / n
        centred = values - _along_channels(mean, x)
        # Two sums, one after the other: the mean of squares minus a squared mean would lose digits.
        variance = _Sum.apply(centred.square().sum(dim=dims)) / n
        self._update_statistics(mean.detach(), variance.detach() * n / (n - 1).clamp_min(1))
        normal = centred * _along_channels((variance + self.eps).rsqrt(), x)
        if self.affine:
            normal = normal * _along_channels(self.weight, x) + _along_channels(self.bias, x)
        return normal.to(x.dtype)

    def _check_input_dim(self, x: Tensor) -> None:
        pass  # any number of dimensions is allowed

    @torch.no_grad()
    def _update_statistics(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def has_batch_norm(module: nn.Module) -> bool:
    """Whether a module has batch-norm layers."""
    return any(isinstance(layer, _BatchNorm) for layer in module.modules())


def check_batch_norm(module: nn.Module, smallest_batch: int, n_processes: int) -> None:
    """Require at least two rows in every batch, and one in every process, if there is batch-norm."""
    if smallest_batch >= max(2, n_processes) or not has_batch_norm(module):
        return
    raise ValueError(
        "batch-norm needs at least two rows in every batch, and one in every process; the smallest batch has "
        f"{smallest_batch} for {n_processes} process{'es' * (n_processes > 1)}: give more rows or a larger "
        "batch_size, or use a network without batch-norm"
    )


@contextmanager
def shared_statistics(module: nn.Module, n_processes: int) -> Iterator[None]:
    """Context in which the batch-norm layers of a module share their statistics over the processes."""
    if n_processes == 1:
        yield
        return
    places = [
        (parent, name, child)
        for parent in list(module.modules())
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm)
    ]
    for parent, name, child in places:
        setattr(parent, name, SharedBatchNorm.of(child))
    try:
        yield
    finally:
        for parent, name, child in places:
            setattr(parent, name, child)


def _along_channels(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.dim() - 2)) if like.dim() > 2 else values
