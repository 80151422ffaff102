"""FullMixture: Gaussians with full covariances, a proposal for several targets."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ebreg import sampling
from ebreg._utils import checks
from ebreg._utils.row_index import row_index
from ebreg.distributions import components, normal

_NO_WEIGHT = -1e4  # a log weight: infinite ones would make differences that are not numbers


class FullMixture(Distribution):
    r"""Mixture of K Gaussians with full covariances for each of B rows.

    .. math:: q(y) = \textstyle\sum_k \pi_k N(y; \mu_k, L_k L_k^\top)

    A torch Distribution with batch shape (B,) and event shape (D,), with what a proposal needs.

    Args:
        logits: Unnormalised log weights, shape (B, K).
        means: Shape (B, K, D).
        cholesky: Lower triangular L, the diagonals above 0, shape (B, K, D, D).
    """

    arg_constraints = {  # noqa: RUF012 (torch's convention)
        "logits": constraints.real_vector,
        "means": constraints.independent(constraints.real, 2),
        "cholesky": constraints.independent(constraints.lower_cholesky, 1),
    }
    support = constraints.real_vector

    def __init__(self, logits: Tensor, means: Tensor, cholesky: Tensor):
        checks.shape("logits", logits, ("B", "K"))
        checks.shape("means", means, (*logits.shape, "D"))
        checks.shape("cholesky", cholesky, (*means.shape, means.shape[-1]))
        self.logits = logits.log_softmax(dim=1)
        self.means = means
        self.cholesky = cholesky
        super().__init__(means.shape[:1], means.shape[2:], validate_args=False)

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: Any) -> "FullMixture":
        """The mixtures of some of the rows: a number, a slice, row numbers or a mask."""
        rows = row_index(rows)
        return FullMixture(self.logits[rows], self.means[rows], self.cholesky[rows])

    def joined(self, others: Sequence["FullMixture"]) -> "FullMixture":
        """These rows and, below them, those of others; all get as many components as the most have."""
        K = max(part.logits.shape[1] for part in (self, *others))
        parts = [part._with_at_least(K) for part in (self, *others)]
        names = ("logits", "means", "cholesky")
        return FullMixture(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def beside(self, other: "FullMixture", share: Tensor) -> "FullMixture":
        """The components of both; those of the other have a share of the mass, (B,), which may be 0."""
        share = share[:, None].to(self.logits)
        log_share = share.log().clamp_min(_NO_WEIGHT)
        logits = [self.logits + torch.log1p(-share), (other.logits + log_share).clamp_min(_NO_WEIGHT)]
        means, cholesky = [self.means, other.means], [self.cholesky, other.cholesky]
        return FullMixture(*(torch.cat(pair, dim=1) for pair in (logits, means, cholesky)))

    def _with_at_least(self, K: int) -> "FullMixture":
        # More components, without weight.
        B, n, D = self.means.shape
        if n >= K:
            return self
        return FullMixture(
            torch.cat([self.logits, self.logits.new_full((B, K - n), _NO_WEIGHT)], dim=1),
            torch.cat([self.means, self.means[:, :1].expand(B, K - n, D)], dim=1),
            torch.cat([self.cholesky, self.cholesky[:, :1].expand(B, K - n, D, D)], dim=1),
        )

    def rescaled(self, shift: Tensor, scale: Tensor) -> "FullMixture":
        """The distribution of shift + scale * y; both have shape (D,), and their dtype is the result's."""
        return FullMixture(
            self.logits.to(scale), shift + scale * self.means, scale[:, None] * self.cholesky.to(scale)
        )

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""
        return (self.logits.exp()[..., None] * self.means).sum(dim=1)

    @property
    def covariance(self) -> Tensor:
        """Shape (B, D, D)."""
        weights, centred = self.logits.exp()[..., None], self.means - self.mean[:, None]
        within = (weights[..., None] * (self.cholesky @ self.cholesky.mT)).sum(dim=1)
        return within + (weights * centred).mT @ centred

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        return self.covariance.diagonal(dim1=1, dim2=2)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Independent draws, shape sample_shape + (B, D), from the global random state."""
        B, _, D = self.means.shape
        u = sampling.independent(math.prod(sample_shape), B, D)
        return self.from_uniform(u).reshape(*sample_shape, B, D)

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

    def levels(self, value: Tensor) -> Tensor:
        """P(Y_d <= value_d) of each target d by itself: (..., B, D) -> (..., B, D)."""
        z = (value[..., None, :] - self.means) / self.cholesky.norm(dim=-1)
        return (self.logits.exp()[..., None] * normal.cdf(z)).sum(dim=-2).clamp(max=1)

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

    def place(self, y: Tensor, u: Tensor) -> Tensor:
        """The first coordinate of a point that :meth:`from_uniform` sends to y: its random inverse.

        The component is drawn from its responsibilities, as in :meth:`GaussianMixture.place`.

        Args:
            y: Targets, shape (B, D).
            u: Uniform numbers that draw the component, shape (B,).

        Returns:
            Shape (B,), in [0, 1].
        """
        with torch.no_grad():
            residual = (y[:, None] - self.means)[..., None]  # (B, K, D, 1)
            z = torch.linalg.solve_triangular(self.cholesky, residual, upper=False)[..., 0]
            log_scale = self.cholesky.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
            log_joint = self.logits - log_scale - 0.5 * z.square().sum(dim=-1)
            return components.place(self.logits.exp(), log_joint, normal.cdf(z[..., 0]), u)
