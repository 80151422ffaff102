"""The energy head in its direct form: features repeated for every draw, concatenated, plain linear layers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class DirectHead(nn.Module):
    """The function that `ebreg.networks.EnergyHead` computes, the way the paper writes it.

    The parameters have the names and shapes of `EnergyHead`, so that either loads the other's state dict.

    Args:
        n_features: H, the number of features of x.
        n_targets: D, the number of target dimensions.
        target_widths: Widths of the layers on y.
        joint_widths: Widths of the layers on [h, h_y].
        activation: Name of a function of `torch.nn.functional`.
        residual: Whether joint layers after the first add their input where the widths agree.
    """

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        target_widths: Sequence[int],
        joint_widths: Sequence[int],
        activation: str = "relu",
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.act = getattr(nn.functional, activation)
        self.residual = residual
        widths = [n_targets, *target_widths]
        self.target_layers = nn.ModuleList(itertools.starmap(nn.Linear, itertools.pairwise(widths)))
        self.first_joint_layer = nn.Linear(n_features + widths[-1], joint_widths[0])
        self.joint_layers = nn.ModuleList(itertools.starmap(nn.Linear, itertools.pairwise(joint_widths)))
        self.output_layer = nn.Linear(joint_widths[-1], 1)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Evaluate f, shape (M, B), for h of shape (B, H) and y of shape (M, B, D)."""
        a = y.flatten(0, 1)
        for layer in self.target_layers:
            a = self.act(layer(a))
        a = torch.cat([h.expand(y.shape[0], -1, -1).flatten(0, 1), a], dim=1)
        a = self.act(self.first_joint_layer(a))
        for layer in self.joint_layers:
            b = self.act(layer(a))
            a = a + b if self.residual and a.shape == b.shape else b
        return self.output_layer(a).view(y.shape[:2])
