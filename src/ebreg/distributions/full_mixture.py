"""FullMixture: Gaussians with full covariances, a source of draws for several targets."""

from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions import components, normal


class FullMixture:
    r"""Mixture of K Gaussians with full covariances for each of B rows.

    .. math:: q(y) = \textstyle\sum_k \pi_k N(y; \mu_k, L_k L_k^\top)

    It has the two methods that importance sampling needs, and no others.

    Args:
        logits: Unnormalised log weights, shape (B, K).
        means: Shape (B, K, D).
        cholesky: Lower triangular L, the diagonals above 0, shape (B, K, D, D).
    """

    def __init__(self, logits: Tensor, means: Tensor, cholesky: Tensor):
        checks.shape("logits", logits, ("B", "K"))
        checks.shape("means", means, (*logits.shape, "D"))
        checks.shape("cholesky", cholesky, (*means.shape, means.shape[-1]))
        self.logits = logits.log_softmax(dim=1)
        self.means = means
        self.cholesky = cholesky

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: Any) -> "FullMixture":
        """The mixtures of some of the rows: a slice, row numbers or a mask."""
        return FullMixture(self.logits[rows], self.means[rows], self.cholesky[rows])

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density: (..., B, D) -> (..., B)."""
        B, K, D = self.means.shape
        checks.shape("value", value, (*["..."] * (value.dim() - 2), B, D))
        y = value.reshape(value.shape[:-2].numel(), B, D).to(self.means).transpose(0, 1)  # (B, M, D)
        eye = torch.eye(D, dtype=y.dtype, device=y.device).expand_as(self.cholesky)
        inverse = torch.linalg.solve_triangular(self.cholesky, eye, upper=False)
        log_scale = self.cholesky.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        log_norm = self.logits - log_scale - D * normal.LOG_SQRT_2PI
        # One component at a time: the memory is that of the values, not K times as much.
        log_joint = [
            log_norm[:, k, None]
            - 0.5 * ((y - self.means[:, k, None]) @ inverse[:, k].mT).square().sum(dim=-1)
            for k in range(K)
        ]
        return torch.stack(log_joint).logsumexp(dim=0).T.reshape(value.shape[:-1])

    def from_uniform(self, u: Tensor) -> Tensor:
        """Turn points of the unit cube into draws; uniform points become draws of the mixture.

        The first coordinate chooses the component; its position in the component's interval gives the first
        target.

        Args:
            u: Shape (M, B, D), or (M, D) for the same points in every row.

        Returns:
            Shape (M, B, D), not differentiated.
        """
        B, _, D = self.means.shape
        u = components.points(u, B, D)
        with torch.no_grad():
            u = u.to(self.means, copy=True)
            component, u[..., 0] = components.choose(self.logits.exp(), u[..., 0])
            z = normal.icdf(u)
            # Target by target: the memory is that of the draws, not D times as much.
            moves = [
                (components.pick(self.cholesky[:, :, d, : d + 1], component) * z[..., : d + 1]).sum(dim=-1)
                for d in range(D)
            ]
            return components.pick(self.means, component) + torch.stack(moves, dim=-1)
