"""Mass that the proposal misses: the stated error includes it, or the row is flagged."""

import math

import pytest
import torch

from benchmarks.trust.cases import CASES, two_modes
from benchmarks.trust.measure import measure
from ebreg.distributions import GaussianMixture
from ebreg.models import ResidualModel
from ebreg.predictive import Accuracy, Unnormalized, normalize
from ebreg.predictive.hidden_modes import ModeSearch
from ebreg.predictive.search_grid import SearchGrid
from ebreg.predictive.source import Source
from ebreg.units import Bounds, Standardizer, Tail

MUST = [case for case in CASES if case.must]
N_SEEDS = {1: 24, 2: 6, 3: 3}  # and 2 for more targets


@pytest.mark.parametrize("case", MUST, ids=lambda case: case.name)
def test_stated_errors_are_not_fooled(case):
    result = measure(case, N_SEEDS.get(case.n_targets, 2))
    assert result.fooled == 0
    assert result.flagged <= 0.25
    assert result.median_stated <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("case", MUST, ids=lambda case: case.name)
def test_stated_errors_are_fooled_by_at_most_one_seed_in_a_hundred(case):
    assert measure(case, 300).fooled <= 0.01


def test_narrow_modes_of_the_proposal_say_how_closely_to_look():
    # A hundred times narrower than the distance of the nodes over the box.
    result = measure(two_modes(1, 0.0004, 2.03), 10)
    assert result.fooled == 0


def test_modes_too_narrow_for_any_number_of_nodes_are_flagged():
    assert measure(two_modes(1, 1e-5, 2.03), 5).flagged == 1


def box(D: int, half: float = 5.0) -> Tail:
    ones = torch.ones(D, dtype=torch.float64)
    return Tail(-half * ones, half * ones, ones)


def target_with(f, D: int, **others) -> Unnormalized:
    zeros = torch.zeros(1, 1, D, dtype=torch.float64)
    q = GaussianMixture(zeros[..., 0], zeros, zeros + 1)
    h = torch.zeros(1, 1, dtype=torch.float64)
    return Unnormalized(f, h, q, box(D), Standardizer.identity(D), Bounds.none(D), **others)


@pytest.mark.parametrize("D", [1, 2, 3, 4])
def test_drops_of_tops(D):
    grid = SearchGrid.over(box(D))
    centre = grid.points[len(grid.points) // 3]
    values = -(grid.points - centre).square().sum(dim=1, keepdim=True)
    drops = grid.drops(values)
    top = drops[:, 0].nonzero()[:, 0]
    assert top.tolist() == [len(grid.points) // 3]
    # A paraboloid falls by the squared distance, and furthest to a corner of the neighbouring cells.
    assert drops[top, 0].item() == pytest.approx(grid.spacing[0].square().sum().item())


@pytest.mark.parametrize("half", [5.0, 60.0])
@pytest.mark.parametrize("D", [1, 2, 3])
def test_cells_of_a_grid_fill_the_box(D, half):
    grid = SearchGrid.over(box(D, half))
    assert grid.spacing.prod(dim=1).sum().item() == pytest.approx((2 * half) ** D)
    assert (grid.points.abs() < half).all()
    is_core = (grid.points.abs() < 4).all(dim=1)
    assert grid.spacing[is_core].std().item() == pytest.approx(0, abs=1e-12)  # equal cells
    assert grid.spacing[is_core].amax() <= 1.34 * 10 / grid.n_each  # hardly coarser for the far ends


def test_many_targets_are_flagged_where_the_proposal_has_modes_that_a_search_would_not_see():
    assert len(SearchGrid.over(box(9)).points) == 1
    assert measure(two_modes(9, 0.3), 3).flagged == 1
    assert measure(two_modes(6, 0.1), 3).flagged == 1


@pytest.mark.parametrize("D", [2, 3])
def test_gaussians_climb_to_a_mode_and_find_its_mass(D):
    place, scale = torch.full((D,), 2.5, dtype=torch.float64), 0.2

    def f(h, y):
        z = (y - place) / scale
        return -0.5 * z.square().sum(dim=-1)

    target = target_with(f, D)
    search = ModeSearch.of(target)
    found = search.missed_by(Source(target), torch.tensor([0.0], dtype=torch.float64))
    assert found.exist.all()
    heaviest = found.log_mass[0].argmax()
    log_mass = D * math.log(scale * math.sqrt(2 * math.pi))
    assert (found.means[0, heaviest] - place).abs().max() < 0.1 * scale
    assert found.log_mass[0, heaviest].item() == pytest.approx(log_mass, abs=0.1)


@pytest.mark.parametrize("D", [1, 2])
def test_a_bounded_ratio_needs_no_search(D):
    calls = []

    def f(h, y):
        return -0.5 * y.square().sum(dim=-1)

    def grid(h, y):
        calls.append(len(y))
        return f(h, y[:, None].expand(-1, len(h), -1))

    log_ratio_bound = torch.tensor([0.5 * D * 1.8378770664093453], dtype=torch.float64)
    p = normalize(target_with(f, D, grid=grid, log_ratio_bound=log_ratio_bound), Accuracy())
    assert (p.log_partition - log_ratio_bound).abs().item() < 0.01
    assert sum(calls) <= 64  # the usual nodes over the box
    if D > 1:
        # A region that every draw misses has about a 2048th of the mass of q.
        assert p.log_partition_error.item() >= 1 / 2048


def test_bounds_of_ratios_hold():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 3, generator=generator), torch.randn(200, 2, generator=generator)
    model = ResidualModel.for_table(x, y, n_members=3).to_float64()
    with torch.no_grad():
        for parameter in model.energy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator).to(parameter))
        target = model._rows(x[:20].double(), Accuracy())
        u = torch.rand(4000, 1, 2, generator=generator, dtype=torch.float64).expand(-1, 20, -1)
        draws = target.proposal.from_uniform(u)
        log_ratio = target.energy(draws) - target.proposal.log_prob(draws)
    assert (log_ratio <= target.log_ratio_bound + 1e-9).all()
    assert (log_ratio.amax(dim=0) > target.log_ratio_bound - 3).all()  # and are not far from it
