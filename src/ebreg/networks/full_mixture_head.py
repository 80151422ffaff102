"""The full mixture head: Gaussians with full covariances from features of x."""

import torch
from torch import Tensor, nn

from ebreg.distributions import FullMixture
from ebreg.networks.mixture_head import MixtureHead


class FullMixtureHead(nn.Module):
    r"""A mixture of Gaussians with full covariances from features, for targets that depend on each other.

    The factor of a covariance is :math:`L = \mathrm{diag}(\sigma) (I + N)`, with the scales of a
    :class:`MixtureHead` and N strictly lower triangular, 0 at first: it starts as the diagonal mixture.

    Args:
        n_features: H.
        n_targets: D.
        n_components: K.
        activation: Name of the activation after the first layer of each branch.
        min_scale: Lower bound of the diagonal of L, added in quadrature.
        spread: Whether the initial means of the components are the quantiles of a standard Gaussian.
    """

    def __init__(
        self,
        n_features: int,
        n_targets: int,
        n_components: int = 8,
        activation: str = "silu",
        min_scale: float = 1e-3,
        spread: bool = True,
    ):
        super().__init__()
        self.n_features, self.n_targets = n_features, n_targets
        self.diagonal = MixtureHead(n_features, n_targets, n_components, activation, min_scale, spread)
        n_couplings = n_components * n_targets * (n_targets - 1) // 2
        self.couplings = nn.Linear(n_features, n_couplings) if n_couplings else None
        if self.couplings is not None:
            nn.init.zeros_(self.couplings.weight)
            nn.init.zeros_(self.couplings.bias)

    def forward(self, h: Tensor) -> FullMixture:
        """(B, H) -> a mixture with batch shape (B,) and event shape (D,)."""
        q = self.diagonal(h)
        B, K, D = q.means.shape
        factor = torch.eye(D, dtype=q.means.dtype, device=h.device).repeat(B, K, 1, 1)
        if self.couplings is not None:
            i, j = torch.tril_indices(D, D, offset=-1, device=h.device)
            with torch.autocast(h.device.type, enabled=False):
                couplings = self.couplings(h.to(self.couplings.weight.dtype))
            factor[..., i, j] = couplings.view(B, K, len(i)).to(factor)
        return FullMixture(q.logits, q.means, q.scales[..., None] * factor)
