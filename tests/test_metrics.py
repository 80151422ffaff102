import math

import pytest
import torch

from ebreg import metrics

GRID = torch.linspace(-12, 12, 4001, dtype=torch.float64)
SPACING = 24 / 4000


def gaussian(mean, scale):
    """Unnormalised log density on the grid, one column per mean."""
    return -0.5 * ((GRID[:, None] - torch.as_tensor(mean)) / torch.as_tensor(scale)).square()


def random_logs(n=7, batch=3, seed=0):
    return torch.randn(n, batch, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class TestLogNormalize:
    def test_gaussian_in_closed_form(self):
        scale = torch.tensor([0.3, 1.0, 1.5])
        log_p = metrics.log_normalize_on_grid(gaussian([0.0, 1.0, -1.0], scale) + 7.0, SPACING)
        expected = gaussian([0.0, 1.0, -1.0], scale) - scale.log() - 0.5 * math.log(2 * math.pi)
        torch.testing.assert_close(log_p, expected, rtol=0, atol=1e-7)

    @pytest.mark.parametrize("dim", [0, 1, 2, -1])
    def test_mass_is_one_along_dim(self, dim):
        log_f = torch.randn(4, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        mass = metrics.log_normalize_on_grid(log_f, 0.25, dim).exp().sum(dim) * 0.25
        torch.testing.assert_close(mass, torch.ones_like(mass))

    def test_huge_values_stay_finite_in_float32(self):
        log_f = torch.tensor([[1e4], [1e4], [-1e4]])
        expected = torch.tensor([[0.0], [0.0], [-2e4]]) - math.log(2)
        torch.testing.assert_close(metrics.log_normalize_on_grid(log_f, 1.0), expected)

    @pytest.mark.parametrize("spacing", [0.0, -1.0, math.inf, math.nan])
    def test_bad_spacing(self, spacing):
        with pytest.raises(ValueError, match="spacing must be a finite number above 0"):
            metrics.log_normalize_on_grid(random_logs(), spacing)


class TestKL:
    def test_two_gaussians_in_closed_form(self):
        m1, s1 = torch.tensor([0.0, 1.0, -0.5]), torch.tensor([1.0, 0.4, 0.8])
        m2, s2 = torch.tensor([0.7, 1.0, 1.0]), torch.tensor([1.0, 0.9, 0.5])
        kl = metrics.kl_on_grid(gaussian(m1, s1), gaussian(m2, s2))
        expected = (s2 / s1).log() + (s1.square() + (m1 - m2).square()) / (2 * s2.square()) - 0.5
        torch.testing.assert_close(kl, expected.double(), rtol=1e-6, atol=1e-7)

    def test_direction_is_from_truth_to_model(self):
        wide, narrow = gaussian([0.0], [2.0]), gaussian([0.0], [0.5])
        assert metrics.kl_on_grid(wide, narrow) > 5 > 1 > metrics.kl_on_grid(narrow, wide)

    def test_a_constant_per_column_changes_nothing(self):
        log_p, log_f, c = random_logs(seed=1), random_logs(seed=2), torch.tensor([-900.0, 0.0, 900.0])
        kl = metrics.kl_on_grid(log_p, log_f)
        torch.testing.assert_close(metrics.kl_on_grid(log_p + c, log_f - 2 * c), kl)
        assert (kl > 0).all()
        torch.testing.assert_close(
            metrics.kl_on_grid(log_p, log_p + c), torch.zeros(3).double(), rtol=0, atol=1e-12
        )

    @pytest.mark.parametrize("floor", [0.0, 1e-30, 0.01])
    def test_meets_a_slow_reference(self, floor):
        log_p, log_f = random_logs(seed=1), random_logs(seed=2)
        for b, kl in enumerate(metrics.kl_on_grid(log_p, log_f, floor=floor).tolist()):
            p, f = log_p[:, b].exp().tolist(), log_f[:, b].exp().tolist()
            expected = 0.0
            for p_g, f_g in zip(p, f, strict=True):
                p_g, f_g = p_g / sum(p) + floor, f_g / sum(f)
                expected += p_g * math.log(p_g / f_g)
            assert kl == pytest.approx(expected, rel=1e-12)

    def test_zero_truth_adds_nothing_even_where_the_model_is_zero(self):
        log_p, log_f = random_logs(seed=1), random_logs(seed=2)
        zeros = torch.full((2, 3), -torch.inf, dtype=torch.float64)
        padded = metrics.kl_on_grid(torch.cat([log_p, zeros]), torch.cat([log_f, zeros]))
        torch.testing.assert_close(padded, metrics.kl_on_grid(log_p, log_f))

    def test_zero_model_under_positive_truth_is_infinite(self):
        log_p, log_f = random_logs(), random_logs()
        log_f[0, 1] = -torch.inf
        assert metrics.kl_on_grid(log_p, log_f).isposinf().tolist() == [False, True, False]

    def test_the_authors_floor_weighs_nothing_where_the_truth_is_zero(self):
        log_p, log_f = gaussian([0.0], [0.1]), gaussian([0.5], [1.0])
        log_p[GRID.abs() > 3] = -torch.inf
        exact, floored = (metrics.kl_on_grid(log_p, log_f, floor=floor) for floor in (0.0, 1e-30))
        torch.testing.assert_close(floored, exact, rtol=0, atol=1e-12)

    def test_a_column_without_any_truth_is_nan(self):
        log_p = random_logs()
        log_p[:, 2] = -torch.inf
        assert metrics.kl_on_grid(log_p, random_logs(seed=2)).isnan().tolist() == [False, False, True]

    def test_dim(self):
        log_p, log_f = random_logs(seed=1), random_logs(seed=2)
        torch.testing.assert_close(
            metrics.kl_on_grid(log_p.T, log_f.T, dim=1), metrics.kl_on_grid(log_p, log_f)
        )

    def test_gradients(self):
        log_p, log_f = random_logs(4, 2, seed=1), random_logs(4, 2, seed=2).requires_grad_()
        log_p[0] = -torch.inf
        assert torch.autograd.gradcheck(lambda f: metrics.kl_on_grid(log_p, f), (log_f,))
        # The minimum over the model is the truth, so the gradient is softmax(f) - p.
        (gradient,) = torch.autograd.grad(metrics.kl_on_grid(log_p, log_f).sum(), log_f)
        torch.testing.assert_close(gradient, log_f.softmax(0) - log_p.softmax(0))

    @pytest.mark.parametrize("floor", [-1e-30, 1.0, math.nan])
    def test_bad_floor(self, floor):
        with pytest.raises(ValueError, match="floor must be a probability"):
            metrics.kl_on_grid(random_logs(), random_logs(), floor=floor)

    def test_bad_shapes(self):
        with pytest.raises(ValueError, match=r"log_f must have shape \(7, 3\), got \(7, 1\)"):
            metrics.kl_on_grid(random_logs(), random_logs(batch=1))
        with pytest.raises(ValueError, match="dim must be a dimension of log_p"):
            metrics.kl_on_grid(random_logs(), random_logs(), dim=2)
        with pytest.raises(ValueError, match="at least 1 grid point"):
            metrics.kl_on_grid(random_logs(0), random_logs(0))
        with pytest.raises(TypeError, match=r"log_p must be a torch\.Tensor, got list"):
            metrics.kl_on_grid([[0.0]], random_logs())


class TestNLL:
    def test_gaussian_in_closed_form(self):
        mean, scale = torch.tensor([0.0, 1.0, -2.0]), torch.tensor([1.0, 0.2, 0.7])
        y, c = torch.tensor([0.5, 1.3, -4.0]).double(), torch.tensor([5.0, -700.0, 700.0])
        f_y = -0.5 * ((y - mean) / scale).square() + c
        nll = metrics.nll_on_grid(f_y, gaussian(mean, scale) + c, SPACING)
        torch.testing.assert_close(
            nll, -torch.distributions.Normal(mean.double(), scale.double()).log_prob(y)
        )

    def test_agrees_with_the_normalised_grid(self):
        log_f = random_logs()
        log_p = metrics.log_normalize_on_grid(log_f, 0.1)
        torch.testing.assert_close(metrics.nll_on_grid(log_f[2], log_f, 0.1), -log_p[2])

    def test_a_large_offset_costs_no_digits_in_float32(self):
        f = torch.tensor([[0.0], [0.5]])
        small, large = (metrics.nll_on_grid(f[0] + c, f + c, 1.0) for c in (0.0, 1e5))
        torch.testing.assert_close(large, small)

    def test_gradients_and_a_target_without_density(self):
        f_y, f_grid = random_logs(1, seed=1)[0].requires_grad_(), random_logs(seed=2).requires_grad_()
        assert torch.autograd.gradcheck(lambda a, b: metrics.nll_on_grid(a, b, 0.3), (f_y, f_grid))
        assert metrics.nll_on_grid(torch.full_like(f_y, -torch.inf), f_grid, 0.3).isposinf().all()

    def test_units(self):
        log_f = random_logs()
        narrow, wide = (metrics.nll_on_grid(log_f[0], log_f, spacing) for spacing in (0.1, 10.0))
        torch.testing.assert_close(wide - narrow, torch.full((3,), math.log(100.0), dtype=torch.float64))

    def test_bad_arguments(self):
        log_f = random_logs()
        with pytest.raises(ValueError, match=r"f_y must have shape \(3,\), got \(3, 1\)"):
            metrics.nll_on_grid(log_f[0][:, None], log_f, 1.0)
        with pytest.raises(ValueError, match=r"f_grid must have shape \(G, B\), got \(7,\)"):
            metrics.nll_on_grid(log_f[0], log_f[:, 0], 1.0)
        with pytest.raises(ValueError, match="at least 1 grid point"):
            metrics.nll_on_grid(log_f[0], log_f[:0], 1.0)
        with pytest.raises(ValueError, match="spacing must be a finite number above 0, got 0"):
            metrics.nll_on_grid(log_f[0], log_f, 0.0)
