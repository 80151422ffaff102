import dataclasses
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from ebreg import datasets
from ebreg.datasets import toy
from ebreg.metrics import nll_on_grid

NAMES = sorted(datasets.TASKS)
SPLITS = ("train", "val", "test")
BRANDO_ZONE_STARTS = torch.tensor([800, 1800, 2300], dtype=torch.float64)


@pytest.fixture(scope="module")
def tasks():
    return {name: make() for name, make in datasets.TASKS.items()}


def split(task, name):
    return getattr(task, f"x_{name}"), getattr(task, f"y_{name}")


def graded_cells(n):
    """Midpoints and widths of n cells over [-12.5, 13.5], fine beside 0.5, where brando has a pole."""
    edges = 0.5 + torch.linspace(-(13 ** (1 / 3)), 13 ** (1 / 3), n + 1, dtype=torch.float64) ** 3
    return (edges[1:] + edges[:-1])[:, None] / 2, edges.diff()[:, None]


def probability_integral_transform(task, x, y):
    """P(Y <= y | x) by summing the density below y, shape (n,)."""
    cells, widths = graded_cells(10_000)
    return torch.where(cells <= y.T, task.log_density(x.T, cells).exp() * widths, 0.0).sum(0)


def brando_zone(x):
    return torch.bucketize(x * 3799, BRANDO_ZONE_STARTS - 0.5)


@pytest.mark.parametrize("name", NAMES)
class TestEveryTask:
    def test_splits_are_float64_columns_inside_the_ranges(self, tasks, name):
        task = tasks[name]
        assert task.name == name
        for x, y in (split(task, s) for s in SPLITS):
            if x is None:
                assert y is None
                continue
            assert x.shape == y.shape == (len(x), 1)
            assert x.dtype == y.dtype == torch.float64
            assert task.x_range[0] <= x.min() <= x.max() <= task.x_range[1]
            assert task.y_range[0] <= y.min() <= y.max() <= task.y_range[1]
            assert task.log_density(x, y).isfinite().all()

    def test_density_integrates_to_one(self, tasks, name):
        task = tasks[name]
        x = torch.linspace(*task.x_range, 23, dtype=torch.float64)[None]
        cells, widths = graded_cells(100_000)
        mass = (task.log_density(x, cells).exp() * widths).sum(0)
        torch.testing.assert_close(mass, torch.ones_like(mass), rtol=0, atol=1e-3)

    def test_points_agree_with_the_density(self, tasks, name):
        task = tasks[name]
        u = probability_integral_transform(task, task.x_train[:800], task.y_train[:800])
        assert stats.kstest(u.numpy(), "uniform").pvalue > 0.01

    def test_density_broadcasts_and_casts(self, tasks, name):
        task = tasks[name]
        x, y = task.x_grid()[::100], task.y_grid()[::200]
        grid = task.log_density(x.T, y)
        assert grid.shape == (len(y), len(x))
        single = torch.stack([task.log_density(x[:, 0], value) for value in y])
        torch.testing.assert_close(grid, single, rtol=0, atol=0)
        assert task.log_density(x.float(), x.new_zeros(1).float()).dtype == torch.float64

    def test_density_refuses_inputs_outside_and_keeps_nan_targets(self, tasks, name):
        task = tasks[name]
        y = torch.tensor([float("nan"), 1e9])
        log_p = task.log_density(torch.tensor(task.x_range[1]), y)
        assert log_p[0].isnan()
        assert log_p[1] < -1000
        for bad in (task.x_range[1] + 0.1, float("nan")):
            with pytest.raises(ValueError, match=r"x must lie in .* got"):
                task.log_density(torch.tensor([task.x_range[0], bad]), torch.zeros(2))

    def test_grids(self, tasks, name):
        task = tasks[name]
        y = task.y_grid()
        assert task.x_grid().shape == (task.n_x, 1)
        assert y.shape == (task.n_y, 1)
        assert (y[0].item(), y[-1].item()) == task.y_range
        torch.testing.assert_close(y.diff(dim=0), torch.full_like(y[1:], task.y_spacing))

    def test_tasks_are_frozen_picklable_and_repeatable(self, tasks, name):
        task = tasks[name]
        with pytest.raises(dataclasses.FrozenInstanceError):
            task.name = "other"
        copy = pickle.loads(pickle.dumps(task))
        assert torch.equal(
            copy.log_density(task.x_train, task.y_train), task.log_density(task.x_train, task.y_train)
        )
        assert torch.equal(datasets.TASKS[name]().y_train, task.y_train)

    def test_global_random_state_is_left_alone(self, name):
        before_numpy, before_torch = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        datasets.TASKS[name]()
        np.testing.assert_equal(np.random.get_state(), before_numpy)  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), before_torch)


