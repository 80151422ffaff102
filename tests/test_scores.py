import math

import numpy as np
import pytest
import scoringrules
import torch
from scipy import integrate, stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import cross_val_score
from torch import Tensor

from ebreg import metrics
from ebreg.distributions import GaussianMixture
from ebreg.models import MixtureModel
from ebreg.units import Tail
from support import nodes_of, normal, prediction, rng

SQRT_PI = math.sqrt(math.pi)


def mixture(weights, means, scales, B: int) -> GaussianMixture:
    """The same mixture of one target in each of B rows."""
    logits = torch.tensor(weights, dtype=torch.float64).log().expand(B, -1)
    means, scales = (torch.tensor(v, dtype=torch.float64).expand(B, -1)[..., None] for v in (means, scales))
    return GaussianMixture(logits, means, scales)


def random_mixture(B: int, K: int = 3, D: int = 1, seed: int = 0) -> GaussianMixture:
    scales = normal(B, K, D, seed=seed + 2).abs() + 0.1
    return GaussianMixture(normal(B, K, seed=seed), 2 * normal(B, K, D, seed=seed + 1), scales)


class Chunked:
    """What estimators return, in its essentials: numpy outside, torch inside, a few rows at a time."""

    def __init__(self, whole: GaussianMixture, size: int = 7):
        self.whole, self.size, self.n_targets = whole, size, whole.n_targets

    def __len__(self):
        return len(self.whole.logits)

    def apply(self, fn, *arrays):
        parts = []
        for start in range(0, len(self), self.size):
            rows = slice(start, start + self.size)
            p = type(self.whole)(self.whole.logits[rows], self.whole.means[rows], self.whole.scales[rows])
            tensors = [
                torch.from_numpy(np.array(a[rows], dtype=np.float64)).reshape(-1, self.n_targets)
                for a in arrays
            ]
            parts.append(fn(p, *tensors).numpy())
        return np.concatenate(parts)


class Undefined(GaussianMixture):
    """Answers NaN in its second row."""

    def log_prob(self, value):
        return super().log_prob(value).index_fill(-1, torch.tensor([1]), math.nan)


SCORES = {
    "nll": metrics.nll,
    "crps": metrics.crps,
    "pinball": lambda p, y: metrics.pinball(p, y, 0.3),
    "interval_score": metrics.interval_score,
    "energy_score": lambda p, y: metrics.energy_score(p, y, n_draws=64),
    "rounded_nll": lambda p, y: metrics.rounded_nll(p, y, 0.1),
    "pit": metrics.pit,
}
ONE_TARGET_ONLY = ("crps", "pit")
SHARES = {
    "coverage": metrics.coverage,
    "calibration_error": metrics.calibration_error,
    "calibration_curve": metrics.calibration_curve,
}


