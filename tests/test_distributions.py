import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from ebreg import sampling
from ebreg.distributions import FullMixture, GaussianMixture, TargetNoise, TruncatedMixture, quantiles
from support import normal, rng

F64 = torch.float64


def parameters(
    B: int = 3, K: int = 4, D: int = 1, dtype: torch.dtype = F64, seed: int = 0
) -> tuple[Tensor, ...]:
    g = rng(seed)
    logits, means = (
        torch.randn(B, K, generator=g, dtype=F64),
        2 * torch.randn(B, K, D, generator=g, dtype=F64),
    )
    scales = 0.2 + torch.rand(B, K, D, generator=g, dtype=F64)
    return logits.to(dtype), means.to(dtype), scales.to(dtype)


def one_row(weights: list[float], means: list[float], scales: list[float], dtype=F64) -> GaussianMixture:
    w, m, s = torch.tensor([weights, means, scales], dtype=dtype)
    return GaussianMixture(w.log()[None], m[None, :, None], s[None, :, None])


def torch_mixture(logits: Tensor, means: Tensor, scales: Tensor) -> MixtureSameFamily:
    return MixtureSameFamily(Categorical(logits=logits), Independent(Normal(means, scales), 1))


HARD = {
    "one": one_row([1.0], [0.3], [2.0]),
    "two hills": one_row([0.3, 0.7], [-3.0, 2.0], [0.5, 1.0]),
    "narrow in wide": one_row([0.5, 0.5], [0.1, 0.0], [1e-6, 1e6]),
    "light": one_row([1 - 1e-3, 1e-3], [0.0, 0.7], [1.0, 1e-5]),
    "very light": one_row([1 - 1e-13, 1e-13], [0.0, -50.0], [1.0, 0.1]),
    "far apart": one_row([0.4, 0.2, 0.4], [-1e6, 0.0, 1e6], [1e-3, 1.0, 10.0]),
    "spikes": one_row([0.25, 0.25, 0.25, 0.25], [-1.0, 0.0, 1e-3, 5.0], [1e-6, 1e-4, 1e-6, 1e-2]),
    "many": one_row([1 / 64] * 64, [math.sin(k) for k in range(64)], [10 ** -(k % 3) / 2 for k in range(64)]),
}
hard = pytest.mark.parametrize("q", HARD.values(), ids=HARD.keys())


# Density


@pytest.mark.parametrize("D", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_log_prob_against_torch(D, dtype):
    values = parameters(D=D, dtype=dtype)
    q, reference = GaussianMixture(*values), torch_mixture(*values)
    assert (q.batch_shape, q.event_shape, q.n_targets) == ((3,), (D,), D)
    for shape in [(), (7,), (2, 5)]:
        y = 3 * torch.randn(*shape, 3, D, generator=rng(1), dtype=dtype)
        log_prob = q.log_prob(y)
        assert log_prob.shape == (*shape, 3)
        assert log_prob.dtype == dtype
        tolerance = {torch.float32: 1e-5, F64: 1e-12}[dtype]
        torch.testing.assert_close(log_prob, reference.log_prob(y), rtol=tolerance, atol=tolerance)
    assert q.log_prob(torch.zeros(0, 3, D, dtype=dtype)).shape == (0, 3)
    torch.testing.assert_close(q.mean, reference.mean)
    torch.testing.assert_close(q.variance, reference.variance)
    torch.testing.assert_close(q.stddev, reference.variance.sqrt())


def test_one_component_is_a_normal():
    _, means, scales = parameters(K=1)
    q, normal = (
        GaussianMixture(torch.full((3, 1), 5.0, dtype=F64), means, scales),
        Normal(means[:, 0], scales[:, 0]),
    )
    y = torch.randn(9, 3, 1, generator=rng(), dtype=F64)
    torch.testing.assert_close(q.log_prob(y), normal.log_prob(y)[..., 0])
    torch.testing.assert_close(q.cdf(y), normal.cdf(y)[..., 0])
    torch.testing.assert_close(q.icdf(torch.tensor(0.3)), normal.icdf(torch.tensor(0.3, dtype=F64)))
    torch.testing.assert_close(q.mean, means[:, 0])
    torch.testing.assert_close(q.variance, scales[:, 0] ** 2)


def test_density_integrates_to_one():
    q = GaussianMixture(*parameters())
    y = torch.linspace(-15, 15, 6001, dtype=F64)[:, None, None].expand(-1, 3, 1)
    torch.testing.assert_close(q.log_prob(y).exp().sum(dim=0) * 0.005, torch.ones(3, dtype=F64))
    q = GaussianMixture(*parameters(D=2))
    axis = torch.linspace(-15, 15, 601, dtype=F64)
    plane = torch.cartesian_prod(axis, axis)[:, None].expand(-1, 3, 2)
    torch.testing.assert_close(q.log_prob(plane).exp().sum(dim=0) * 0.05**2, torch.ones(3, dtype=F64))


@pytest.mark.parametrize("D", [1, 2])
@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 3)])
def test_gradients_of_log_prob(D, shape):
    values = [part.requires_grad_() for part in parameters(D=D)]
    y = torch.randn(*shape, D, generator=rng(), dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda y, *values: GaussianMixture(*values, validate_args=False).log_prob(y), (y, *values)
    )


