"""FullMixture: Gaussians with full covariances, which draws are taken from and nothing else is asked."""

import torch
from torch import Tensor

from ebreg import checks
from ebreg.distributions import normal


class FullMixture:
    r"""Mixture of K Gaussians with full covariances for each of B rows.

    .. math:: q(y) = \textstyle\sum_k \pi_k N(y; \mu_k, L_k L_k^\top)

    A source of draws: it has the two questions that importance sampling asks of a proposal.

    Args:
        logits: Unnormalised log weights, shape (B, K).
        means: Shape (B, K, D).
        cholesky: Lower triangular factors L of the covariances, their diagonals above 0, shape (B, K, D, D).
    """

    def __init__(self, logits: Tensor, means: Tensor, cholesky: Tensor):
        checks.shape("logits", logits, ("B", "K"))
        checks.shape("means", means, (*logits.shape, "D"))
        checks.shape("cholesky", cholesky, (*means.shape, means.shape[-1]))
        self.logits = logits.log_softmax(dim=1)
        self.means = means
        self.cholesky = cholesky

    def __getitem__(self, rows: Tensor) -> "FullMixture":
        """The mixtures of some rows: row numbers or a mask."""
        return FullMixture(self.logits[rows], self.means[rows], self.cholesky[rows])

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density: (..., B, D) -> (..., B)."""
        B, K, D = self.means.shape
        checks.shape("value", value, (*["..."] * (value.dim() - 2), B, D))
        eye = torch.eye(D, dtype=self.means.dtype, device=self.means.device)
        inverse = torch.linalg.solve_triangular(self.cholesky, eye.expand_as(self.cholesky), upper=False)
        # Seen from the middle of its mixture, a row far from the origin keeps its digits.
        centre = (self.logits.exp()[..., None] * self.means).sum(dim=1)
        y = (value.reshape(-1, B, D).to(self.means) - centre).transpose(0, 1)  # (B, M, D)
        shift = (inverse @ (self.means - centre[:, None])[..., None]).reshape(B, 1, K * D)
        # One product of matrices for all components, (B, M, D) with (B, D, K D).
        z = torch.baddbmm(-shift, y, inverse.reshape(B, K * D, D).mT)
        log_norm = self.logits - _log_diagonal(self.cholesky) - D * normal.LOG_SQRT_2PI
        log_joint = log_norm[:, None] - 0.5 * z.square().unflatten(-1, (K, D)).sum(dim=-1)
        return log_joint.logsumexp(dim=-1).T.reshape(value.shape[:-1])

    def from_uniform(self, u: Tensor) -> Tensor:
        """Turn points of the unit cube into draws; uniform points become draws of the mixture.

        The first coordinate chooses the component, and what it says beyond that gives the first Gaussian.

        Args:
            u: Shape (M, B, D), or (M, D) for the same points in every row.

        Returns:
            Shape (M, B, D).
        """
        B, K, D = self.means.shape
        u = u[:, None].expand(-1, B, -1) if u.dim() == 2 else u
        checks.shape("u", u, ("M", B, D))
        u = u.to(self.means, copy=True).transpose(0, 1).contiguous()  # (B, M, D)
        weights = self.logits.exp()
        upper = weights.cumsum(dim=1)
        # Rounding must not let a point fall outside of every interval, or into one of no width.
        first = u[..., 0].clamp_min(torch.finfo(u.dtype).tiny) * upper[:, -1:]
        component = torch.searchsorted(upper, first.contiguous()).clamp_max(K - 1)  # (B, M)
        weight = weights.gather(1, component)
        u[..., 0] = (first - (upper.gather(1, component) - weight)) / weight
        z = normal.icdf(u)
        factor, mean = _chosen(self.cholesky.flatten(2), component), _chosen(self.means, component)
        return (mean + (factor.unflatten(-1, (D, D)) @ z[..., None])[..., 0]).transpose(0, 1)


def _chosen(table: Tensor, component: Tensor) -> Tensor:
    # Entries of a table (B, K, n) for chosen components, (B, M) -> (B, M, n).
    B, K, n = table.shape
    first = torch.arange(0, B * K, K, device=component.device)[:, None]
    return table.reshape(B * K, n)[(component + first).flatten()].unflatten(0, component.shape)


def _log_diagonal(cholesky: Tensor) -> Tensor:
    return cholesky.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