class TestBothKinds:
    """The torch kind and the numpy kind give the same answers, each in its own way."""

    @pytest.mark.parametrize("name", [name for name in SCORES if name != "energy_score"])
    def test_chunks_change_nothing(self, name):
        p, y = random_mixture(20), normal(20, 1, seed=9)
        whole, chunked = SCORES[name](p, y), SCORES[name](Chunked(p), y[:, 0].numpy())
        assert isinstance(whole, Tensor)
        assert isinstance(chunked, np.ndarray)
        assert whole.dtype == torch.float64
        assert chunked.dtype == np.float64
        np.testing.assert_allclose(chunked, whole.numpy(), rtol=1e-12)

    def test_draws_of_chunks_are_independent(self):
        # Twice the same rows: the same stream of random numbers in both chunks would give the same errors.
        p = mixture([1.0], [0.0], [1.0], B=2)
        first, second = metrics.energy_score(Chunked(p, size=1), np.zeros(2), n_draws=64)
        assert first != second
        again = metrics.energy_score(Chunked(p, size=1), np.zeros(2), n_draws=64)
        assert again.tolist() == [first, second]
        assert metrics.energy_score(Chunked(p, size=1), np.zeros(2), n_draws=64, seed=1)[0] != first

    @pytest.mark.parametrize("name", SCORES)
    def test_targets_of_any_kind(self, name):
        p = Chunked(random_mixture(4))
        y = np.array([0.5, -1.0, 2.0, 0.0])
        frozen, table = y.copy(), y[:, None].copy()
        frozen.setflags(write=False)
        expected = SCORES[name](p, y)
        for other in (y.tolist(), table, frozen, y[::-1].copy()[::-1], torch.from_numpy(y), y.astype(object)):
            assert SCORES[name](p, other).tolist() == expected.tolist()
        assert y.tolist() == [0.5, -1.0, 2.0, 0.0]

    def test_a_float32_model_is_scored_in_float64(self):
        p = random_mixture(5)
        single = GaussianMixture(p.logits.float(), p.means.float(), p.scales.float())
        y = normal(5, 1, seed=3)
        for name, score in SCORES.items():
            value = score(single, y)
            assert value.dtype == torch.float64
            if name != "energy_score":  # whose draws differ
                torch.testing.assert_close(value, score(single.double(), y), rtol=1e-5, atol=1e-5)

    def test_values_are_not_differentiated(self):
        p = GaussianMixture(normal(3, 2).requires_grad_(), normal(3, 2, 1), torch.ones(3, 2, 1).double())
        assert not any(score(p, normal(3, 1)).requires_grad for score in SCORES.values())

    def test_the_prediction_of_a_model(self):
        x, y = normal(40, 2, seed=1), normal(40, 1, seed=2)
        model = MixtureModel.for_table(x, y, n_components=2, width=4)
        p, whole = prediction(model, x, drop_target_axis=True, chunk=16), model.predictive(x)
        for name, score in SCORES.items():
            values = score(p, y[:, 0].numpy())
            assert values.shape == (40,)
            if name != "energy_score":
                np.testing.assert_allclose(values, score(whole, y).numpy(), rtol=1e-6)
        assert metrics.coverage(p, y.numpy(), 0.8) == metrics.coverage(whole, y, 0.8)

    def test_shares_are_numbers(self):
        p, y = random_mixture(30), normal(30, 1, seed=9)
        for dist, targets in ((p, y), (Chunked(p), y[:, 0].numpy())):
            assert type(metrics.coverage(dist, targets)) is float
            assert type(metrics.coverage(dist, targets, region="highest-density")) is float
            assert type(metrics.calibration_error(dist, targets)) is float
        kinds = [[type(part) for part in metrics.calibration_curve(d, y)] for d in (p, Chunked(p))]
        assert kinds == [[Tensor, Tensor], [np.ndarray, np.ndarray]]


class TestNLL:
    def test_mixture_of_several_targets(self):
        p, y = random_mixture(6, D=2), normal(6, 2, seed=4)
        joint = p.logits + torch.distributions.Normal(p.means, p.scales).log_prob(y[:, None]).sum(dim=-1)
        torch.testing.assert_close(metrics.nll(p, y), -joint.logsumexp(dim=1))

    def test_a_target_without_density_is_infinite(self):
        class Half(GaussianMixture):
            def log_prob(self, value):
                return super().log_prob(value).masked_fill(value[..., 0] < 0, -math.inf)

        p = Half(torch.zeros(2, 1), torch.zeros(2, 1, 1), torch.ones(2, 1, 1))
        assert metrics.nll(p, torch.tensor([[-1.0], [1.0]])).isposinf().tolist() == [True, False]


HARD = {
    "one": ([1.0], [0.0], [1.0]),
    "two hills": ([0.7, 0.3], [-2.0, 1.5], [0.3, 0.6]),
    "far apart": ([0.5, 0.5], [-1e5, 1e5], [0.1, 0.1]),
    "a light one far away": ([0.999, 0.001], [0.0, 1000.0], [0.1, 1.0]),
    "a needle in a hill": ([0.5, 0.5], [0.0, 0.0], [1e-6, 1.0]),
    "a heavy needle": ([0.9, 0.1], [0.0, 3.0], [1e-6, 1.0]),
    "far from zero": ([0.5, 0.5], [1e6, 1e6 + 1], [0.1, 0.2]),
}


