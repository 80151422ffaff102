"""The networks: a perceptron for features of x, the mixture head, and the sets of parts that go together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from ebreg import checks
from ebreg.distributions import GaussianMixture, TruncatedMixture
from ebreg.energy import ACTIVATIONS, EnergyHead
from ebreg.scaling import Bounds

# Standard deviations between exp(-20) and exp(20): wide enough for any data in any unit, and never 0 or inf.
_LOG_VARIANCE_LIMIT = 40.0


class MLP(nn.Module):
    """Fully connected layers with the activation after every one of them: (B, n_in) -> (B, widths[-1]).

    Args:
        n_in: Number of inputs.
        widths: Widths of the layers.
        activation: Name of the activation, see ``ebreg.energy.ACTIVATIONS``.
        residual: Whether a layer adds its input where the widths agree.
    """

    def __init__(self, n_in: int, widths: Sequence[int], activation: str = "relu", residual: bool = False):
        super().__init__()
        checks.one_of("activation", activation, ACTIVATIONS)
        sizes = [checks.at_least("n_in", n_in, 1), *(checks.at_least("widths", width, 1) for width in widths)]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.activation, self.residual = activation, residual

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in) -> (B, widths[-1])."""
        act = ACTIVATIONS[self.activation]
        for layer in self.layers:
            out = act(layer(x))
            x = x + out if self.residual and out.shape == x.shape else out
        return x


class MixtureHead(nn.Module):
    """Turns features into a Gaussian mixture; three branches of two layers give means, variances, weights.

    Args:
        n_features: H.
        n_targets: D.
        n_components: K.
        activation: After the first layer of each branch.
        min_scale: Lower bound of the standard deviations, added in quadrature.
        spread: Whether the components start apart, at the quantiles of a standard Gaussian.
        bounds: Ends of the targets, at which the components are cut off; None: there are none.
    """

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        n_components: int,
        activation: str = "relu",
        min_scale: float = 0.0,
        spread: bool = False,
        bounds: Bounds | None = None,
    ):
        super().__init__()
        checks.one_of("activation", activation, ACTIVATIONS)
        self.n_features = checks.at_least("n_features", n_features, 1)
        self.n_targets = checks.at_least("n_targets", n_targets, 1)
        self.n_components = checks.at_least("n_components", n_components, 1)
        if not 0 <= min_scale < torch.inf:
            raise ValueError(f"min_scale must be a finite number of at least 0, got {min_scale}")
        self.activation, self.min_scale = activation, min_scale
        self.bounds = None if bounds is None or bounds.are_open else bounds
        # The first layers of the three branches see the same input: one matrix product instead of three.
        self.hidden = nn.Linear(n_features, 3 * n_features)
        self.means = nn.Linear(n_features, n_components * n_targets)
        self.log_variances = nn.Linear(n_features, n_components * n_targets)
        self.logits = nn.Linear(n_features, n_components)
        if spread:
            levels = (torch.arange(n_components) + 0.5) / n_components
            with torch.no_grad():
                self.means.bias.copy_(torch.special.ndtri(levels).repeat_interleave(n_targets))

    def forward(self, h: Tensor) -> GaussianMixture:
        """(B, H) -> a mixture with batch shape (B,) and event shape (D,)."""
        checks.shape("h", h, ("B", self.n_features))
        # Whatever the backbone computes in: half precision would round means and deviations.
        with torch.autocast(h.device.type, enabled=False):
            return self._mixture(h.to(self.hidden.weight.dtype))

    def _mixture(self, h: Tensor) -> GaussianMixture:
        hidden = ACTIVATIONS[self.activation](self.hidden(h)).chunk(3, dim=1)
        shape = (len(h), self.n_components, self.n_targets)
        # Densities are kept in single precision at least, whatever the network computes in.
        log_variances = _at_least_single(self.log_variances(hidden[1]))
        variances = log_variances.clamp(-_LOG_VARIANCE_LIMIT, _LOG_VARIANCE_LIMIT).exp() + self.min_scale**2
        logits = _at_least_single(self.logits(hidden[2]))
        means = _at_least_single(self.means(hidden[0])).view(shape)
        scales = variances.sqrt().view(shape)
        if self.bounds is None:
            return GaussianMixture(logits, means, scales, validate_args=False)
        return TruncatedMixture(logits, means, scales, self.bounds.low, self.bounds.high, validate_args=False)


@dataclass(frozen=True)
class Parts:
    """Networks that fit together: features of x, the energy on them, the mixture on them."""

    backbone: nn.Module
    energy: EnergyHead
    mixture: MixtureHead


def paper_1d(n_components: int = 4) -> Parts:
    """The networks of the paper's 1-D experiments: ten wide, one input, one target."""
    return Parts(
        MLP(1, (10, 10)),
        EnergyHead(10, 1, target_widths=(10, 10), joint_widths=(10, 10), activation="relu", residual=True),
        MixtureHead(10, 1, n_components),
    )


def image_heads(n_targets: int = 1, n_components: int = 4, n_features: int = 512) -> Parts:
    """The heads of the paper's image experiments, on features that come from elsewhere."""
    return Parts(
        nn.Identity(),
        EnergyHead(
            n_features,
            n_targets,
            target_widths=(16, 32, 64, 128),
            joint_widths=(n_features,),
            activation="relu",
            residual=False,
        ),
        MixtureHead(n_features, n_targets, n_components),
    )


def table(
    n_inputs: int,
    n_targets: int = 1,
    n_components: int = 8,
    width: int = 64,
    min_scale: float = 1e-3,
    bounds: Bounds | None = None,
) -> Parts:
    """The default for tables, for standardised inputs and targets: smooth, residual, 64 wide."""
    heads = smooth_heads(width, n_targets, n_components, width, min_scale, bounds)
    return replace(heads, backbone=MLP(n_inputs, (width, width), activation="silu", residual=True))


def smooth_heads(
    n_features: int,
    n_targets: int = 1,
    n_components: int = 8,
    width: int = 64,
    min_scale: float = 1e-3,
    bounds: Bounds | None = None,
) -> Parts:
    """The heads of :func:`table`, on features that come from elsewhere.

    Args:
        n_features: H.
        n_targets: D.
        n_components: K.
        width: Of the energy's layers.
        min_scale: Lower bound of the mixture's standard deviations, in standard units.
        bounds: Ends of the targets, in standard units.
    """
    return Parts(
        nn.Identity(),
        EnergyHead(
            n_features,
            n_targets,
            target_widths=(width, width),
            joint_widths=(width, width),
            activation="silu",
            residual=True,
        ),
        MixtureHead(
            n_features,
            n_targets,
            n_components,
            activation="silu",
            min_scale=min_scale,
            spread=True,
            bounds=bounds,
        ),
    )


NETWORKS: dict[str, Callable[..., Parts]] = {
    "paper-1d": paper_1d,
    "image-heads": image_heads,
    "smooth-heads": smooth_heads,
    "table": table,
}


def _at_least_single(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
