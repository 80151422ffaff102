"""AdamW: the fused kernel of torch without the optimiser around it."""

from collections.abc import Sequence

import torch
from torch import Tensor

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


class AdamW:
    """Adam with decoupled weight decay, equal to ``torch.optim.AdamW(fused=True)``.

    The first optimiser that a process makes with torch.optim imports torch's compiler, which takes longer
    than many a fit; and for small networks its checks take longer than its arithmetic.

    Args:
        parameters: What is trained.
        weight_decay: Decoupled.

    Attributes:
        slots: For each parameter ``step``, ``exp_avg`` and ``exp_avg_sq``; empty before its first gradient.
    """

    def __init__(self, parameters: Sequence[Tensor], weight_decay: float = 0.0):
        self.parameters, self.weight_decay = list(parameters), weight_decay
        self.slots: list[dict[str, Tensor]] = [{} for _ in self.parameters]

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update the parameters that have a gradient."""
        learned = [
            (parameter, parameter.grad, self._slot(parameter, slot))
            for parameter, slot in zip(self.parameters, self.slots, strict=True)
            if parameter.grad is not None
        ]
        if not learned:
            return
        parameters, gradients, slots = zip(*learned, strict=True)
        steps = [slot["step"] for slot in slots]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            parameters,
            gradients,
            [slot["exp_avg"] for slot in slots],
            [slot["exp_avg_sq"] for slot in slots],
            [],
            steps,
            lr=learning_rate,
            beta1=_BETA1,
            beta2=_BETA2,
            weight_decay=self.weight_decay,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
        )

    @staticmethod
    def _slot(parameter: Tensor, slot: dict[str, Tensor]) -> dict[str, Tensor]:
        if not slot:
            slot["step"] = torch.zeros((), device=parameter.device)
            slot["exp_avg"], slot["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return slot
