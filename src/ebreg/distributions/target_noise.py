"""TargetNoise: the hand-set noise around the target, of the baselines."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.distributions.truncated_mixture import TruncatedMixture
from ebreg.units import Bounds


class TargetNoise:
    """Hand-set NCE noise: an equal mixture of Gaussians centred at the true target.

    Args:
        sigmas: Standard deviations of the components, the same for every target dimension.
    """

    def __init__(self, sigmas: Sequence[float]):
        if isinstance(sigmas, str) or not hasattr(sigmas, "__iter__"):
            raise TypeError(f"sigmas must be a sequence of numbers above 0, got {sigmas!r}")
        self.sigmas = tuple(checks.positive("sigmas", sigma) for sigma in sigmas)
        checks.at_least("the number of sigmas", len(self.sigmas), 1)

    def around(self, y: Tensor, unit: Tensor | float = 1.0, bounds: Bounds | None = None) -> GaussianMixture:
        """The noise for a batch of targets.

        Args:
            y: Targets, shape (B, D).
            unit: What one sigma of 1 means in units of y, shape (D,).
            bounds: Of the targets, in the units of y: the noise is truncated there.
        """
        B, D = y.shape
        K = len(self.sigmas)
        # Divided in double precision: a unit of 1e40 is fine, though single precision does not hold it.
        unit = torch.as_tensor(unit, dtype=torch.float64)
        scales = (torch.tensor(self.sigmas, dtype=torch.float64)[:, None] / unit.cpu()).to(y)
        parameters = (y.new_zeros(B, K), y[:, None].expand(B, K, D), scales.expand(K, D).expand(B, K, D))
        if bounds is None:
            return GaussianMixture(*parameters, validate_args=False)
        return TruncatedMixture(*parameters, bounds.low, bounds.high, validate_args=False)