def test_exported_tasks_are_all_registered():
    made = {name for name in datasets.__all__ if callable(getattr(toy, name)) and name != "ToyTask"}
    assert made == set(datasets.TASKS)


class TestGustafsson:
    def test_points_are_pinned(self, tasks):
        task = tasks["gustafsson"]
        assert task.x_train.shape == (2000, 1)
        assert (task.n_x, task.n_y, task.y_range) == (2048, 2048, (-3.0, 3.0))
        expected_x = [0.2928810235639485, 1.2911361982345166, 0.616580256429863]
        expected_y = [0.14940231273150673, -0.3521269103232041, -0.08989566052187381]
        assert task.x_train[:3, 0].tolist() == pytest.approx(expected_x, abs=1e-12)
        assert task.y_train[:3, 0].tolist() == pytest.approx(expected_y, abs=1e-12)
        assert task.y_train.sum().item() == pytest.approx(-362.6901352340269, abs=1e-9)

    def test_density_matches_scipy(self, tasks):
        x, y = torch.tensor([[-2.0], [-0.3], [0.0], [1.7]]), torch.linspace(-1.5, 1.5, 31).double()
        log_p = tasks["gustafsson"].log_density(x, y)
        for row, value in zip(log_p, x[:, 0].double().numpy(), strict=True):
            if value < 0:
                parts = [stats.norm(s * np.sin(value), 0.075).pdf(y) for s in (1, -1)]
                expected = 0.8 * parts[0] + 0.2 * parts[1]
            else:
                expected = stats.lognorm(0.25, loc=-1).pdf(y)
            np.testing.assert_allclose(row.exp().numpy(), expected, rtol=1e-9, atol=1e-280)

    def test_support_of_the_skewed_half_is_open_at_minus_one(self, tasks):
        log_p = tasks["gustafsson"].log_density(torch.tensor(1.0), torch.tensor([-2.0, -1.0, -0.9]).double())
        assert log_p.isneginf().tolist() == [True, True, False]

    def test_many_points_follow_the_law(self):
        task = datasets.gustafsson(20_000, seed=3)
        x, y = task.x_train[:, 0].numpy(), task.y_train[:, 0].numpy()
        assert stats.kstest(x, stats.uniform(-3, 6).cdf).pvalue > 0.01
        assert stats.kstest(y[x >= 0], stats.lognorm(0.25, loc=-1).cdf).pvalue > 0.01
        left = x < -0.5  # where the branches are apart
        upper = (y[left] > 0) & (x[left] > -2.5)
        assert upper.sum() / (x[left] > -2.5).sum() == pytest.approx(0.2, abs=0.02)

    def test_seed_and_size(self):
        assert datasets.gustafsson(1).x_train.shape == (1, 1)
        assert not torch.equal(datasets.gustafsson(9, 1).y_train, datasets.gustafsson(9, 2).y_train)

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"n": 0}, ValueError, "n must be at least 1, got 0"),
            ({"n": 2.5}, TypeError, "n must be a whole number, got 2.5"),
            ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
            ({"seed": 2**32}, ValueError, r"seed must be at most 2\*\*32 - 1, got 4294967296"),
        ],
    )
    def test_bad_arguments(self, arguments, error, message):
        with pytest.raises(error, match=message):
            datasets.gustafsson(**arguments)

    def test_truth_is_normalised_on_the_papers_grid(self, tasks):
        task = tasks["gustafsson"]
        x, y = task.x_train[:200], task.y_train[:200]
        log_p = task.log_density(x, y)[:, 0]
        on_grid = nll_on_grid(log_p, task.log_density(x.T, task.y_grid()), task.y_spacing)
        torch.testing.assert_close(on_grid, -log_p, rtol=0, atol=1e-3)