def test_gradients_agree_with_automatic_ones_in_single_precision():
    values = [part.requires_grad_() for part in parameters(B=8, K=5, D=2, dtype=torch.float32)]
    y = 3 * torch.randn(50, 8, 2, generator=rng(), requires_grad=True)
    weight = torch.randn(50, 8, generator=rng(2))
    ours, theirs = (
        torch.autograd.grad((weight * make(*values).log_prob(y)).sum(), [y, *values])
        for make in (GaussianMixture, torch_mixture)
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_second_derivatives_of_log_prob():
    values = [part.requires_grad_() for part in parameters(B=2, K=3, D=2)]
    y = torch.randn(2, 2, 2, generator=rng(), dtype=F64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda y, *values: GaussianMixture(*values, validate_args=False).log_prob(y), (y, *values)
    )


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_extreme_values_stay_finite(dtype):
    means, scales = torch.tensor([[[0.0], [1.0]]], dtype=dtype), torch.tensor([[[1e-6], [1.0]]], dtype=dtype)
    q = GaussianMixture(torch.tensor([[0.0, -500.0]], dtype=dtype), means, scales)
    y = torch.tensor([0.0, 1e-3, 1.0, -1e10, 1e15], dtype=dtype)[:, None, None]
    assert q.log_prob(y).isfinite().all()
    far = q.log_prob(torch.full((1, 1), 1e25, dtype=dtype)).item()
    assert far < -1e37
    assert not math.isnan(far)


# Draws and moments


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_samples_agree_with_the_density(dtype):
    values = parameters(B=2, D=1, dtype=dtype)
    q = GaussianMixture(*values)
    y = q.sample(20_000, rng())
    assert y.shape == (20_000, 2, 1)
    assert y.dtype == dtype
    for row in q.cdf(y).T:
        assert stats.kstest(row, "uniform").pvalue > 1e-4
    edges = torch.linspace(-4, 4, 41, dtype=F64)
    y_64, q_64 = y.double(), q.double()
    for b in range(2):

        def density(v: float, b: int = b) -> float:
            return q_64.log_prob(torch.full((2, 1), v, dtype=F64))[b].exp().item()

        expected = np.array([integrate.quad(density, low, high)[0] for low, high in pairwise(edges.tolist())])
        counts, _ = np.histogram(y_64[:, b, 0], edges.numpy())
        seen = expected > 1e-3
        observed = np.append(counts[seen], len(y) - counts[seen].sum())
        wanted = len(y) * np.append(expected[seen], 1 - expected[seen].sum())
        assert stats.chisquare(observed, wanted).pvalue > 1e-4


def test_sample_shapes_and_generator():
    q = GaussianMixture(*parameters(D=2))
    assert q.sample().shape == (3, 2)
    assert q.sample((4, 5)).shape == (4, 5, 3, 2)
    assert q.sample(torch.Size([4])).shape == (4, 3, 2)
    state = torch.get_rng_state()
    assert torch.equal(q.sample(6, rng(3)), q.sample((6,), rng(3)))
    assert torch.equal(state, torch.get_rng_state())


def test_moments_against_draws():
    q = GaussianMixture(*parameters(D=3))
    y = q.sample(100_000, rng())
    error = y.std(dim=0) / math.sqrt(len(y))
    assert ((y.mean(dim=0) - q.mean).abs() < 4.5 * error).all()
    squares = (y - q.mean) ** 2
    assert ((squares.mean(dim=0) - q.variance).abs() < 4.5 * squares.std(dim=0) / math.sqrt(len(y))).all()


def test_variance_does_not_cancel():
    q = one_row([0.5, 0.5], [1e8, 1e8], [1e-3, 1e-3])
    torch.testing.assert_close(q.variance, torch.full((1, 1), 1e-6, dtype=F64))


@pytest.mark.parametrize("D", [1, 3])
def test_covariance(D):
    q = GaussianMixture(*parameters(D=D))
    weights, means = q.logits.exp()[..., None, None], q.means[..., None]
    second = (weights * (means * means.mT + torch.diag_embed(q.scales**2))).sum(dim=1)
    torch.testing.assert_close(q.covariance, second - q.mean[:, :, None] * q.mean[:, None])
    torch.testing.assert_close(q.covariance.diagonal(dim1=1, dim2=2), q.variance)
    torch.testing.assert_close(q.covariance, q.covariance.mT)


# Distribution function and quantiles

LEVELS = torch.tensor(
    [1e-12, 1e-6, 1e-3, 0.01, 0.1, 0.25, 0.4999, 0.5, 0.7, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9], dtype=F64
)


@hard
def test_quantiles_invert_the_distribution_function(q):
    levels = torch.cat([LEVELS, torch.linspace(0.001, 0.999, 400, dtype=F64)]).sort().values
    y = q.icdf(levels)
    assert y.shape == (413, 1, 1)
    assert (y[:, 0, 0].diff() >= 0).all()
    assert (q.icdf(LEVELS)[:, 0, 0].diff() > 0).all()
    # Neighbouring floating-point numbers may be further apart than the quantiles of a narrow component.
    resolution = q.log_prob(y).exp() * 4 * torch.finfo(F64).eps * y[..., 0].abs()
    assert ((q.cdf(y) - levels[:, None]).abs() <= 1e-9 * levels[:, None] + resolution).all()


def test_relative_accuracy_of_far_quantiles():
    q = HARD["two hills"]
    levels = torch.tensor([1e-300, 1e-100, 1e-30], dtype=F64)
    torch.testing.assert_close(q.cdf(q.icdf(levels))[:, 0], levels, rtol=1e-9, atol=0)


def test_quantiles_of_a_row_do_not_depend_on_its_neighbours():
    logits, means, scales = parameters(B=37, K=3)
    scales[::5] *= 1e-5
    together = GaussianMixture(logits, means, scales).icdf(LEVELS)
    for i in range(37):
        alone = GaussianMixture(logits[[i]], means[[i]], scales[[i]])
        assert torch.equal(alone.icdf(LEVELS)[:, 0], together[:, i])
        assert torch.equal(alone.icdf(LEVELS[7])[0], together[7, i])


def test_shapes_of_levels():
    q = GaussianMixture(*parameters())
    assert q.icdf(torch.tensor(0.5)).shape == (3, 1)
    assert q.icdf(0.5).shape == (3, 1)
    assert q.icdf(torch.tensor([0.5])).shape == (1, 3, 1)
    rows = q.icdf(torch.tensor([[0.1, 0.5, 0.9]]))
    assert torch.equal(rows[0, 1], q.icdf(torch.tensor(0.5))[1])
    assert torch.equal(q.icdf(LEVELS.float()[3:9]).to(F64), q.icdf(LEVELS.float()[3:9]))
    assert GaussianMixture(*parameters(dtype=torch.float32)).icdf(0.2).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_quantiles_of_each_target(dtype):
    q = GaussianMixture(*parameters(D=3, dtype=dtype))
    y = q.quantile(LEVELS)
    assert y.shape == (len(LEVELS), 3, 3)
    assert y.dtype == dtype
    assert torch.equal(q.quantile(0.5), y[7])
    for d in range(3):
        alone = GaussianMixture(q.logits, q.means[..., d : d + 1], q.scales[..., d : d + 1])
        torch.testing.assert_close(y[..., d : d + 1], alone.icdf(LEVELS))
    with pytest.raises(ValueError, match=r"q must lie in \(0, 1\), got \[1.0\]"):
        q.quantile(1.0)
    one = GaussianMixture(*parameters(dtype=dtype))
    torch.testing.assert_close(one.quantile(LEVELS), one.icdf(LEVELS))


def test_marginals():
    q = GaussianMixture(*parameters(D=3))
    y = torch.randn(3, 3, generator=rng(), dtype=F64)
    for d in (0, 1, -1):
        marginal = q.marginal(d)
        assert marginal.event_shape == (1,)
        corner = torch.full_like(y, math.inf)
        corner[:, d] = y[:, d]
        torch.testing.assert_close(marginal.cdf(y[:, d, None]), q.cdf(corner))
        torch.testing.assert_close(marginal.mean[:, 0], q.mean[:, d])
    with pytest.raises(IndexError):
        q.marginal(3)


def test_distribution_function_of_several_targets():
    q = GaussianMixture(*parameters(D=2))
    y = q.sample(50_000, rng())
    corner = torch.tensor([[0.0, 0.5]] * 3, dtype=F64)
    expected = q.cdf(corner)
    frequency = (y <= corner).all(dim=-1).double().mean(dim=0)
    assert ((frequency - expected).abs() < 4.5 * (expected * (1 - expected) / 50_000).sqrt()).all()


# Shape of the density


def test_modes_of_two_hills():
    q = HARD["two hills"]
    (row,) = q.modes()
    torch.testing.assert_close(row.locations, torch.tensor([[2.0], [-3.0]], dtype=F64), rtol=0, atol=0.02)
    torch.testing.assert_close(row.masses, torch.tensor([0.7, 0.3], dtype=F64), rtol=0, atol=2e-3)
    torch.testing.assert_close(row.log_densities, q.log_prob(row.locations[:, None])[:, 0], rtol=0, atol=2e-3)
    assert q.modes().counts.tolist() == [2]


def test_modes_of_narrow_and_light_components():
    (row,) = HARD["light"].modes()
    torch.testing.assert_close(row.locations, torch.tensor([[0.0], [0.7]], dtype=F64), rtol=0, atol=0.02)
    left = stats.norm.cdf(0.7)  # the narrow one cuts the wide one in two
    torch.testing.assert_close(row.masses, torch.tensor([left, 1 - left], dtype=F64), rtol=0, atol=2e-3)


def test_modes_in_two_dimensions():
    means = torch.tensor([[[-3.0, 0.0], [3.0, 1.0]], [[0.0, 0.0], [0.1, 0.0]]], dtype=F64)
    q = GaussianMixture(
        torch.tensor([[0.75, 0.25]] * 2, dtype=F64).log(), means, torch.ones(2, 2, 2, dtype=F64)
    )
    two, one = q.modes()
    torch.testing.assert_close(two.locations, means[0], rtol=0, atol=0.02)
    torch.testing.assert_close(two.masses, torch.tensor([0.75, 0.25], dtype=F64), rtol=0, atol=0.03)
    assert len(one) == 1


@pytest.mark.parametrize("mass", [0.1, 0.5, 0.9, 0.999])
def test_region_of_a_normal(mass):
    _, means, scales = parameters(K=1)
    q = GaussianMixture(torch.zeros(3, 1, dtype=F64), means, scales)
    region = q.highest_density_region(mass)
    half = scales[:, 0, 0] * stats.norm.ppf(0.5 + mass / 2)
    for i, (interval,) in enumerate(region.intervals):
        expected = means[i, 0, 0] + half[i] * torch.tensor([-1.0, 1.0], dtype=F64)
        torch.testing.assert_close(interval, expected, rtol=0, atol=1e-3 * scales[i, 0, 0].item())
    torch.testing.assert_close(
        region.log_threshold, q.log_prob(means[:, 0] + half[:, None]), rtol=0, atol=3e-3
    )


@hard
@pytest.mark.parametrize("mass", [0.3, 0.95])
def test_region_holds_its_mass(q, mass):
    region = q.highest_density_region(mass)
    (intervals,) = region.intervals
    assert (intervals[:, 1] >= intervals[:, 0]).all()
    assert (intervals[1:, 0] > intervals[:-1, 1]).all()
    assert abs((q.cdf(intervals[:, 1:, None]) - q.cdf(intervals[:, :1, None])).sum() - mass) < 1e-3
    y = q.sample(20_000, rng())
    frequency = region.contains(y).double().mean()
    assert abs(frequency - mass) < 4.5 * math.sqrt(mass * (1 - mass) / 20_000) + 1e-3


def isolated(K: int, weight: float, scale: float, gap: float) -> GaussianMixture:
    """One heavy component, and light narrow ones far from each other."""
    scales = [1.0] + [scale] * (K - 1)
    return one_row([1 - (K - 1) * weight] + [weight] * (K - 1), [gap * k for k in range(K)], scales)


@pytest.mark.parametrize("q", [isolated(129, 1e-6, 1e-4, 100.0), isolated(129, 1e-9, 1e-6, 10.0)])
def test_light_and_narrow_components_far_apart(q):
    torch.testing.assert_close(q.expectation(lambda y: y), q.mean, rtol=0.03, atol=1e-3)
    for mass in (0.5, 0.9):
        (intervals,) = q.highest_density_region(mass).intervals
        held = (q.cdf(intervals[:, 1:, None]) - q.cdf(intervals[:, :1, None])).sum()
        assert abs(held - mass) < 1e-3


def test_quantiles_next_to_gaps():
    # Levels next to the mass on one side of a gap, where the distribution function is level.
    steps = [0.0, *(sign * 10.0**-k for k in range(7, 16) for sign in (-1, 1))]
    for weights in ([0.9, 0.1], [0.5, 0.5], [1 / 3] * 3, [1 / 8] * 8, [0.1] * 10):
        edges = torch.tensor(weights, dtype=F64).cumsum(0)[:-1]
        levels = torch.cat([edges * (1 + step) for step in steps])
        for seed in range(10):
            u = torch.rand(2, len(weights), generator=rng(seed), dtype=F64)
            means = 100.0 * (torch.arange(len(weights)) + 0.3 * u[0])
            q = one_row(weights, means.tolist(), (4 * u[1] - 3).exp().tolist())
            torch.testing.assert_close(q.cdf(q.icdf(levels))[:, 0], levels, rtol=0, atol=1e-12)


@pytest.mark.parametrize("K", [2, 8, 65])
@pytest.mark.parametrize("spread", [1.0, 100.0])
def test_quantiles_of_any_level(K, spread):
    levels = torch.tensor([1e-12, 1e-9, 1e-4, 0.05, 0.5, 0.95, 1 - 1e-4, 1 - 1e-9, 1 - 1e-12], dtype=F64)
    z = torch.randn(3, 200, K, generator=rng(K), dtype=F64)
    q = GaussianMixture(4 * z[0], spread * z[1, ..., None], (2 * z[2, ..., None]).exp())
    y = q.icdf(levels)
    assert (y.diff(dim=0) >= 0).all()
    # A quantile has as many digits as a float64, and the level changes with its last.
    slack = q.log_prob(y).exp() * 1e-15 * y[..., 0].abs() + 1e-15
    assert ((q.cdf(y) - levels[:, None]).abs() < slack).all()


def test_row_of_many_components_among_wide_rows():
    z = torch.randn(3, 20, 65, generator=rng(1), dtype=F64)
    q = GaussianMixture(2 * z[0], z[1, ..., None], z[2, ..., None].exp())
    wide = q.rescaled(torch.zeros(1, dtype=F64), torch.full((1,), 1e200, dtype=F64))
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=F64)
    joined = q.joined([wide])
    alone = joined[:20]
    assert torch.equal(joined.icdf(levels)[:, :20], alone.icdf(levels))
    assert torch.equal(joined.stddev[:20], alone.stddev)


