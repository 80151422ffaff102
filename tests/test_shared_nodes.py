"""Nodes that members share, and the tiles in which networks are evaluated at them."""

import pytest
import torch
from torch import Tensor

from ebreg._utils.sorting import sorted_rows
from ebreg.distributions import GaussianMixture
from ebreg.networks import MemberLinear, in_tiles
from ebreg.predictive.row_tiles import row_tiles
from ebreg.predictive.shared_nodes import at_even_levels
from support import normal

F64 = torch.float64


def cdf(nodes: Tensor, density: Tensor, y: Tensor) -> Tensor:
    """Of a density that is linear between nodes, (S,), by sums over many points: values (n,) -> (n,)."""
    grid = torch.linspace(nodes[0].item(), nodes[-1].item(), 200_001, dtype=F64)
    place = torch.searchsorted(nodes, grid).clamp(1, len(nodes) - 1)
    left, right = nodes[place - 1], nodes[place]
    t = (grid - left) / (right - left)
    p = (1 - t) * density[place - 1] + t * density[place]
    mass = torch.cumulative_trapezoid(p, grid)
    return mass[(torch.searchsorted(grid, y) - 1).clamp(0, len(mass) - 1)] / mass[-1]


def test_quantiles_of_a_density_that_is_linear_between_nodes():
    nodes = normal(5, 12, dtype=F64).sort(dim=1).values
    density = normal(5, 12, seed=1, dtype=F64).square()
    density[1, 3:6] = 0  # a gap
    y = at_even_levels(nodes, density, 40)
    assert (y.diff(dim=1) >= 0).all()
    levels = (torch.arange(40, dtype=F64) + 0.5) / 40
    for row in range(5):
        torch.testing.assert_close(cdf(nodes[row], density[row], y[row]), levels, rtol=0, atol=2e-4)


def test_without_mass_quantiles_stay_among_the_nodes():
    nodes = torch.linspace(0, 1, 7).expand(2, -1).contiguous()
    y = at_even_levels(nodes, torch.zeros(2, 7), 5)
    assert ((y >= 0) & (y <= 1)).all()


def test_sorted_rows():
    values = normal(6, 9)
    assert torch.equal(sorted_rows(values.clone()), values.sort(dim=1).values)


@pytest.mark.parametrize(("n", "size"), [(0, 4), (1, 4), (4, 4), (9, 4), (3, 0)])
def test_tiles_have_every_row_and_one_size(n, size):
    tiles = row_tiles(n, size)
    assert tiles.shape[1] == max(1, size)
    assert set(tiles.flatten().tolist()) == set(range(max(1, n)))
    assert torch.equal(tiles.flatten()[:n], torch.arange(n))


def test_networks_in_tiles_are_those_of_all_rows_and_rows_keep_their_bits():
    torch.manual_seed(0)
    layer = MemberLinear(3, 5, 4)
    x = normal(3 * 300, 5)
    with torch.no_grad():
        whole = in_tiles(layer, x, 3, 3)
        torch.testing.assert_close(whole, layer(x))
        some = in_tiles(layer, x.view(3, 300, 5)[:, 7:9].flatten(0, 1), 3, 3)
    assert torch.equal(some.view(3, 2, 4), whole.view(3, 300, 4)[:, 7:9])


def test_log_densities_in_single_precision_near_and_far():
    # A narrow component far from the centre of its row keeps its digits.
    q = GaussianMixture(
        torch.zeros(1, 2, dtype=F64),
        torch.tensor([[[0.0], [1e4]]], dtype=F64),
        torch.tensor([[[1.0], [1e-3]]], dtype=F64),
    )
    y = torch.cat([torch.linspace(-5, 5, 21, dtype=F64), 1e4 + 1e-3 * torch.linspace(-5, 5, 21, dtype=F64)])
    y = y[:, None]
    positions = q.at_nodes()
    found = positions.log_prob(*positions.distances_and_rests(y))
    torch.testing.assert_close(found.double(), q.log_prob(y[..., None]), rtol=0, atol=1e-3)
    distances = positions.distances(y)
    there = positions.centre + positions.unit * distances.double()  # exactly
    assert torch.equal(positions.distances(there), distances)
    log_q, levels = positions.log_prob_and_levels(distances)
    torch.testing.assert_close(log_q.double(), q.log_prob(there[..., None]), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(levels.double(), q.levels(there[..., None])[..., 0], rtol=0, atol=1e-5)
