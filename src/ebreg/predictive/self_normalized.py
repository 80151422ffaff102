"""Self-normalised importance sampling with draws of the proposal alone: the paper's estimator (Eq. 7)."""

import torch
from torch import Tensor

from ebreg import importance, sampling
from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.unnormalized import Unnormalized
from ebreg.predictive.weighted_draws import WeightedDraws


def self_normalized(target: Unnormalized, accuracy: Accuracy) -> WeightedDraws:
    """p(y | x) of any number of targets by M = ``n_draws`` independent draws of the proposal.

    The points behind the draws are the same in every row, so its answer does not depend on the other rows.
    The error of log Z is that of the delta method: what the proposal misses, it cannot see. Gradients reach f
    at the draws; the draws and log q are constants.
    """
    draws, log_q = _draws(target, accuracy)
    f = target.energy(draws)
    return WeightedDraws.of(target, draws, f, log_q, importance.log_partition_error(f.detach(), log_q))


@torch.no_grad()
def _draws(target: Unnormalized, accuracy: Accuracy) -> tuple[Tensor, Tensor]:
    # Draws (M, B, D) and their log density (M, B), in standard units.
    B, D = len(target), target.n_targets
    generator = torch.Generator().manual_seed(accuracy.seed)
    u = sampling.independent(accuracy.n_draws, 1, D, generator).double().to(target.h.device)
    draws = target.proposal.from_uniform(u.expand(-1, B, -1))
    return draws.double(), target.proposal.log_prob(draws).double()