def test_region_of_two_hills_is_two_intervals():
    assert len(HARD["two hills"].highest_density_region(0.9).intervals[0]) == 2
    assert len(HARD["two hills"].highest_density_region(0.1).intervals[0]) == 1


def test_region_in_two_dimensions():
    q = GaussianMixture(*parameters(D=2))
    region = q.highest_density_region(0.8)
    assert region.intervals is None
    frequency = region.contains(q.sample(20_000, rng())).double().mean(dim=0)
    assert ((frequency - 0.8).abs() < 4.5 * math.sqrt(0.16 / 20_000) + 0.01).all()


@hard
def test_expectations(q):
    mean = q.expectation(lambda y: y)
    torch.testing.assert_close(mean, q.mean, rtol=0, atol=1e-4 * q.stddev.item())
    spread = q.expectation(lambda y: (y - q.mean) ** 2)
    torch.testing.assert_close(spread, q.variance, rtol=2e-3, atol=0)
    median = q.icdf(0.5)
    assert abs(q.expectation(lambda y: (y <= median).double()).item() - 0.5) < 2e-3


def test_expectation_in_two_dimensions():
    q = GaussianMixture(*parameters(D=2))
    torch.testing.assert_close(q.expectation(lambda y: y), q.mean, rtol=0, atol=0.02)
    assert q.expectation(lambda y: y[..., 0]).shape == (3,)