class TestCRPS:
    def test_gaussian_in_closed_form(self):
        z = torch.linspace(-12, 12, 25, dtype=torch.float64)
        scale = torch.logspace(-6, 6, 25, dtype=torch.float64)
        p = GaussianMixture(torch.zeros(25, 1).double(), 5 * scale[:, None, None], scale[:, None, None])
        expected = (
            z * (2 * torch.special.ndtr(z) - 1) + math.sqrt(2 / math.pi) * (-z * z / 2).exp() - 1 / SQRT_PI
        )
        torch.testing.assert_close(
            metrics.crps(p, (5 + z[:, None]) * scale[:, None]), scale * expected, rtol=5e-6, atol=0
        )

    @pytest.mark.parametrize("name", HARD)
    def test_mixtures_in_closed_form(self, name):
        weights, means, scales = HARD[name]
        places = (-30.0, -3.0, -1.0, -0.1, 0.0, 0.33, 2.0, 10.0)
        y = np.array(
            [m + s * z for m, s in zip(means, scales, strict=True) for z in places] + [np.dot(weights, means)]
        )
        rows = (np.tile(part, (len(y), 1)) for part in (means, scales, weights))
        expected = scoringrules.crps_mixnorm(y, *rows, backend="numpy")
        np.testing.assert_allclose(
            metrics.crps(Chunked(mixture(*HARD[name], len(y))), y), expected, rtol=5e-5
        )

    def test_quadrature_of_heavy_tails_in_the_users_units(self):
        # Student's t with 5 degrees of freedom as an energy, 3 + 2 t; its CRPS by adaptive quadrature.
        t, B = stats.t(5), 4
        proposal = mixture([0.5, 0.5], [0.0, 0.0], [1.0, 3.0], B)
        tail = Tail(*(torch.tensor([v], dtype=torch.float64) for v in (-12.0, 12.0, 4.0)))
        units = torch.tensor([3.0]).double(), torch.tensor([2.0]).double()
        p = nodes_of(lambda y: -3 * torch.log1p(y[..., 0] ** 2 / 5), proposal, tail, *units)
        y = np.array([0.0, 0.3, -2.0, 8.0])
        expected = [
            integrate.quad(lambda z: t.cdf(z) ** 2, -np.inf, y_i)[0]
            + integrate.quad(lambda z: t.sf(z) ** 2, y_i, np.inf)[0]
            for y_i in y
        ]
        crps = metrics.crps(p, torch.from_numpy(3 + 2 * y))
        np.testing.assert_allclose(crps.numpy(), 2 * np.array(expected), rtol=1e-3)

    def test_quadrature_meets_its_own_distribution_function(self):
        p = nodes_of(
            lambda y: -(y[..., 0].abs() ** 3) + torch.sin(5 * y[..., 0]), mixture([1.0], [0.0], [1.0], 3)
        )
        y = torch.tensor([[-0.7], [0.1], [3.0]], dtype=torch.float64)
        z = torch.linspace(-6, 6, 240_001, dtype=torch.float64)[:, None, None].expand(-1, 3, -1)
        gap = p.cdf(z) - (z[..., 0] >= y[:, 0]).double()
        torch.testing.assert_close(
            metrics.crps(p, y), torch.trapezoid(gap**2, dx=12 / 240_000, dim=0), rtol=1e-4, atol=0
        )

    def test_is_twice_the_integral_of_the_quantile_loss(self):
        p, y = random_mixture(8), normal(8, 1, seed=5)
        q, w = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(400))
        integral = (metrics.pinball(p, y, (q + 1) / 2) * w / 2).sum(dim=1)
        torch.testing.assert_close(metrics.crps(p, y), 2 * integral, rtol=1e-4, atol=0)

    def test_a_row_does_not_depend_on_its_neighbours(self):
        p, y = random_mixture(9), normal(9, 1, seed=5)
        alone = metrics.crps(Chunked(p, size=1), y)
        np.testing.assert_allclose(metrics.crps(p, y).numpy(), alone, rtol=1e-13)

    def test_units(self):
        p, y = random_mixture(9), normal(9, 1, seed=5)
        shift, scale = torch.tensor([7.0]).double(), torch.tensor([1e-3]).double()
        torch.testing.assert_close(
            metrics.crps(p.rescaled(shift, scale), shift + scale * y),
            1e-3 * metrics.crps(p, y),
            rtol=1e-6,
            atol=0,
        )


