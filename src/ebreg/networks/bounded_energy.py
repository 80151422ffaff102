"""BoundedEnergy: an energy that stays within limits, and is 0 before training."""

import torch
from torch import Tensor, nn

from ebreg.networks.member_energy_head import MemberEnergyHead


class BoundedEnergy(nn.Module):
    r"""A correction g of log q within bounds, from an energy e.

    .. math:: g = L \tanh(e / L) \text{ where } e < 0, \quad U \tanh(e / U) \text{ elsewhere}

    U is the smaller one. Where q has next to no mass, there are neither targets nor draws to learn from, and
    a large g would move mass there. Little is lost: where targets are, q has mass, as it learns from them.

    Args:
        head: e; its output layer is set to 0, so that training starts from q itself.
        fall: L.
        rise: U.
    """

    def __init__(self, head: MemberEnergyHead, fall: float = 8.0, rise: float = 1.0):
        super().__init__()
        self.head, self.fall, self.rise = head, fall, rise
        nn.init.zeros_(head.output_layer.weight)
        nn.init.zeros_(head.output_layer.bias)

    @torch.no_grad()
    def reset(self, members: Tensor) -> None:
        """Set g of some members to 0 again, given as a mask (E,)."""
        for parameter in (self.head.output_layer.weight, self.head.output_layer.bias):
            parameter[members] = 0.0

    @property
    def n_targets(self) -> int:
        """D."""
        return self.head.n_targets

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Features (B, H) and targets (M, B, D) or (B, D) -> g, (M, B) or (B,)."""
        e = self.head(h, y)
        return torch.where(
            e < 0, self.fall * torch.tanh(e / self.fall), self.rise * torch.tanh(e / self.rise)
        )