def test_a_mixture_is_exact():
    q = GaussianMixture(*parameters())
    assert q.proposal is q
    assert (q.effective_sample_size == math.inf).all()
    assert (q.pareto_k == -math.inf).all()
    assert torch.equal(q.log_partition, torch.zeros(3, dtype=F64))
    assert torch.equal(q.log_partition_error, torch.zeros(3, dtype=F64))


def test_rescaled():
    q = GaussianMixture(*parameters(D=2, dtype=torch.float32))
    shift, scale = torch.tensor([5.0, -1.0], dtype=F64), torch.tensor([100.0, 0.01], dtype=F64)
    rescaled = q.rescaled(shift, scale)
    y = q.sample(9, rng()).double()
    assert rescaled.means.dtype == F64
    torch.testing.assert_close(
        rescaled.log_prob(shift + scale * y), q.double().log_prob(y) - scale.log().sum()
    )
    torch.testing.assert_close(rescaled.mean, shift + scale * q.double().mean)
    torch.testing.assert_close(rescaled.variance, scale**2 * q.double().variance)


# Wrong arguments


def test_wrong_parameters_are_refused():
    logits, means, scales = parameters(D=2)
    with pytest.raises(ValueError, match=r"logits must have shape \(B, K\), got \(4,\)"):
        GaussianMixture(logits[0], means, scales)
    with pytest.raises(ValueError, match=r"means must have shape \(3, 4, D\), got \(3, 4\)"):
        GaussianMixture(logits, means[..., 0], scales)
    with pytest.raises(ValueError, match=r"scales must have shape \(3, 4, 2\), got \(3, 4, 1\)"):
        GaussianMixture(logits, means, scales[..., :1])
    with pytest.raises(ValueError, match=r"number of components .* must be at least 1, got 0"):
        GaussianMixture(logits[:, :0], means[:, :0], scales[:, :0])
    for position, name in enumerate(["logits", "means", "scales"]):
        values = [logits.clone(), means.clone(), scales.clone()]
        values[position].view(-1)[1] = math.nan
        with pytest.raises(ValueError, match=f"{name} must be finite, got nan at index"):
            GaussianMixture(*values)
    for bad in (0.0, -1.0):
        wrong = scales.clone()
        wrong[1, 2, 0] = bad
        with pytest.raises(ValueError, match=f"scales must be above 0, got {bad}"):
            GaussianMixture(logits, means, wrong)


