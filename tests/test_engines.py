"""The engine "importance": the paper's own estimator, for any number of targets."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Laplace

from ebreg import EnergyRegressor, importance, objectives, sampling
from ebreg.distributions import GaussianMixture
from ebreg.errors import TrustWarning
from ebreg.models import EnergyModel, MixtureModel
from ebreg.predictive import Accuracy, NodeDensity, WeightedDraws, normalize, self_normalized
from support import normal, rng, target_of

B = 3
MEAN, SCALE = 0.3, 0.7


def gaussian(y: Tensor) -> Tensor:
    """Energy of independent Gaussians, with log Z = D log(SCALE sqrt(2 pi)) + 1."""
    return 1 - 0.5 * ((y - MEAN) / SCALE).square().sum(dim=-1)


def log_z(D: int) -> float:
    return 1 + D * (math.log(SCALE) + 0.5 * math.log(2 * math.pi))


def wide(D: int) -> GaussianMixture:
    shape = (B, 1, D)
    return GaussianMixture(torch.zeros(B, 1), torch.zeros(shape), torch.ones(shape)).double()


def estimate(D: int, **settings) -> WeightedDraws:
    return self_normalized(target_of(gaussian, wide(D)), Accuracy(engine="importance", **settings))


@pytest.mark.parametrize("D", [1, 2])
def test_it_is_equation_7(D):
    M, seed = 500, 4
    p = estimate(D, n_draws=M, seed=seed)
    u = sampling.independent(M, 1, D, rng(seed)).double().expand(-1, B, -1)
    y = wide(D).from_uniform(u)
    f, log_q = gaussian(y), wide(D).log_prob(y)
    w = (f - log_q).exp()
    w = w / w.sum(dim=0)
    torch.testing.assert_close(p.mean, (w[..., None] * y).sum(dim=0))
    second = (w[..., None] * y.square()).sum(dim=0)
    torch.testing.assert_close(p.variance, second - p.mean.square())
    torch.testing.assert_close(p.log_partition, objectives.log_partition(f, log_q))
    torch.testing.assert_close(p.log_partition_error, importance.log_partition_error(f, log_q))
    torch.testing.assert_close(p.effective_sample_size, 1 / w.square().sum(dim=0))
    torch.testing.assert_close(p.quantile(0.5), importance.quantile(y, w, 0.5))
    torch.testing.assert_close(p.expectation(lambda y: y[..., 0] > 0), (w * (y[..., 0] > 0)).sum(dim=0))
    assert (p.n_draws == M).all()


@pytest.mark.parametrize("D", [1, 2])
def test_samples_are_resampled_draws(D):
    p = estimate(D, n_draws=400)
    samples = p.sample(20_000, rng(1))
    for b in range(B):
        own = {tuple(point) for point in p.draws[:, b].tolist()}
        assert {tuple(point) for point in samples[:, b].tolist()} <= own
    error = p.stddev / math.sqrt(len(samples))
    assert ((samples.mean(dim=0) - p.mean).abs() < 4.5 * error).all()
    assert p.sample(0).shape == (0, B, D)


def test_errors_fall_with_the_root_of_the_draws_and_are_stated():
    # 40 seeds a size: the spread of log Z is the stated error, and falls like one over the root of M.
    sizes = [256, 1024, 4096]
    runs = [[estimate(1, n_draws=M, seed=seed) for seed in range(40)] for M in sizes]
    off = [torch.stack([p.log_partition[0] - log_z(1) for p in some]) for some in runs]
    stated = [torch.stack([p.log_partition_error[0] for p in some]).mean() for some in runs]
    spread = [each.square().mean().sqrt() for each in off]
    for actual, claimed in zip(spread, stated, strict=True):
        assert 0.7 < actual / claimed < 1.4
    slope = (spread[2] / spread[0]).log() / math.log(sizes[2] / sizes[0])
    assert -0.7 < slope < -0.3
    mean = torch.stack([p.mean[0, 0] for p in runs[2]])
    assert abs(mean.mean() - MEAN) < 4 * mean.std() / math.sqrt(40)


@pytest.mark.parametrize("D", [1, 2])
def test_the_accuracy_names_the_engine(D):
    target = target_of(gaussian, wide(D))
    assert type(normalize(target, Accuracy(engine="importance"))) is WeightedDraws
    assert isinstance(normalize(target, Accuracy()), NodeDensity if D == 1 else WeightedDraws)
    with pytest.raises(ValueError, match="engine must be one of 'quadrature', 'importance'"):
        Accuracy(engine="sampling")


def test_both_engines_agree():
    x, y = normal(60, 2), normal(60, 1, seed=1)
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        model = EnergyModel.for_table(x, y, n_components=2, width=16).to_float64()
    model.proposal.log_variances.bias.data.add_(3.0)  # untrained, its tails are lighter than the model's
    with torch.no_grad():
        exact = model.predictive(x[:4])
        drawn = model.predictive(x[:4], Accuracy(engine="importance", n_draws=20_000))
        error = drawn.stddev / drawn.effective_sample_size.sqrt()[:, None]
        assert ((drawn.mean - exact.mean).abs() < 4.5 * error).all()
        assert ((drawn.log_partition - exact.log_partition).abs() < 4.5 * drawn.log_partition_error).all()
        near = drawn.quantile(0.9) - exact.quantile(0.9)
        assert (near.abs() < 0.2 * exact.stddev).all()
        torch.testing.assert_close(
            drawn.log_prob(y[:4]) + drawn.log_partition, exact.log_prob(y[:4]) + exact.log_partition, **CLOSE
        )
        row = model.predictive(x[[2]], Accuracy(engine="importance", n_draws=20_000))
        torch.testing.assert_close(row.mean, drawn.mean[[2]])


CLOSE = {"rtol": 0, "atol": 2e-3}  # quadrature interpolates the log density


def test_regions_of_one_target_are_intervals():
    p = estimate(1, n_draws=4000)
    region = p.highest_density_region(0.8)
    half = 1.2816 * SCALE
    for ends in region.intervals:
        assert ends.shape == (1, 2)
        torch.testing.assert_close(
            ends[0], torch.tensor([MEAN - half, MEAN + half]).double(), rtol=0, atol=0.06
        )


def test_regressors_take_the_engine():
    x = normal(60, 2).numpy()
    y = x[:, 0] + normal(60, seed=3).numpy()
    reg = EnergyRegressor("joint-nce", max_iter=20, width=16, random_state=0).fit(x, y)
    p = reg.predict_distribution(x[:300], Accuracy(engine="importance"))
    exact = reg.predict_distribution(x[:300])
    assert np.abs(p.mean - exact.mean).max() < 0.2
    assert p.interval(0.9).shape == (60, 2)
    assert len(p.highest_density_region(0.5).intervals) == 60
    with pytest.warns(TrustWarning, match=r"rest on fewer than 5 draws"):
        p.quantile([1e-4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact.quantile([1e-4])
    few = reg.predict_distribution(x[:5], Accuracy(engine="importance", n_draws=128))
    few._chunks.model.proposal.means.bias.data.fill_(30.0)  # a proposal that misses the mass
    with pytest.warns(TrustWarning, match=r"effective sample size is small.*A larger n_draws"):
        _ = few.mean


def test_gradients_reach_the_energy():
    # f = -(y - m)^2 / 2: the mean moves with m, log Z does not, and log p(y) by y - m.
    m = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    target = target_of(lambda y: -0.5 * (y[..., 0] - m).square(), wide(1))
    p = self_normalized(target, Accuracy(engine="importance", n_draws=20_000))
    (by_mean,) = torch.autograd.grad(p.mean.sum() / B, m, retain_graph=True)
    (by_log_z,) = torch.autograd.grad(p.log_partition.sum() / B, m, retain_graph=True)
    (by_log_p,) = torch.autograd.grad(p.log_prob(torch.ones(B, 1)).sum() / B, m, retain_graph=True)
    (by_median,) = torch.autograd.grad(p.quantile(0.5).sum() / B, m)
    assert abs(by_mean - 1) < 0.05
    assert abs(by_log_z) < 0.05
    assert abs(by_log_p - 0.7) < 0.05
    assert abs(by_median - 1) < 0.15
    assert not p.sample(3, rng()).requires_grad


def test_gradients_reach_a_distribution_that_answers_by_draws():
    # A Laplace distribution around the input: the mean and the quantiles move with it.
    class Around(torch.nn.Module):
        def forward(self, h: Tensor) -> Distribution:
            return Independent(Laplace(h, torch.ones_like(h)), 1)

    model = MixtureModel(torch.nn.Identity(), Around(), n_targets=1).double()
    x = normal(B, 1).requires_grad_()
    p = model.predictive(x, Accuracy(n_draws=20_000))
    for answer, near in ((p.mean, 0.02), (p.quantile(0.8), 0.1)):
        (slope,) = torch.autograd.grad(answer.sum(), x, retain_graph=True)
        torch.testing.assert_close(slope, torch.ones(B, 1).double(), rtol=0, atol=near)
    (slope,) = torch.autograd.grad(p.log_prob(x.detach() + 2).sum(), x)
    torch.testing.assert_close(slope, torch.ones(B, 1).double())