class TestBrando:
    @pytest.mark.parametrize(
        ("name", "n", "first_x", "first_y", "sum_y", "sum_y2"),
        [
            ("train", 1710, 0.7396683337720453, 8.21264873864137, 1182.1253509246308, 29110.06649470786),
            ("val", 190, 0.9399842063700974, 3.865136317789135, 84.53003096666362, 3376.1977967452585),
            ("test", 1900, 0.413266649118189, -4.943589944276089, 1594.1283364740461, 32643.66114243943),
        ],
    )
    def test_points_are_the_official_ones(self, tasks, name, n, first_x, first_y, sum_y, sum_y2):
        x, y = split(tasks["brando"], name)
        assert x.shape == (n, 1)
        assert x[0].item() == pytest.approx(first_x, abs=1e-12)
        assert y[0].item() == pytest.approx(first_y, abs=1e-12)
        assert y.sum().item() == pytest.approx(sum_y, abs=1e-8)
        assert y.square().sum().item() == pytest.approx(sum_y2, abs=1e-8)

    def test_splits_share_no_input_and_cover_the_line(self, tasks):
        x = torch.cat([split(tasks["brando"], s)[0] for s in SPLITS])[:, 0].sort().values
        torch.testing.assert_close(x, torch.arange(3800).double() / 3799, rtol=0, atol=1e-15)

    def test_nll_of_the_truth(self, tasks):
        task = tasks["brando"]
        nll = -task.log_density(task.x_test, task.y_test)
        assert nll.mean().item() == pytest.approx(1.239, abs=5e-4)
        zones = [nll[brando_zone(task.x_test) == k].mean().item() for k in range(4)]
        assert zones == pytest.approx([1.260, 0.694, 1.909, 1.362], abs=5e-4)

    @pytest.mark.parametrize("zone", range(4))
    def test_points_of_each_zone_agree_with_the_density(self, tasks, zone):
        task = tasks["brando"]
        here = (brando_zone(task.x_test) == zone)[:, 0]
        u = probability_integral_transform(task, task.x_test[here], task.y_test[here])
        assert stats.kstest(u.numpy(), "uniform").pvalue > 0.01

    def test_densities_in_closed_form(self, tasks):
        middle_of_fan = (1800 + 2299) / 2 / 3799
        x = torch.tensor([0.1, 0.1, 800 / 3799, middle_of_fan, 0.8, 0.8, 0.8], dtype=torch.float64)
        y = torch.tensor([5.5, 1.75, 1.0, 0.0, 8.25, 2.0, -4.0], dtype=torch.float64)
        # Beta at u = 1 and 1/4; the mode of N(1, 1/4); a fan of width 7.5; the three slabs.
        expected = [0.1, 0.2, 4 / np.sqrt(2 * np.pi), 1 / 7.5, 2 / 3, 1 / 9, 2 / 9]
        assert tasks["brando"].log_density(x, y).exp().tolist() == pytest.approx(expected, rel=1e-12)

    def test_outside_the_support(self, tasks):
        x = torch.tensor([0.1, 0.1, 0.1, 0.5, 0.8, 0.8], dtype=torch.float64)
        y = torch.tensor([0.4, 0.5, 5.6, 9.0, 5.0, -2.0], dtype=torch.float64)
        assert tasks["brando"].log_density(x, y).isneginf().all()

    def test_vanishing_scale_gives_no_nan(self, tasks):
        t = np.arccos(2 / 3)
        near = (800 + 999 * t / 5) / 3799 + np.arange(-4, 5) * 1e-16
        log_p = tasks["brando"].log_density(torch.from_numpy(near), torch.tensor([[0.0], [1e-3], [-1.0]]))
        assert not log_p.isnan().any()
        assert not log_p.isposinf().any()