def test_wrong_values_are_refused():
    q = GaussianMixture(*parameters(D=2))
    for shape in [(3, 1), (1, 2), (5, 2), (2,), (3,), (7, 1, 2)]:
        with pytest.raises(ValueError, match=r"value must have shape \((\.\.\., )*3, 2\), got"):
            q.log_prob(torch.zeros(shape, dtype=F64))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_levels_outside_are_refused(level):
    with pytest.raises(ValueError, match=r"q must lie in \(0, 1\), got"):
        GaussianMixture(*parameters()).icdf(torch.tensor([0.5, level]))


def test_levels_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"q must have shape \(Q, 3\), got \(5, 1\)"):
        GaussianMixture(*parameters()).icdf(torch.full((5, 1), 0.5))
    with pytest.raises(ValueError, match=r"q must have shape"):
        GaussianMixture(*parameters()).icdf(torch.full((5, 3, 1), 0.5))


@pytest.mark.parametrize("mass", [0.0, 1.0, -1.0, 90.0, math.nan])
@pytest.mark.parametrize("D", [1, 2])
def test_mass_outside_is_refused(D, mass):
    with pytest.raises(ValueError, match=r"mass must lie in \(0, 1\), got"):
        GaussianMixture(*parameters(D=D)).highest_density_region(mass)


