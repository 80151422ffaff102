"""ProposalDraws: a distribution that is normalised already, and answers by its draws."""

import math

import torch
from torch import Tensor

from ebreg import sampling
from ebreg._utils import checks
from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.unnormalized import Unnormalized
from ebreg.predictive.weighted_draws import WeightedDraws


class ProposalDraws(WeightedDraws):
    """q(y | x) of any torch Distribution: equally weighted draws, and its own density.

    ``log_prob`` is exact and samples are fresh draws of q; the other verbs are averages over the draws.
    """

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Fresh draws of q, shape (n, B, D), not differentiated."""
        _, B, D = self.draws.shape
        u = sampling.independent(checks.at_least("n", n, 0), B, D, generator)
        return self.target.to_units(self.target.proposal.from_uniform(u.double()))

    @property
    def pareto_k(self) -> Tensor:
        """Minus infinity: the weights are equal. Shape (B,)."""
        return torch.full_like(self.log_partition, -math.inf)

    def _log_density(self, z: Tensor) -> Tensor:
        # The density is normalised in standard units.
        return self.target.energy(z) - self.target.log_scale


def draws_of_proposal(target: Unnormalized, accuracy: Accuracy) -> ProposalDraws:
    """``n_draws`` draws of the proposal of a target whose energy is log q; quasi-random where q has a map.

    The draws are constants for gradients. Their weights are equal, and change as log q does.
    """
    B, D = len(target), target.n_targets
    u = sampling.sobol(accuracy.n_draws, D, accuracy.seed).to(target.h.device)
    with torch.no_grad():
        draws = target.proposal.from_uniform(u[:, None].expand(-1, B, -1)).double()
    log_q = target.energy(draws)
    zeros = log_q.new_zeros(B)
    return ProposalDraws(
        draws=target.to_units(draws),
        log_weights=(log_q - log_q.detach()).log_softmax(dim=0),
        log_density=log_q - target.log_scale,
        n_draws=torch.full_like(zeros, len(draws), dtype=torch.long),
        log_partition=zeros,
        log_partition_error=zeros,
        effective_sample_size=torch.full_like(zeros, len(draws)),
        proposal=target.proposal_in_units,
        target=target,
    )