class TestEnergyScore:
    def test_is_the_crps_of_one_target(self):
        p, y = random_mixture(400), normal(400, 1, seed=5)
        error = metrics.energy_score(p, y, n_draws=256) - metrics.crps(p, y)
        assert abs(error.mean()) < 4 * error.std() / math.sqrt(400)
        assert error.std() < 0.1

    def test_gaussian_plane_in_closed_form(self):
        B, scale = 400, 3.0
        p = GaussianMixture(
            *(v.double() for v in (torch.zeros(B, 1), torch.ones(B, 1, 2), torch.ones(B, 1, 2) * 3))
        )
        values = metrics.energy_score(p, torch.ones(B, 2), n_draws=128)
        expected = scale * math.sqrt(math.pi / 2) * (1 - math.sqrt(0.5))
        assert abs(values.mean() - expected) < 4 * values.std() / math.sqrt(B)

    def test_two_draws_are_enough_to_be_unbiased(self):
        B = 40_000
        values = metrics.energy_score(mixture([1.0], [0.0], [1.0], B), torch.ones(B, 1), n_draws=2)
        expected = scoringrules.crps_normal(1.0, 0.0, 1.0, backend="numpy")
        assert abs(values.mean() - expected) < 4 * values.std() / math.sqrt(B)

    def test_meets_the_unbiased_estimate_of_an_ensemble(self):
        p, y = random_mixture(5, D=3), normal(5, 3, seed=5)
        draws = p.sample(100, generator=rng(4)).movedim(0, 1).numpy()
        expected = scoringrules.es_ensemble(y.numpy(), draws, estimator="fair", backend="numpy")
        np.testing.assert_allclose(
            metrics.energy_score(p, y, n_draws=100, seed=4).numpy(), expected, rtol=1e-10
        )

    def test_scale(self):
        p, y = random_mixture(5, D=2), normal(5, 2, seed=5)
        shift, scale = torch.zeros(2).double(), torch.tensor([10.0, 1e-3]).double()
        plain = metrics.energy_score(p, y)
        wide = p.rescaled(shift, scale)
        torch.testing.assert_close(metrics.energy_score(wide, scale * y, scale=scale), plain)
        torch.testing.assert_close(metrics.energy_score(p, y, scale=2.0), plain / 2)
        chunked = metrics.energy_score(Chunked(wide, size=5), (scale * y).numpy(), scale=[10.0, 1e-3])
        np.testing.assert_allclose(chunked, plain.numpy())
        for bad in (0.0, [1.0, -1.0], math.nan, [[1.0, 1.0]]):
            with pytest.raises(ValueError, match="scale must be one finite number above 0"):
                metrics.energy_score(p, y, scale=bad)
        with pytest.raises(ValueError, match="one for each of the 2 targets, got 3"):
            metrics.energy_score(p, y, scale=[1.0, 1.0, 1.0])


