"""The energy head: f(x, y), the unnormalised log density, from features of x and a target y."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ebreg.networks.activations import ACTIVATIONS


class EnergyHead(nn.Module):
    r"""The energy f(x, y) of a target y given features h of x; p(y | x) is proportional to exp(f).

    .. math::
        h_y &= \sigma(A_L \cdots \sigma(A_1 y)), \\
        a_1 &= \sigma(W [h; h_y]) = \sigma(W_x h + W_y h_y), \\
        a_{i+1} &= \sigma(V_i a_i) \; (+\, a_i \text{ if residual and of one width}), \\
        f &= v^\top a_J,

    every layer with its bias. The first joint layer is linear in [h, h_y]: W_x h is computed once per row and
    not once per draw, and on a shared grid W_y h_y once per node and not once per row. Inside, features come
    first, shape (C, N), which is fast for narrow layers, and draws are processed in tiles that fit the cache.

    The parameters and their initial distribution are those of the concatenated form.

    Args:
        n_features: H, the number of features of x.
        n_targets: D, the number of target dimensions.
        target_widths: Widths of the layers that extract features from y; with none, y is its own feature.
        joint_widths: Widths of the layers on [h, h_y], at least one.
        activation: Name of the activation after every layer but the last, a key of `ACTIVATIONS`.
        residual: Whether joint layers after the first add their input where the widths agree.
    """

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        target_widths: Sequence[int] = (64, 64),
        joint_widths: Sequence[int] = (64, 64),
        activation: str = "silu",
        residual: bool = True,
    ) -> None:
        super().__init__()
        _check_widths(n_features=[n_features], n_targets=[n_targets])
        _check_widths(target_widths=target_widths, joint_widths=joint_widths)
        if not joint_widths:
            raise ValueError("joint_widths takes at least one width, got none")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation takes one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.n_features, self.n_targets = n_features, n_targets
        self.activation, self.residual = activation, residual
        self.max_width = max(n_targets, *target_widths, *joint_widths)
        target_widths = [n_targets, *target_widths]
        self.target_layers = _layers(target_widths)
        self.first_joint_layer = nn.Linear(n_features + target_widths[-1], joint_widths[0])
        self.joint_layers = _layers(joint_widths)
        self.output_layer = _ColumnLinear(joint_widths[-1], 1)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Evaluate f at targets that belong to each row.

        Args:
            h: Features of x, shape (B, H).
            y: Draws for each row, shape (M, B, D), or one target for each row, shape (B, D).

        Returns:
            f, shape (M, B) or (B,).
        """
        self._check_features(h)
        with _at_full_precision(h):
            return self._at_draws(h.to(self.output_layer.weight.dtype), y)

    def _at_draws(self, h: Tensor, y: Tensor) -> Tensor:
        B, D = h.shape[0], self.n_targets
        if y.dim() not in (2, 3) or y.shape[-2:] != (B, D) or y.shape[0] < 1:
            raise ValueError(
                f"y takes shape (M, B, D) or (B, D) with M >= 1, D = {D} and B = {B} as in h, "
                f"got {tuple(y.shape)}"
            )
        draws = y if y.dim() == 3 else y[None]
        n_draws = min(len(draws), max(1, self._columns_of_tile(h.device) // max(1, B)))
        W_y, z_x = self._target_weight, self._from_features(h).repeat(1, n_draws)

        def tile(draws: Tensor) -> Tensor:
            h_y = self._target_features(draws.reshape(-1, D))
            # The product starts from W_x h, already of the tile's size, and needs no addition after it.
            z = torch.addmm(z_x[:, : h_y.shape[1]], W_y, h_y)
            return self._energy(z)

        return torch.cat([tile(some) for some in draws.split(n_draws)]).view(y.shape[:-1])

    def grid(self, h: Tensor, y: Tensor) -> Tensor:
        """Evaluate f at targets that all rows share.

        Args:
            h: Features of x, shape (B, H).
            y: Targets, shape (G, D).

        Returns:
            f, shape (G, B).
        """
        self._check_features(h)
        if y.dim() != 2 or y.shape[1] != self.n_targets or y.shape[0] < 1:
            raise ValueError(
                f"y takes shape (G, D) with G >= 1 and D = {self.n_targets}, got {tuple(y.shape)}"
            )
        with _at_full_precision(h):
            return self._on_grid(h.to(self.output_layer.weight.dtype), y)

    def _on_grid(self, h: Tensor, y: Tensor) -> Tensor:
        n_columns = self._columns_of_tile(h.device)
        # Nodes come last in a tile: W_x h is then one number for a long run of memory. A tile has a few rows
        # only: W_y h_y, which is read again for each of them, then stays in the cache.
        n_nodes = min(len(y), max(1, n_columns // 4))
        W_y, z = self._target_weight, self._from_features(h)[:, :, None]
        rows = z.split(n_columns // n_nodes, dim=1)
        # Without gradients one buffer serves all tiles: new pages of memory take longer than to fill them.
        buffer = None if torch.is_grad_enabled() else z.new_empty(len(z), rows[0].shape[1], n_nodes)

        energy = (
            self._energy_of_max if self._is_one_relu_layer and buffer is not None else self._energy_of_sum
        )

        def tile(nodes: Tensor) -> Tensor:
            z_y = (W_y @ self._target_features(nodes))[:, None]
            outs = [None if buffer is None else buffer[:, : z_x.shape[1], : len(nodes)] for z_x in rows]
            return torch.cat([energy(z_x, z_y, out) for z_x, out in zip(rows, outs, strict=True)])

        return torch.cat([tile(nodes) for nodes in y.split(n_nodes)], dim=1).T

    def extra_repr(self) -> str:
        """Name the settings that the layers do not show."""
        return f"activation={self.activation!r}, residual={self.residual}"

    def _check_features(self, h: Tensor) -> None:
        if h.dim() != 2 or h.shape[1] != self.n_features:
            raise ValueError(f"h takes shape (B, H) with H = {self.n_features}, got {tuple(h.shape)}")

    def _columns_of_tile(self, device: torch.device) -> int:
        """Columns of a tile: as many as fit the cache, or on other devices the memory."""
        n_numbers = 2**20 if device.type == "cpu" else 2**26
        return max(1, n_numbers // self.max_width)

    @property
    def _target_weight(self) -> Tensor:
        """W_y, shape (J, C)."""
        return self.first_joint_layer.weight[:, self.n_features :]

    def _from_features(self, h: Tensor) -> Tensor:
        """W_x h + b, shape (J, B)."""
        first = self.first_joint_layer
        return torch.addmm(first.bias[:, None], first.weight[:, : self.n_features], h.T)

    def _target_features(self, y: Tensor) -> Tensor:
        """h_y, shape (C, N), of y, shape (N, D)."""
        act, a = ACTIVATIONS[self.activation], y.T
        for layer in self.target_layers:
            a = act(layer(a))
        return a

    def _energy_of_sum(self, z_x: Tensor, z_y: Tensor, out: Tensor | None) -> Tensor:
        """f, shape (R, N), from the first layer's two parts, shapes (J, R, 1) and (J, 1, N)."""
        z = torch.add(z_x, z_y, out=out)
        return self._energy(z.flatten(1)).view(z.shape[1:])

    @property
    def _is_one_relu_layer(self) -> bool:
        return self.activation == "relu" and not self.joint_layers

    def _energy_of_max(self, z_x: Tensor, z_y: Tensor, out: Tensor | None) -> Tensor:
        """As `_energy_of_sum`, where only the output layer follows: one pass over the tile less.

        relu(z_x + z_y) = max(z_y, -z_x) + z_x, and the output is linear in both terms.
        """
        a = torch.maximum(z_y, -z_x, out=out)
        return self.output_layer(a.flatten(1)).view(a.shape[1:]) + (self.output_layer.weight @ z_x[..., 0]).T

    def _energy(self, z: Tensor) -> Tensor:
        """f, shape (N,), from the first joint layer before its activation, shape (J, N)."""
        act = ACTIVATIONS[self.activation]
        a = act(z)
        for layer in self.joint_layers:
            b = act(layer(a))
            a = a + b if self.residual and a.shape == b.shape else b
        return self.output_layer(a).squeeze(0)


def _at_full_precision(h: Tensor) -> torch.autocast:
    # Half precision rounds f near -50 to steps of 1/4, and targets near 150 to integers: draws close to each
    # other would have the same energy.
    return torch.autocast(h.device.type, enabled=False)


class _ColumnLinear(nn.Linear):
    """A linear layer on columns, (C, N) to (C', N)."""

    def forward(self, a: Tensor) -> Tensor:
        return torch.addmm(self.bias[:, None], self.weight, a)


def _layers(widths: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(_ColumnLinear(n_in, n_out) for n_in, n_out in itertools.pairwise(widths))


def _check_widths(**named: Sequence[int]) -> None:
    for name, widths in named.items():
        if any(width < 1 for width in widths):
            raise ValueError(f"{name} takes numbers of at least 1, got {', '.join(map(str, widths))}")
