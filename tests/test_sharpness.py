"""How much narrower a proposal is on the rows that it was trained on than on others."""

import torch
from torch import nn

from ebreg.distributions import GaussianMixture
from ebreg.models import MixtureModel
from ebreg.training import HeldOut
from ebreg.training.batches import as_data
from ebreg.training.sharpness import sharpness
from support import normal

N = 4000


class Standard(nn.Module):
    """A standard normal distribution for every row, whatever its features."""

    def forward(self, h):
        ones = torch.ones(len(h), 1, 1)
        return GaussianMixture(ones[..., 0], 0 * ones, ones)


class Flat(Standard):
    """A proposal that is not a mixture."""

    def forward(self, h):
        zeros = torch.zeros(len(h), 1)
        return torch.distributions.Independent(torch.distributions.Normal(zeros, zeros + 1), 1)


def model(head: nn.Module) -> MixtureModel:
    return MixtureModel(nn.Identity(), head, n_targets=1).eval()


def rows(scale: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(N, 1), scale * normal(N, 1, seed=seed, dtype=torch.float32)


def test_it_is_the_width_of_the_own_rows_beside_that_of_the_others():
    q, own = model(Standard()), as_data(rows(0.5, 0))
    assert sharpness(q, own, None) == 0.5
    assert sharpness(q, own, as_data(rows(1.0, 1))) == 0.5
    assert sharpness(q, own, as_data(rows(3.0, 1))) == 0.5  # q is never made wider
    assert sharpness(q, own, as_data(rows(0.5, 1))) == 1.0  # q is too wide everywhere: g may learn that
    assert sharpness(q, own, as_data(rows(2**-0.5, 1))) == 2**-0.5
    assert sharpness(q, as_data(rows(2.0, 0)), None) == 1.0


def test_validation_rows_may_be_among_the_data():
    x, y = rows(0.5, 0)
    y[::10] *= 2
    held_out = HeldOut(torch.arange(0, N, 10)[None])
    assert sharpness(model(Standard()), as_data((x, y)), held_out) == 0.5


def test_other_proposals_stay_as_they_are():
    assert sharpness(model(Flat()), as_data(rows(0.5, 0)), None) == 1.0