class TestQuantileScores:
    def test_meet_a_reference(self):
        p, y = random_mixture(6), normal(6, 1, seed=5)
        q = [0.1, 0.5, 0.9]
        x = p.icdf(torch.tensor(q, dtype=torch.float64))[..., 0].T
        loss = metrics.pinball(p, y, q)
        assert loss.shape == (6, 3)
        expected = scoringrules.quantile_score(y.numpy(), x.numpy(), np.array(q), backend="numpy")
        np.testing.assert_allclose(loss.numpy(), expected)
        assert metrics.pinball(p, y, 0.5).tolist() == loss[:, 1].tolist()
        assert metrics.pinball(p, y, [0.5]).shape == (6, 1)
        expected = scoringrules.interval_score(y[:, 0].numpy(), x[:, 0].numpy(), x[:, 2].numpy(), 0.2)
        np.testing.assert_allclose(metrics.interval_score(p, y, coverage=0.8).numpy(), expected)

    def test_interval_score_is_two_quantile_losses(self):
        p, y = random_mixture(50), 3 * normal(50, 1, seed=5)
        both = metrics.pinball(p, y, [0.05, 0.95]).sum(dim=1) * 2 / 0.1
        torch.testing.assert_close(metrics.interval_score(p, y), both)

    def test_several_targets_have_a_loss_each(self):
        p, y = random_mixture(6, D=2), normal(6, 2, seed=5)
        first, second = (
            GaussianMixture(p.logits, p.means[..., d : d + 1], p.scales[..., d : d + 1]) for d in (0, 1)
        )
        several = metrics.pinball(Chunked(p, size=4), y, [0.2, 0.5, 0.7])
        assert several.shape == (6, 3, 2)
        assert metrics.pinball(p, y, 0.2).shape == (6, 2)
        for d, q in ((0, first), (1, second)):
            np.testing.assert_allclose(several[..., d], metrics.pinball(q, y[:, d], [0.2, 0.5, 0.7]).numpy())
            torch.testing.assert_close(metrics.interval_score(p, y)[:, d], metrics.interval_score(q, y[:, d]))

    def test_without_marginal_quantiles_there_is_a_way_out(self):
        class Bare:
            mean = torch.zeros(2, 2)
            log_prob = cdf = None

        with pytest.raises(TypeError, match=r"Bare has no method quantile.*energy_score"):
            metrics.pinball(Bare(), torch.zeros(2, 2), 0.5)


class TestCellNLL:
    def test_gaussian_in_closed_form(self):
        y = np.array([-45.0, -8.0, -1.0, 0.0, 0.3, 5.0, 9.0, 45.0])
        for r in (1e-12, 1e-3, 0.5, 3.0):
            # From the side where the distribution function is small, which keeps the digits.
            near = np.abs(y)
            high, low = stats.norm.logcdf(-near + r / 2), stats.norm.logcdf(-near - r / 2)
            expected = (
                -(high + np.log1p(-np.exp(low - high))) if r > 1e-6 else -(stats.norm.logpdf(y) + np.log(r))
            )
            values = metrics.rounded_nll(Chunked(mixture([1.0], [0.0], [1.0], len(y))), y, r)
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)

    def test_cells_share_out_the_whole(self):
        r = 0.25
        y = torch.arange(-60, 61, dtype=torch.float64) * r
        p = mixture([0.3, 0.7], [-1.0, 2.0], [0.05, 1.0], len(y))
        values = metrics.rounded_nll(p, y, r)
        assert (values >= 0).all()
        assert (-values).exp().sum().item() == pytest.approx(1, abs=1e-12)

    def test_spikes_on_the_grid_of_rounding_gain_nothing(self):
        y = normal(500, 1, seed=3).round(decimals=1)
        spikes = GaussianMixture(
            *(v.double() for v in (torch.zeros(500, 1), y[:, None], torch.full((500, 1, 1), 1e-9)))
        )
        assert metrics.nll(spikes, y).mean() < -15
        assert metrics.rounded_nll(spikes, y, 0.1).abs().max() < 1e-12
        assert not metrics.rounded_nll(spikes, y, 0.1).signbit().any()

    @pytest.mark.parametrize("D", [2, 3])
    def test_several_targets_in_closed_form(self, D):
        # Of independent targets the probabilities multiply.
        y, r = normal(20, D, seed=4), torch.tensor([0.5, 1.5, 0.8])[:D].double()
        p = GaussianMixture(torch.zeros(20, 1), torch.zeros(20, 1, D), torch.ones(20, 1, D).double())
        one = mixture([1.0], [0.0], [1.0], 20)
        expected = sum(metrics.rounded_nll(one, y[:, i], r[i].item()) for i in range(D))
        torch.testing.assert_close(metrics.rounded_nll(p, y, r), expected, rtol=1e-6, atol=1e-6)
        if D == 2:
            with pytest.raises(ValueError, match="one number, or one for each of 2 targets"):
                metrics.rounded_nll(p, y, [1.0, 1.0, 1.0])

    @pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
    def test_spikes_of_several_targets_gain_nothing(self, sigma):
        y = 15 * normal(20, 3, seed=5).round()
        spikes = GaussianMixture(torch.zeros(20, 1), y[:, None], torch.full((20, 1, 3), sigma).double())
        assert metrics.rounded_nll(spikes, y, 15.0).abs().max() < 1e-9

    def test_no_density_no_mass(self):
        class Nothing(GaussianMixture):
            def log_prob(self, value):
                return torch.full(value.shape[:-1], -math.inf, dtype=torch.float64)

            def cdf(self, value):
                return torch.ones(value.shape[:-1], dtype=torch.float64)

        p = Nothing(torch.zeros(2, 1), torch.zeros(2, 1, 1), torch.ones(2, 1, 1))
        assert metrics.rounded_nll(p, torch.zeros(2, 1), 0.1).isposinf().all()


