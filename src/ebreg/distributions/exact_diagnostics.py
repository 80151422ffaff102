"""ExactDiagnostics: what a distribution says of its accuracy if nothing about it is estimated."""

import math
from typing import Self

import torch
from torch import Tensor


class ExactDiagnostics:
    """Mixed into distributions with closed forms: the diagnostics that an energy-based model has too.

    Attributes:
        logits: Of B rows, shape (B, K).
    """

    logits: Tensor

    @property
    def proposal(self) -> Self:
        """Itself."""
        return self

    @property
    def effective_sample_size(self) -> Tensor:
        """Infinite: nothing is estimated by sampling. Shape (B,)."""
        return torch.full_like(self.logits[:, 0], math.inf)

    @property
    def pareto_k(self) -> Tensor:
        """Minus infinity: the importance ratios are constant. Shape (B,)."""
        return torch.full_like(self.logits[:, 0], -math.inf)

    @property
    def unreliable(self) -> Tensor:
        """No row: nothing is estimated. Shape (B,)."""
        return torch.zeros_like(self.logits[:, 0], dtype=torch.bool)

    @property
    def log_partition(self) -> Tensor:
        """Zero: the density is normalised. Shape (B,)."""
        return torch.zeros_like(self.logits[:, 0])

    @property
    def log_partition_error(self) -> Tensor:
        """Zero. Shape (B,)."""
        return torch.zeros_like(self.logits[:, 0])
