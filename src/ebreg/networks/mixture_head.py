"""The mixture head: a Gaussian mixture from features of x."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ebreg._utils import checks
from ebreg.distributions import GaussianMixture, TruncatedMixture
from ebreg.networks.activations import ACTIVATIONS
from ebreg.networks.member_layers import Linear, MemberLinear
from ebreg.networks.member_tiles import in_tiles
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
        self._make_layers(linear)
        if spread:
            levels = (torch.arange(n_components) + 0.5) / n_components
            with torch.no_grad():
                self._bias_of_means().copy_(torch.special.ndtri(levels).repeat_interleave(n_targets))

    def _make_layers(self, linear: Linear) -> None:
        H, D, K = self.n_features, self.n_targets, self.n_components
        # The first layers of the three branches see the same input: one matrix product instead of three.
        self.hidden = linear(H, 3 * H)
        self.means = linear(H, K * D)
        self.log_variances = linear(H, K * D)
        self.logits = linear(H, K)

    def _bias_of_means(self) -> Tensor:
        return cast(nn.Linear, self.means).bias

    def _outputs(self, h: Tensor) -> Sequence[Tensor]:
        # Means (B, K * D), log variances (B, K * D) and logits (B, K).
        hidden = ACTIVATIONS[self.activation](self.hidden(h)).chunk(3, dim=1)
        return self.means(hidden[0]), self.log_variances(hidden[1]), self.logits(hidden[2])

    def forward(self, h: Tensor) -> GaussianMixture:
        """(B, H) -> a mixture with batch shape (B,) and event shape (D,)."""
        checks.shape("h", h, ("B", self.n_features))
        # Not in the half precision of the backbone, which would round means and standard deviations.
        with torch.autocast(h.device.type, enabled=False):
            return self._mixture(h.to(self._bias_of_means().dtype))

    def _mixture(self, h: Tensor) -> GaussianMixture:
        shape = (len(h), self.n_components, self.n_targets)
        # At least single precision, in whatever precision the network computes.
        means, log_variances, logits = map(_at_least_single, self._outputs(h))
        variances = log_variances.clamp(-_LOG_VARIANCE_LIMIT, _LOG_VARIANCE_LIMIT).exp() + self.min_scale**2
        means, scales = means.reshape(shape), variances.sqrt().view(shape)
        if self.bounds is None:
            return GaussianMixture(logits, means, scales, validate_args=False)
        return TruncatedMixture(logits, means, scales, self.bounds.low, self.bounds.high, validate_args=False)


class LinearMixtureHead(MixtureHead):
    """A Gaussian mixture that is linear in the features; its arguments are those of a :class:`MixtureHead`.

    On features that a network has learned for it, the branches of a :class:`MixtureHead` gain nothing and
    take most of the time of a step.
    """

    def _make_layers(self, linear: Linear) -> None:
        self.outputs = linear(self.n_features, self.n_components * (2 * self.n_targets + 1))

    def _bias_of_means(self) -> Tensor:
        return cast(nn.Linear, self.outputs).bias[..., : self.n_components * self.n_targets]

    def _outputs(self, h: Tensor) -> Sequence[Tensor]:
        K, D = self.n_components, self.n_targets
        if isinstance(self.outputs, MemberLinear) and not torch.is_grad_enabled():
            E = self.outputs.n_members
            outputs = in_tiles(self.outputs, h, E, E)
        else:
            outputs = self.outputs(h)
        return outputs.split([K * D, K * D, K], dim=1)


def _at_least_single(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
