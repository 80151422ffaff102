"""How much narrower a proposal is on the rows that it was trained on than on others."""

import pytest
import torch
from torch import nn

from ebreg.distributions import GaussianMixture
from ebreg.models import MixtureModel
from ebreg.training.batches import as_data
from ebreg.training.sharpness import log_likelihoods, sharpness
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


def likelihoods(scale: float, seed: int, head: nn.Module | None = None) -> torch.Tensor:
    return log_likelihoods(model(head or Standard()), as_data(rows(scale, seed)), torch.arange(N)[None])


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (1.0, 0.5),
        (3.0, 0.5),  # q is never made wider
        (0.5, 1.0),  # q is too wide everywhere: g may learn that
        (2**-0.5, 2**-0.5),
    ],
)
def test_it_is_the_width_of_the_own_rows_divided_by_that_of_the_others(others, expected):
    assert sharpness(likelihoods(0.5, 0), likelihoods(others, 1)) == expected
    assert sharpness(likelihoods(2.0, 0), likelihoods(others, 1)) == 1.0


def test_weights_of_rows_count():
    x, y = rows(0.5, 0)
    y[::2] *= 8
    data = as_data((x, y, torch.arange(N) % 2))
    assert (
        sharpness(log_likelihoods(model(Standard()), data, torch.arange(N)[None]), likelihoods(1, 1)) == 0.5
    )


def test_other_proposals_stay_as_they_are():
    found = likelihoods(0.5, 0, Flat())
    assert torch.equal(found, found[:1].expand_as(found))
    assert sharpness(found, found) == 1.0