@pytest.fixture(scope="module")
def truth():
    """Distributions of 1500 rows, and targets drawn from them."""
    p = random_mixture(1500, seed=20)
    return p, p.sample(1, generator=rng(1))[0]


class TestCalibration:
    def test_of_the_truth(self, truth):
        p, y = truth
        assert stats.kstest(metrics.pit(p, y).numpy(), "uniform").pvalue > 0.01
        assert metrics.calibration_error(p, y) < 3 * 0.3 / math.sqrt(1500)
        levels, observed = metrics.calibration_curve(p, y)
        np.testing.assert_allclose(levels, np.arange(0.05, 0.96, 0.05))
        np.testing.assert_allclose(observed, levels, atol=4 * 0.5 / math.sqrt(1500))
        for mass in (0.1, 0.5, 0.9):
            assert abs(metrics.coverage(p, y, mass) - mass) < 4 * math.sqrt(mass * (1 - mass) / 1500)

    def test_of_the_smallest_regions_of_the_truth(self):
        p = random_mixture(300, seed=20)
        y = p.sample(1, generator=rng(1))[0]
        for mass in (0.2, 0.8):
            share = metrics.coverage(p, y, mass, region="highest-density")
            assert abs(share - mass) < 4 * math.sqrt(mass * (1 - mass) / 300)

    def test_of_several_targets(self):
        p = random_mixture(500, D=2, seed=30)
        y = p.sample(1, generator=rng(2))[0]
        sigma = math.sqrt(0.8 * 0.2 / 500)
        for dist, kind in ((p, Tensor), (Chunked(p, size=150), np.ndarray)):
            each = metrics.coverage(dist, y, 0.8)
            assert isinstance(each, kind)
            assert each.shape == (2,)
            assert abs(each - 0.8).max() < 4 * sigma
            assert abs(metrics.coverage(dist, y, 0.8, region="highest-density") - 0.8) < 4 * sigma + 0.01

    def test_sees_what_is_wrong(self, truth):
        p, y = truth
        narrow = GaussianMixture(p.logits, p.means, p.scales / 3)
        assert metrics.coverage(narrow, y) < 0.8
        few = GaussianMixture(narrow.logits[:200], narrow.means[:200], narrow.scales[:200])
        assert metrics.coverage(few, y[:200], region="highest-density") < 0.8
        assert metrics.calibration_error(p, y + 1) > 0.05
        # All targets at the median: everything below 0.5 is never seen, everything above always.
        assert metrics.calibration_error(p, p.icdf(0.5), levels=[0.25, 0.75]) == pytest.approx(0.25)

    def test_levels(self, truth):
        p, y = truth
        levels, observed = metrics.calibration_curve(Chunked(p, size=1000), y, levels=0.5)
        assert levels.tolist() == [0.5]
        assert observed.tolist() == [(metrics.pit(p, y) <= 0.5).double().mean().item()]

    def test_the_truth_has_the_best_score(self, truth):
        p, y = truth
        others = {
            "shifted": GaussianMixture(p.logits, p.means + 0.5, p.scales),
            "wide": GaussianMixture(p.logits, p.means, p.scales * 1.5),
            "narrow": GaussianMixture(p.logits, p.means, p.scales / 1.5),
            "flat weights": GaussianMixture(0 * p.logits, p.means, p.scales),
        }
        for name, score in SCORES.items():
            if name == "pit":
                continue
            best = score(p, y)
            for other in others.values():
                loss = score(other, y) - best
                # Quantile losses see a level or two, and some alternatives leave those nearly in place.
                slack = 4 if name in ("pinball", "interval_score") else -2
                assert loss.mean() > -slack * loss.std() / math.sqrt(1500), name


