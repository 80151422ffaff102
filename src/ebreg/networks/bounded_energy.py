"""BoundedEnergy: an energy that stays within a limit, and is 0 before training."""

import torch
from torch import Tensor, nn

from ebreg.networks.member_energy_head import MemberEnergyHead


class BoundedEnergy(nn.Module):
    r"""g(x, y) = L tanh(e(x, y) / L): a correction of log q that changes no density by more than exp(2 L).

    Args:
        head: e; its output layer is set to 0, so that training starts from q itself.
        limit: L.
    """

    def __init__(self, head: MemberEnergyHead, limit: float = 8.0):
        super().__init__()
        self.head, self.limit = head, limit
        nn.init.zeros_(head.output_layer.weight)
        nn.init.zeros_(head.output_layer.bias)

    @property
    def n_targets(self) -> int:
        """D."""
        return self.head.n_targets

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Features (B, H) and targets (M, B, D) or (B, D) -> g, (M, B) or (B,)."""
        return self.limit * torch.tanh(self.head(h, y) / self.limit)