def test_quantiles_of_several_targets_are_refused():
    with pytest.raises(
        ValueError, match=r"icdf exists for one target only, and this distribution has 2: .*no order"
    ):
        GaussianMixture(*parameters(D=2)).icdf(torch.tensor(0.5))
    with pytest.raises(ValueError, match="has 3"):
        quantiles(lambda q: q, 0.5, 2, 3)


# Noise around the target


@pytest.mark.parametrize("D", [1, 2])
def test_target_noise(D):
    y = torch.randn(4, D, generator=rng(), dtype=F64)
    noise = TargetNoise([0.1, 0.8]).around(y)
    v = torch.randn(6, 4, D, generator=rng(1), dtype=F64)
    expected = torch.stack([Normal(y, s).log_prob(v).sum(dim=-1) for s in (0.1, 0.8)]).logsumexp(
        dim=0
    ) - math.log(2)
    torch.testing.assert_close(noise.log_prob(v), expected)
    draws = noise.sample(20_000, rng(2)) - y
    assert (draws.mean(dim=0).abs() < 4.5 * draws.std(dim=0) / math.sqrt(20_000)).all()
    for row in draws[..., 0].T:
        cdf = 0.5 * sum(stats.norm.cdf(row, scale=s) for s in (0.1, 0.8))
        assert stats.kstest(cdf, "uniform").pvalue > 1e-4


