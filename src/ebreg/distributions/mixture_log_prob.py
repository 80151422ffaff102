"""The log density of a mixture, with a backward pass of its own."""

from typing import Any

import torch
from torch import Tensor

from ebreg.distributions import normal


class MixtureLogDensity(torch.autograd.Function):
    """Log density of a mixture with a backward pass by responsibilities, twice as fast as autograd.

    Components come first, since reductions over a leading axis are several times faster: values (M, B, D),
    log weights (K, B), means and scales (D, K, B) -> (M, B).
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, log_weights: Tensor, means: Tensor, scales: Tensor) -> Tensor:
        """Save the responsibilities, so that the backward pass needs no exponential."""
        z, joint, total, top = _responsibilities(value, log_weights, means, scales)
        ctx.save_for_backward(value, log_weights, means, scales, z, joint, total)
        return total.log() + top

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """Gradients for the four arguments."""
        *arguments, z, joint, total = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted, and what was kept has no history
            z, joint, total, _ = _responsibilities(*arguments)
        scales = arguments[-1]
        share = joint * (grad / total)  # responsibilities times the incoming gradient, (K, M, B)
        pull = share * z
        by_weight, by_mean = share.sum(dim=1), pull.sum(dim=2) / scales
        by_value = -(pull / scales[:, :, None]).sum(dim=1).movedim(0, -1) if ctx.needs_input_grad[0] else None
        return by_value, by_weight, by_mean, ((pull * z).sum(dim=2) - by_weight) / scales


def _responsibilities(
    value: Tensor, log_weights: Tensor, means: Tensor, scales: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Standardised values, (D, K, M, B); joint densities over e^top, (K, M, B); their sum and top, (M, B)."""
    z = (value.movedim(-1, 0)[:, None] - means[:, :, None]) / scales[:, :, None]
    log_norm = log_weights - (scales.log() + normal.LOG_SQRT_2PI).sum(dim=0)
    log_joint = log_norm[:, None] - 0.5 * (z * z).sum(dim=0)
    top = log_joint.amax(dim=0).clamp_min(torch.finfo(z.dtype).min)
    # e^-80 adds nothing to 1, and exp is ten times slower where it underflows.
    joint = (log_joint - top).clamp(min=-80).exp()
    return z, joint, joint.sum(dim=0), top
