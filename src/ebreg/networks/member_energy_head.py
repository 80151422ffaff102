"""The energy head of several members at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ebreg._utils import checks
from ebreg.networks.activations import ACTIVATIONS
from ebreg.networks.member_layers import MemberLinear

# Numbers in one layer of a tile, on the CPU: what fits its cache.
_TILE = 2**19


class MemberEnergyHead(nn.Module):
    r"""Energies f_e(x, y) of E members, from features of x and targets y, with rows in E blocks.

    .. math::
        h_y = \sigma(A y) \text{ or } y, \quad a = \sigma(W_x h + W_y h_y) \; (+\, \sigma(V a)), \quad
        f = v^\top a.

    :math:`W_x h` is computed once for each row and not once for each draw.

    Args:
        n_members: E.
        n_features: H.
        n_targets: D.
        width: Of the joint layers.
        target_width: Of the layer on y; None: there is none, and y itself enters the joint layers.
        n_layers: Number of joint layers; those after the first are residual.
        activation: Name of the activation.
    """

    def __init__(
        self,
        n_members: int,
        n_features: int,
        n_targets: int,
        width: int = 64,
        target_width: int | None = 64,
        n_layers: int = 1,
        activation: str = "silu",
    ):
        super().__init__()
        checks.one_of("activation", activation, ACTIVATIONS)
        self.n_features, self.n_targets = n_features, n_targets
        self.width, self.activation = width, activation
        self.target_layer = None if target_width is None else MemberLinear(n_members, n_targets, target_width)
        self.from_features = MemberLinear(n_members, n_features, width)
        self.from_target = MemberLinear(n_members, target_width or n_targets, width)
        layers = (MemberLinear(n_members, width, width) for _ in range(n_layers - 1))
        self.joint_layers = nn.ModuleList(layers)
        self.output_layer = MemberLinear(n_members, width, 1)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Features (E * B, H) and targets (M, E * B, D) or (E * B, D) -> f, (M, E * B) or (E * B,)."""
        checks.shape("h", h, ("E * B", self.n_features))
        draws = y if y.dim() == 3 else y[None]
        checks.shape("y", draws, ("M", len(h), self.n_targets))
        with torch.autocast(h.device.type, enabled=False):
            h = h.to(self.output_layer.weight.dtype)
            E = self.output_layer.n_members
            z_x = self.from_features(h).view(E, 1, len(h) // E, self.width)
            n_draws = max(1, _TILE // max(1, len(h) * self.width))
            f = torch.cat([self._tile(z_x, some) for some in draws.split(n_draws)])
        return f.view(y.shape[:-1])

    def _tile(self, z_x: Tensor, y: Tensor) -> Tensor:
        # W_x h, (E, 1, B, J), and targets (M, E * B, D) -> (M, E * B).
        act = ACTIVATIONS[self.activation]
        (E, _, B, J), M, D = z_x.shape, len(y), self.n_targets
        # A layer of members takes rows in blocks, (E, M, B).
        rows = y.view(M, E, B, D).transpose(0, 1).reshape(E * M * B, D)
        z_y = self.from_target(rows if self.target_layer is None else act(self.target_layer(rows)))
        a = act((z_x + z_y.view(E, M, B, J)).view(z_y.shape))
        for layer in self.joint_layers:
            a = a + act(layer(a))
        # A product with a single column is several times slower than the sum that it is.
        weight, bias = self.output_layer.weight, self.output_layer.bias
        f = (a.view(E, M * B, J) * weight.transpose(1, 2)).sum(dim=-1) + bias[:, 0]
        return f.view(E, M, B).transpose(0, 1).reshape(M, E * B)