class Constant(RegressorMixin, BaseEstimator):
    """One Gaussian for all rows."""

    def fit(self, X, y):
        self.mean_, self.scale_ = float(np.mean(y)), float(np.std(y))
        return self

    def predict_distribution(self, X):
        return Chunked(mixture([1.0], [self.mean_], [self.scale_], len(X)))


class TestScorers:
    def test_in_cross_validation(self):
        g = np.random.default_rng(0)
        X, y = g.normal(size=(60, 2)), g.normal(size=60)
        log_density = cross_val_score(Constant(), X, y, scoring=metrics.nll_scorer, cv=3)
        assert np.all((log_density > -2) & (log_density < -1))
        minus_crps = cross_val_score(Constant(), X, y, scoring=metrics.crps_scorer, cv=3)
        assert np.all((minus_crps > -1) & (minus_crps < -0.3))

    def test_weights(self):
        X, y = np.zeros((4, 1)), np.array([0.0, 1.0, 2.0, 3.0])
        model = Constant().fit(X, y)
        each = metrics.nll(model.predict_distribution(X), y)
        assert metrics.nll_scorer(model, X, y) == pytest.approx(-each.mean())
        weighted = metrics.nll_scorer(model, X, y, sample_weight=[1, 0, 0, 3])
        assert weighted == pytest.approx(-(each[0] + 3 * each[3]) / 4)
        doubled = metrics.crps_scorer(model, X[[0, 1, 1]], y[[0, 1, 1]])
        assert metrics.crps_scorer(model, X, y, sample_weight=[1, 2, 0, 0]) == pytest.approx(doubled)

    def test_a_row_without_weight_may_be_impossible(self):
        class Impossible(Constant):
            def predict_distribution(self, X):
                whole = super().predict_distribution(X)
                whole.apply = lambda fn, y: np.array([math.inf, 1.0])
                return whole

        model = Impossible().fit(None, [0.0, 1.0])
        assert metrics.nll_scorer(model, np.zeros((2, 1)), [0.0, 1.0]) == -math.inf
        assert metrics.nll_scorer(model, np.zeros((2, 1)), [0.0, 1.0], sample_weight=[0, 1]) == -1

    def test_bad_arguments(self):
        X, y = np.zeros((2, 1)), np.array([0.0, 1.0])
        with pytest.raises(TypeError, match=r"estimator must have predict_distribution.*got object"):
            metrics.nll_scorer(object(), X, y)
        for bad, message in (
            ([1.0], "shape"),
            ([1.0, math.nan], "finite"),
            ([0.0, 0.0], "above 0"),
            ([2.0, -1.0], "at least 0"),
        ):
            with pytest.raises(ValueError, match=f"sample_weight must.*{message}"):
                metrics.crps_scorer(Constant().fit(X, y), X, y, sample_weight=bad)


