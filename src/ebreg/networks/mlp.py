"""MLP: a fully connected network from inputs to features."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from ebreg._utils import checks
from ebreg.networks.activations import ACTIVATIONS
from ebreg.networks.member_layers import Linear


class MLP(nn.Module):
    """Fully connected layers, each followed by the activation: (B, n_in) -> (B, widths[-1]).

    Args:
        n_in: Number of inputs.
        widths: Widths of the layers.
        activation: Name of the activation, see ``ebreg.networks.ACTIVATIONS``.
        residual: Whether a layer adds its input where the widths agree.
        linear: Makes a linear layer from its numbers of inputs and outputs.
        dropout: Applied after every layer; None for no dropout.
    """

    def __init__(
        self,
        n_in: int,
        widths: Sequence[int],
        activation: str = "relu",
        residual: bool = False,
        linear: Linear = nn.Linear,
        dropout: nn.Module | None = None,
    ):
        super().__init__()
        checks.one_of("activation", activation, ACTIVATIONS)
        sizes = [checks.at_least("n_in", n_in, 1), *(checks.at_least("widths", width, 1) for width in widths)]
        self.layers = nn.ModuleList(linear(*pair) for pair in pairwise(sizes))
        self.activation, self.residual, self.dropout = activation, residual, dropout

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in) -> (B, widths[-1])."""
        act = ACTIVATIONS[self.activation]
        for layer in self.layers:
            out = act(layer(x))
            x = x + out if self.residual and out.shape == x.shape else out
            x = x if self.dropout is None else self.dropout(x)
        return x
