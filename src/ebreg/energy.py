"""The energy head: f(x, y), the unnormalised log density, from features of x and a target y."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "tanh": torch.tanh,
    "softplus": nn.functional.softplus,
}


class EnergyHead(nn.Module):
    r"""The energy f(x, y) of a target y given features h of x; p(y | x) is proportional to exp(f).

    .. math::
        h_y &= \sigma(A_L \cdots \sigma(A_1 y)), \\
        a_1 &= \sigma(W [h; h_y]) = \sigma(W_x h + W_y h_y), \\
        a_{i+1} &= \sigma(V_i a_i) \; (+\, a_i \text{ if residual and of one width}), \\
        f &= v^\top a_J,

    every layer with its bias. The first joint layer is linear in [h, h_y], so its part W_x h is computed
    once per row and not once per draw, and its part W_y h_y on a shared grid once per node and not once per
    row. The parameters are those of the concatenated form.

    Args:
        n_features: H, the number of features of x.
        n_targets: D, the number of target dimensions.
        target_widths: Widths of the layers that extract features from y; none means that y is used itself.
        joint_widths: Widths of the layers on [h, h_y], at least one.
        activation: Name of the activation after every layer but the last, see `ACTIVATIONS`.
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
        for name, widths in [
            ("n_features", [n_features]),
            ("n_targets", [n_targets]),
            ("target_widths", target_widths),
            ("joint_widths", joint_widths),
        ]:
            if any(width < 1 for width in widths):
                raise ValueError(f"{name} takes numbers of at least 1, got {widths}")
        if not joint_widths:
            raise ValueError("joint_widths takes at least one width, got none")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation takes one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.n_features, self.n_targets = n_features, n_targets
        self.activation, self.residual = activation, residual
        self.target_layers = _linears([n_targets, *target_widths])
        n_target_features = [n_targets, *target_widths][-1]
        self.joint_layers = _linears([n_features + n_target_features, *joint_widths])
        self.output = nn.Linear(joint_widths[-1], 1)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Evaluate f at targets that belong to each row.

        Args:
            h: Features of x, shape (B, H).
            y: Draws for each row, shape (M, B, D), or one target for each row, shape (B, D).

        Returns:
            f, shape (M, B) or (B,).
        """
        self._check_features(h)
        if y.dim() not in (2, 3) or y.shape[-2:] != (h.shape[0], self.n_targets) or y.shape[0] < 1:
            raise ValueError(
                f"y takes shape (M, B, D) or (B, D) with M >= 1, B = {h.shape[0]} rows as in h and "
                f"D = {self.n_targets}, got {tuple(y.shape)}"
            )
        z = self._from_targets(y.reshape(-1, self.n_targets)).unflatten(1, (-1, h.shape[0]))
        return self._from_joint(z + self._from_features(h)[:, None]).view(y.shape[:-1])

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
        return self._from_joint(self._from_targets(y)[:, :, None] + self._from_features(h)[:, None])

    def extra_repr(self) -> str:
        """Name the settings that the layers do not show."""
        return f"activation={self.activation!r}, residual={self.residual}"

    def _check_features(self, h: Tensor) -> None:
        if h.dim() != 2 or h.shape[1] != self.n_features:
            raise ValueError(f"h takes shape (B, H) with H = {self.n_features}, got {tuple(h.shape)}")

    def _from_features(self, h: Tensor) -> Tensor:
        """W_x h + b, shape (J, B)."""
        first = self.joint_layers[0]
        return nn.functional.linear(h, first.weight[:, : self.n_features], first.bias).T

    def _from_targets(self, y: Tensor) -> Tensor:
        """W_y h_y, shape (J, N), for y of shape (N, D)."""
        act = ACTIVATIONS[self.activation]
        a = y.T
        for layer in self.target_layers:
            a = act(torch.addmm(layer.bias[:, None], layer.weight, a))
        return self.joint_layers[0].weight[:, self.n_features :] @ a

    def _from_joint(self, z: Tensor) -> Tensor:
        """The value f, shape (M, B), of what the first joint layer makes before its activation, (J, M, B)."""
        act = ACTIVATIONS[self.activation]
        a = act(z.flatten(1))
        for layer in self.joint_layers[1:]:
            b = act(torch.addmm(layer.bias[:, None], layer.weight, a))
            a = a + b if self.residual and a.shape == b.shape else b
        f = torch.addmm(self.output.bias[:, None], self.output.weight, a).view(z.shape[1:])
        return f.float() if f.dtype in (torch.float16, torch.bfloat16) else f


def _linears(widths: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Linear(n_in, n_out) for n_in, n_out in zip(widths[:-1], widths[1:], strict=True)
    )