class TestBadInput:
    @pytest.mark.parametrize("name", [*SCORES, *SHARES])
    def test_targets(self, name):
        score = {**SCORES, **SHARES}[name]
        p = random_mixture(4)
        for dist in (p, Chunked(p)):
            for bad in (np.zeros(3), np.zeros((4, 2)), np.zeros((1, 4)), 0.0):
                with pytest.raises(
                    ValueError, match=r"y must have shape \(4,\) or \(4, 1\), one row for each row"
                ):
                    score(dist, bad)
            with pytest.raises(ValueError, match="y must be finite, got nan at index"):
                score(dist, [0.0, math.nan, 0.0, 0.0])
            with pytest.raises(TypeError, match="y must hold numbers"):
                score(dist, ["a", "b", "c", "d"])
            with pytest.raises(TypeError, match="y must hold real numbers"):
                score(dist, np.zeros(4) * 1j)
        with pytest.raises(ValueError, match="at least 1 row"):
            score(random_mixture(0), [])
        with pytest.raises(TypeError, match=r"dist must be a predictive distribution.*got ndarray"):
            score(np.zeros(4), np.zeros(4))

    @pytest.mark.parametrize("name", SCORES)
    def test_targets_of_several_dimensions(self, name):
        p = random_mixture(4, D=2)
        with pytest.raises(ValueError, match=r"y must have shape \(4, 2\).*got \(4,\)"):
            SCORES[name](p, torch.zeros(4))
        if name in ONE_TARGET_ONLY:
            for dist in (p, Chunked(p)):
                with pytest.raises(
                    ValueError, match=f"{name} is for one target, and this distribution has 2; "
                ):
                    SCORES[name](dist, torch.zeros(4, 2))

    def test_crps_points_to_the_energy_score(self):
        with pytest.raises(ValueError, match="energy_score"):
            metrics.crps(random_mixture(4, D=2), torch.zeros(4, 2))

    def test_a_distribution_without_a_length_is_measured_by_its_answer(self):
        class Endless:
            n_targets = 1

            def apply(self, fn, y):
                return np.zeros(5)

        with pytest.raises(ValueError, match="y must have 5 rows, as the distribution has, got 4"):
            metrics.nll(Endless(), np.zeros(4))

    @pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, math.nan, 90])
    def test_shares(self, bad):
        p, y = random_mixture(4), torch.zeros(4, 1)
        for name, call in (
            ("q", lambda: metrics.pinball(p, y, bad)),
            ("q", lambda: metrics.pinball(p, y, [0.5, bad])),
            ("coverage", lambda: metrics.interval_score(p, y, coverage=bad)),
            ("mass", lambda: metrics.coverage(p, y, mass=bad)),
            ("levels", lambda: metrics.calibration_error(p, y, levels=[bad])),
        ):
            with pytest.raises(ValueError, match=rf"{name} must lie in \(0, 1\)"):
                call()

    def test_other_arguments(self):
        p, y = random_mixture(4), torch.zeros(4, 1)
        for bad in (0.0, -1.0, math.inf):
            with pytest.raises(ValueError, match="resolution must be a finite number above 0"):
                metrics.rounded_nll(p, y, bad)
        with pytest.raises(ValueError, match="n_draws must be at least 2, got 1"):
            metrics.energy_score(p, y, n_draws=1)
        with pytest.raises(
            ValueError, match="region must be one of 'interval', 'highest-density'; got 'hdr'"
        ):
            metrics.coverage(p, y, region="hdr")
        with pytest.raises(ValueError, match=r"q must hold at least one number in \(0, 1\)"):
            metrics.pinball(p, y, [])
        with pytest.raises(ValueError, match="q must be one level or a list of levels"):
            metrics.pinball(p, y, [[0.5]])
        for bad in ([0.5, 0.9], "0.9", True):
            with pytest.raises(TypeError, match="mass must be a number"):
                metrics.coverage(p, y, mass=bad)

    def test_arrays_of_any_memory_layout(self):
        p, y = random_mixture(4), np.linspace(-1, 1, 4)
        for same in (y[::-1].copy()[::-1], y.astype(">f8"), y.astype(np.longdouble), y.astype(object)):
            np.testing.assert_array_equal(metrics.nll(p, same), metrics.nll(p, y))

    def test_nan_of_the_distribution_is_an_error(self):
        p = Undefined(torch.zeros(3, 1), torch.zeros(3, 1, 1), torch.ones(3, 1, 1))
        for dist in (p, Chunked(p)):
            with pytest.raises(ValueError, match="nll is NaN in row 1, though the target is finite"):
                metrics.nll(dist, torch.zeros(3, 1))