def test_unit_of_target_noise():
    y = torch.zeros(3, 2)
    noise = TargetNoise([1.0, 4]).around(y, unit=torch.tensor([2.0, 0.5], dtype=F64))
    torch.testing.assert_close(noise.scales, torch.tensor([[0.5, 2.0], [2.0, 8.0]]).expand(3, 2, 2))


@pytest.mark.parametrize("sigmas", [[0.0], [0.1, -1.0], [math.nan], [math.inf]])
def test_wrong_sigmas_are_refused(sigmas):
    with pytest.raises(ValueError, match="sigmas must be a finite number above 0, got"):
        TargetNoise(sigmas)


def test_no_sigmas_are_refused():
    with pytest.raises(ValueError, match="number of sigmas must be at least 1, got 0"):
        TargetNoise([])


# Levels


@pytest.mark.parametrize("family", ["open", "truncated", "full"])
def test_levels_are_the_distribution_function_of_each_target(family):
    logits, means, scales = normal(4, 3), normal(4, 3, 2, seed=1), normal(4, 3, 2, seed=2).exp()
    if family == "full":
        q = FullMixture(logits, means, torch.linalg.cholesky(torch.diag_embed(scales**2) + 0.3))
    elif family == "truncated":
        q = TruncatedMixture(
            logits, means, scales, torch.tensor([-1.0, -torch.inf]), torch.tensor([2.0, 3.0])
        )
    else:
        q = GaussianMixture(logits, means, scales)
    # Bounds do not change levels.
    unbounded = GaussianMixture(logits, means, scales) if family == "truncated" else q
    y, draws = q.from_uniform(sampling.sobol(5, 2)), unbounded.from_uniform(sampling.sobol(2**13, 2))
    share_below = (draws[:, None] <= y).double().mean(dim=0)
    torch.testing.assert_close(q.levels(y), share_below, rtol=0, atol=0.015)
    assert torch.equal(sampling.levels(q, y), q.levels(y))
    far = torch.full_like(y, 1e6)
    torch.testing.assert_close(q.levels(far), torch.ones_like(y))
    torch.testing.assert_close(q.levels(-far), torch.zeros_like(y))


def test_levels_of_one_target_are_about_its_cdf():
    q = GaussianMixture(normal(4, 3), normal(4, 3, 1, seed=1), normal(4, 3, 1, seed=2).exp())
    y = normal(6, 4, 1, seed=3)
    torch.testing.assert_close(q.levels(y)[..., 0], q.cdf(y), rtol=0, atol=0.01)
    assert torch.autograd.gradcheck(lambda v: q.levels(v), y.requires_grad_())


def test_levels_of_other_proposals():
    y = normal(6, 4, 2, seed=3)
    flow = Independent(Normal(normal(4, 2), torch.ones(4, 2)), 1)
    torch.testing.assert_close(sampling.levels(flow, y), flow.base_dist.cdf(y))
    silent = torch_mixture(torch.zeros(4, 3), torch.zeros(4, 3, 2), torch.ones(4, 3, 2))
    torch.testing.assert_close(sampling.levels(silent, y), torch.special.ndtr(y))  # it does not say
