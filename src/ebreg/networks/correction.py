"""Correction: the energy g of a residual model, bounded, and 0 before training."""

import torch
from torch import Tensor, nn

from ebreg.networks.member_energy_head import MemberEnergyHead

# Log densities of q beyond this, in standard units, count as this.
_LARGEST_LOG_Q = 6.0


class Correction(nn.Module):
    r"""A correction g(x, y) of log q within bounds, from an energy e of the place of the target in q.

    .. math::
        u_d = Q_d(y_d \mid x), \qquad e = e(x, \log q(y \mid x), u, \cos \pi u, \dots, \cos n \pi u), \\
        g = L \tanh(e / L) \text{ where } e < 0, \quad U \tanh(e / U) \text{ elsewhere}

    The level u is the distribution function of the proposal, of each target by itself. Wherever q has its
    mass and however narrow it is, its levels are spread evenly over [0, 1], so that e need not be steep to
    correct it. The log density distinguishes gaps between modes. Far out in the tails, where there is nothing
    to learn from, e changes no more.

    U is the smaller bound: a g that is too large somewhere would move mass there. Little is lost by it, for
    where targets are, q has mass, as it learns from them.

    Args:
        n_members: E.
        n_features: H.
        n_targets: D.
        width: Of the layers of e.
        n_layers: Number of its layers.
        n_waves: n, the number of cosines.
        fall: L.
        rise: U.
    """

    def __init__(
        self,
        n_members: int,
        n_features: int,
        n_targets: int = 1,
        width: int = 64,
        n_layers: int = 2,
        n_waves: int = 12,
        fall: float = 8.0,
        rise: float = 1.0,
    ):
        super().__init__()
        self.n_targets, self.n_waves, self.fall, self.rise = n_targets, n_waves, fall, rise
        self.head = MemberEnergyHead(
            n_members, n_features, n_targets * (1 + n_waves) + 1, width, target_width=None, n_layers=n_layers
        )
        # Training starts from q itself.
        nn.init.zeros_(self.head.output_layer.weight)
        nn.init.zeros_(self.head.output_layer.bias)

    @property
    def is_zero(self) -> Tensor:
        """The members whose g is 0 everywhere, as a mask (E,)."""
        layer = self.head.output_layer
        return (layer.weight == 0).flatten(1).all(dim=1) & (layer.bias == 0).flatten(1).all(dim=1)

    @torch.no_grad()
    def reset(self, members: Tensor) -> None:
        """Set g of some members to 0 again, given as a mask (E,)."""
        for parameter in (self.head.output_layer.weight, self.head.output_layer.bias):
            parameter[members] = 0.0

    def forward(self, h: Tensor, u: Tensor, log_q: Tensor) -> Tensor:
        """G of targets.

        Args:
            h: Features, shape (B, H); with members, rows in blocks.
            u: Levels of the targets in the proposal, shape (M, B, D) or (B, D).
            log_q: Their log density in the proposal, in standard units, shape (M, B) or (B,).

        Returns:
            Shape (M, B) or (B,).
        """
        e = self.head(h, _features(u, log_q, self.n_waves))
        return torch.where(
            e < 0, self.fall * torch.tanh(e / self.fall), self.rise * torch.tanh(e / self.rise)
        )


def _features(u: Tensor, log_q: Tensor, n_waves: int) -> Tensor:
    # (..., D) and (...) -> (..., (1 + n) D + 1). cos(k a) = 2 cos(a) cos((k - 1) a) - cos((k - 2) a).
    waves = [torch.ones_like(u), torch.cos(torch.pi * u)]
    for _ in range(n_waves - 1):
        waves.append(2 * waves[1] * waves[-1] - waves[-2])
    log_q = log_q.clamp(-_LARGEST_LOG_Q, _LARGEST_LOG_Q)[..., None]
    return torch.cat([log_q, 2 * u - 1, *waves[1:]], dim=-1)
