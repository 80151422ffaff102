"""The mixture head: a Gaussian mixture from features of x."""

from typing import cast

import torch
from torch import Tensor, nn

from ebreg._utils import checks
from ebreg.distributions import GaussianMixture, TruncatedMixture
from ebreg.networks.activations import ACTIVATIONS
from ebreg.networks.member_layers import Linear
from ebreg.units import Bounds

# Standard deviations between exp(-20) and exp(20): wide enough for any data in any unit, and never 0 or inf.
_LOG_VARIANCE_LIMIT = 40.0


class MixtureHead(nn.Module):
    """A Gaussian mixture from features: three branches give means, variances and weights.

    Each branch has two layers.

    Args:
        n_features: H.
        n_targets: D.
        n_components: K.
        activation: Name of the activation after the first layer of each branch.
        min_scale: Lower bound of the standard deviations, added in quadrature.
        spread: Whether the initial means of the components are the quantiles of a standard Gaussian.
        bounds: Bounds of the targets, at which the components are truncated; None for no bounds.
        linear: Makes a linear layer from its numbers of inputs and outputs.
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
        linear: Linear = nn.Linear,
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
        self.hidden = linear(n_features, 3 * n_features)
        self.means = linear(n_features, n_components * n_targets)
        self.log_variances = linear(n_features, n_components * n_targets)
        self.logits = linear(n_features, n_components)
        if spread:
            levels = (torch.arange(n_components) + 0.5) / n_components
            with torch.no_grad():
                cast(nn.Linear, self.means).bias.copy_(
                    torch.special.ndtri(levels).repeat_interleave(n_targets)
                )

    def forward(self, h: Tensor) -> GaussianMixture:
        """(B, H) -> a mixture with batch shape (B,) and event shape (D,)."""
        checks.shape("h", h, ("B", self.n_features))
        # Not in the half precision of the backbone, which would round means and standard deviations.
        with torch.autocast(h.device.type, enabled=False):
            return self._mixture(h.to(cast(nn.Linear, self.hidden).weight.dtype))

    def _mixture(self, h: Tensor) -> GaussianMixture:
        hidden = ACTIVATIONS[self.activation](self.hidden(h)).chunk(3, dim=1)
        shape = (len(h), self.n_components, self.n_targets)
        # At least single precision, in whatever precision the network computes.
        log_variances = _at_least_single(self.log_variances(hidden[1]))
        variances = log_variances.clamp(-_LOG_VARIANCE_LIMIT, _LOG_VARIANCE_LIMIT).exp() + self.min_scale**2
        logits = _at_least_single(self.logits(hidden[2]))
        means = _at_least_single(self.means(hidden[0])).view(shape)
        scales = variances.sqrt().view(shape)
        if self.bounds is None:
            return GaussianMixture(logits, means, scales, validate_args=False)
        return TruncatedMixture(logits, means, scales, self.bounds.low, self.bounds.high, validate_args=False)


def _at_least_single(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
