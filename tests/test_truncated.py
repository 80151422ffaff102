import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from ebreg import sampling
from ebreg.distributions import GaussianMixture, TargetNoise, TruncatedMixture
from ebreg.units import Bounds
from support import rng

F32, F64 = torch.float32, torch.float64
INF = math.inf

BOXES = {
    "both ends": (-1.0, 2.0),
    "lower end": (-0.5, INF),
    "upper end": (-INF, 0.3),
    "no ends": (-INF, INF),
    "far from most": (4.0, 9.0),
    "narrow": (0.2, 0.2001),
}
boxes = pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())
dtypes = pytest.mark.parametrize("dtype", [F32, F64])


def parameters(B: int = 3, K: int = 4, D: int = 1, dtype: torch.dtype = F64) -> tuple[Tensor, ...]:
    g = rng()
    logits, means = (
        torch.randn(B, K, generator=g, dtype=F64),
        2 * torch.randn(B, K, D, generator=g, dtype=F64),
    )
    scales = 0.2 + torch.rand(B, K, D, generator=g, dtype=F64)
    return logits.to(dtype), means.to(dtype), scales.to(dtype)


def ends(box: tuple[float, float], D: int = 1, dtype: torch.dtype = F64) -> tuple[Tensor, Tensor]:
    """The box for every other target, moved on by one each time; no ends for those between."""
    low, high = torch.full((D,), -INF, dtype=dtype), torch.full((D,), INF, dtype=dtype)
    low[::2], high[::2] = (torch.tensor(end, dtype=dtype) + torch.arange(0, D, 2) / 2 for end in box)
    return low, high


def truncated(
    box: tuple[float, float], D: int = 1, dtype: torch.dtype = F64, **sizes: int
) -> TruncatedMixture:
    return TruncatedMixture(*parameters(D=D, dtype=dtype, **sizes), *ends(box, D, dtype))


def single(mean: float, scale: float, low: float, high: float, dtype: torch.dtype = F64) -> TruncatedMixture:
    """One row, one component, one target."""
    mean, scale, low, high = (torch.tensor([v], dtype=dtype) for v in (mean, scale, low, high))
    return TruncatedMixture(mean.new_zeros(1, 1), mean[None, None], scale[None, None], low, high)


def oracle(q: TruncatedMixture, row: int) -> list[tuple[float, object]]:
    """Weights and scipy's truncated Gaussians of a row of one target."""
    low, high = q.low.item(), q.high.item()
    return [
        (w, stats.truncnorm((low - m) / s, (high - m) / s, loc=m, scale=s))
        for w, m, s in zip(
            q.logits[row].exp().tolist(),
            q.means[row, :, 0].tolist(),
            q.scales[row, :, 0].tolist(),
            strict=True,
        )
    ]


def inside(q: TruncatedMixture, n: int) -> Tensor:
    return q.from_uniform(sampling.sobol(n, q.n_targets))


# Hard components in a box from 0 to 1 (or above 0 alone): mean and scale.
HARD = {
    "in the middle": (0.5, 0.1),
    "on the border": (0.0, 0.3),
    "outside": (-1.0, 0.3),
    "almost 6 scales outside": (-1.77, 0.3),
    "50 scales outside": (16.0, 0.3),
    "a spike": (0.3, 1e-9),
    "a spike outside": (-1.0, 1e-9),
    "as wide": (0.2, 1.0),
    "wider": (-2.0, 30.0),
    "flat in single precision": (20.0, 60.0),
    "flat in both": (-1e5, 1e5),
    "very flat": (3.0, 5e8),
    "very flat and far": (-1e30, 5e8),
}
hard = pytest.mark.parametrize(("mean", "scale"), HARD.values(), ids=HARD.keys())
uppers = pytest.mark.parametrize("high", [1.0, INF], ids=["box", "half line"])


# Density


@boxes
def test_log_prob_against_scipy(box):
    q = truncated(box)
    y = inside(q, 32)
    for b in range(3):
        density = sum(w * component.pdf(y[:, b, 0].numpy()) for w, component in oracle(q, b))
        torch.testing.assert_close(q.log_prob(y)[:, b].exp(), torch.as_tensor(density), rtol=1e-9, atol=0)


@pytest.mark.parametrize("D", [1, 2, 3])
@dtypes
def test_density_is_that_of_the_components_over_their_mass(D, dtype):
    q = truncated((-1.0, 2.0), D, dtype)
    y = inside(q, 50)
    low, high, means, scales = (part.double() for part in (q.low, q.high, q.means, q.scales))
    parts = stats.truncnorm.logpdf(
        y.double()[:, :, None], (low - means) / scales, (high - means) / scales, means, scales
    )
    joint = q.logits.double() + torch.as_tensor(parts).sum(dim=-1)
    log_prob = q.log_prob(y)
    assert log_prob.dtype == dtype
    tolerance = {F32: 2e-5, F64: 1e-8}[dtype]
    torch.testing.assert_close(log_prob.double(), joint.logsumexp(dim=-1), rtol=tolerance, atol=tolerance)


@boxes
def test_density_integrates_to_one(box):
    q = truncated(box, B=1)
    low, high = (q.icdf(level).item() for level in (1e-12, 1 - 1e-12))

    def density(y: float) -> float:
        return q.log_prob(torch.tensor([[y]], dtype=F64)).exp().item()

    breaks = q.means.clamp(low, high).flatten().tolist()
    assert abs(integrate.quad(density, low, high, points=breaks)[0] - 1) < 1e-7


def test_density_of_two_targets_integrates_to_one():
    q = TruncatedMixture(
        *parameters(D=2), torch.tensor([-1.0, 0.0], dtype=F64), torch.tensor([2.0, 0.5], dtype=F64)
    )
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(60))
    grid = torch.cartesian_prod(0.5 + 1.5 * nodes, 0.25 + 0.25 * nodes)[:, None].expand(-1, 3, 2)
    area = 1.5 * 0.25 * torch.cartesian_prod(weights, weights).prod(dim=1, keepdim=True)
    total = (area * q.log_prob(grid).exp()).sum(dim=0)
    torch.testing.assert_close(total, torch.ones(3, dtype=F64), rtol=1e-9, atol=0)


@dtypes
def test_the_ends_belong_to_the_box_and_nothing_else_does(dtype):
    q = truncated((-1.0, 2.0), D=3, dtype=dtype)
    corner = torch.stack([q.low, q.high]).nan_to_num(posinf=0.5, neginf=0.5)
    rows = corner[:, None].expand(-1, 3, -1)
    assert q.log_prob(rows).isfinite().all()
    for target in (0, 2):
        out = rows.clone()
        out[0, :, target] = torch.nextafter(out[0, :, target], torch.tensor(-INF, dtype=dtype))
        out[1, :, target] = torch.nextafter(out[1, :, target], torch.tensor(INF, dtype=dtype))
        assert (q.log_prob(out) == -INF).all()
    assert q.log_prob(torch.full((3, 3), math.nan, dtype=dtype)).isnan().all()


def test_ends_in_double_precision_serve_a_mixture_in_single():
    low, high = torch.tensor([-1 / 3], dtype=F64), torch.tensor([2 / 3], dtype=F64)
    q = TruncatedMixture(*parameters(dtype=F32), low, high)
    assert q.low.dtype == F64
    for end in (low, high):
        for dtype in (F32, F64):
            assert q.log_prob(end.to(dtype).expand(3, 1)).isfinite().all()
    draws = q.sample(1000, rng())
    assert draws.dtype == F32
    assert q.log_prob(draws).isfinite().all()
    assert torch.equal(q.double().low, low)


@boxes
@pytest.mark.parametrize("D", [1, 2])
def test_gradients_of_log_prob(box, D):
    values = [part.requires_grad_() for part in parameters(B=2, K=3, D=D)]
    low, high = ends(box, D)
    y = inside(TruncatedMixture(*values, low, high), 3).requires_grad_()

    def log_prob(y: Tensor, *values: Tensor) -> Tensor:
        return TruncatedMixture(*values, low, high, validate_args=False).log_prob(y)

    # Finite differences must not step out of the box.
    shrunk = y.detach() if box == BOXES["narrow"] else y
    assert torch.autograd.gradcheck(log_prob, (shrunk, *values))


def test_second_derivatives_of_log_prob():
    values = [part.requires_grad_() for part in parameters(B=1, K=2)]
    low, high = ends((-1.0, 2.0))
    y = inside(TruncatedMixture(*values, low, high), 2).requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda y, *values: TruncatedMixture(*values, low, high, validate_args=False).log_prob(y), (y, *values)
    )


@boxes
def test_gradients_of_moments_and_distribution_function(box):
    values = [part.requires_grad_() for part in parameters(B=2, K=2)]
    low, high = ends(box)
    y = inside(TruncatedMixture(*values, low, high), 2)

    def answers(*values: Tensor) -> tuple[Tensor, ...]:
        q = TruncatedMixture(*values, low, high, validate_args=False)
        return q.mean, q.variance, q.cdf(y)

    assert torch.autograd.gradcheck(answers, values)


@hard
@uppers
@dtypes
def test_extremes_are_finite(mean, scale, high, dtype):
    q = single(mean, scale, 0.0, high, dtype)
    levels = torch.tensor([1e-6, 0.01, 0.5, 0.99, 1 - 1e-6], dtype=dtype)
    y = torch.cat([q.from_uniform(levels[:, None]), q.icdf(levels), torch.zeros(1, 1, 1, dtype=dtype)])
    assert ((y >= 0) & (y <= high)).all()
    assert y.isfinite().all()
    means, scales = q.means.clone().requires_grad_(), q.scales.clone().requires_grad_()
    q = TruncatedMixture(q.logits, means, scales, q.low, q.high)
    log_prob = q.log_prob(y)
    assert not log_prob.isnan().any()
    answers = [q.mean, q.variance, q.cdf(y), q.covariance]
    assert all(answer.isfinite().all() for answer in answers)
    total = sum(answer.sum() for answer in [log_prob[:-1], *answers])
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(total, [means, scales]))


@hard
@uppers
def test_single_precision_has_the_digits_it_can(mean, scale, high):
    answers = []
    for dtype in (F32, F64):
        # The same numbers in both: what is compared is the arithmetic.
        means, scales = (
            torch.full((1, 1, 1), value, dtype=F32).to(dtype).requires_grad_() for value in (mean, scale)
        )
        y = single(mean, scale, 0.0, high, F32).from_uniform(torch.tensor([[0.1], [0.5], [0.8]])).to(dtype)
        box = (torch.tensor([end], dtype=dtype) for end in (0.0, high))
        log_prob = TruncatedMixture(torch.zeros(1, 1, dtype=dtype), means, scales, *box).log_prob(y)
        gradients = torch.autograd.grad(log_prob.sum(), [means, scales])
        answers.append([log_prob.double(), *(scale * gradient.double() for gradient in gradients)])
    for ours, exact in zip(*answers, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4)


def test_values_outside_have_no_gradient():
    values = [part.requires_grad_() for part in parameters(D=2, dtype=F32)]
    q = TruncatedMixture(*values, *ends((-1.0, 2.0), 2, F32))
    y = torch.tensor([[-2.0, 0.0], [0.0, 0.0], [INF, 0.0]], requires_grad=True)
    log_prob = q.log_prob(y)
    assert log_prob.isinf().tolist() == [True, False, True]
    gradients = torch.autograd.grad(log_prob[1], [y, *values])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][[0, 2]] == 0).all()


def test_a_mean_far_outside_counts_as_6_scales_outside():
    for far, near in [(-50.0, -3.0), (1e6, 4.0)]:
        q, limit = single(far, 0.5, 0.0, 1.0), single(near, 0.5, 0.0, 1.0)
        y = inside(limit, 9)
        assert torch.equal(q.log_prob(y), limit.log_prob(y))
        assert torch.equal(q.means, limit.means)
    assert single(-2.9, 0.5, 0.0, 1.0).means.item() == -2.9


@pytest.mark.parametrize("D", [1, 2])
@dtypes
def test_without_ends_it_is_the_mixture(D, dtype):
    values = parameters(D=D, dtype=dtype)
    plain, q = GaussianMixture(*values), TruncatedMixture(*values, *ends((-INF, INF), D, dtype))
    u = torch.rand(200, 3, D, generator=rng(), dtype=dtype)
    y = 3 * torch.randn(50, 3, D, generator=rng(), dtype=dtype)
    same = {F32: {"rtol": 1e-4, "atol": 1e-5}, F64: {"rtol": 1e-10, "atol": 1e-10}}[dtype]
    assert torch.equal(q.log_prob(y), plain.log_prob(y))
    for name in ("mean", "variance", "covariance"):
        torch.testing.assert_close(getattr(q, name), getattr(plain, name), **same)
    torch.testing.assert_close(q.cdf(y), plain.cdf(y), **same)
    torch.testing.assert_close(q.from_uniform(u), plain.from_uniform(u), **same)
    torch.testing.assert_close(q.place(y[0], u[0, :, 0]), plain.place(y[0], u[0, :, 0]), **same)
    torch.testing.assert_close(q.quantile(0.2), plain.quantile(0.2), **same)
    torch.testing.assert_close(
        q.highest_density_region(0.7).log_threshold, plain.highest_density_region(0.7).log_threshold, **same
    )
    for ours, theirs in zip(q.modes(), plain.modes(), strict=True):
        torch.testing.assert_close(ours.locations, theirs.locations, rtol=0, atol=0.02)
        torch.testing.assert_close(ours.masses, theirs.masses, **same)


# Moments


@boxes
def test_moments_against_scipy(box):
    q = truncated(box)
    for b in range(3):
        parts = [(w, *component.stats("mv")) for w, component in oracle(q, b)]
        mean = sum(w * m for w, m, _ in parts)
        variance = sum(w * (v + (m - mean) ** 2) for w, m, v in parts)
        assert q.mean[b].item() == pytest.approx(float(mean), rel=1e-8)
        # Of a narrow box scipy takes the difference of large numbers; see the next test.
        if box != BOXES["narrow"]:
            assert q.variance[b].item() == pytest.approx(float(variance), rel=1e-7)


@hard
@uppers
@dtypes
def test_moments_against_quadrature(mean, scale, high, dtype):
    q = single(mean, scale, 0.0, high, dtype)
    # Moments are integrals of the quantile function and of its square.
    t = (torch.arange(20_000, dtype=F64) + 0.5) / 20_000
    y = q.double().component_icdf(t[:, None, None, None]).flatten()
    spread = y.std(correction=0).item()
    assert q.mean.item() == pytest.approx(y.mean().item(), abs=2e-3 * spread)
    assert q.stddev.item() == pytest.approx(spread, rel=2e-3)


def test_moments_in_a_narrow_box_are_those_of_a_uniform():
    for width in (1e-2, 1e-6, 1e-12):
        q = single(0.3, 1.0, 0.0, width)
        assert q.mean.item() == pytest.approx(width / 2, rel=1e-2)
        assert q.variance.item() == pytest.approx(width**2 / 12, rel=1e-3)


def test_covariance_against_draws():
    q = truncated((-1.0, 2.0), D=3)
    y = q.sample(100_000, rng())
    products = (y - q.mean)[..., None] * (y - q.mean)[..., None, :]
    error = products.std(dim=0) / math.sqrt(len(y))
    assert ((products.mean(dim=0) - q.covariance).abs() < 4.5 * error).all()
    torch.testing.assert_close(q.covariance.diagonal(dim1=1, dim2=2), q.variance)
    assert ((y.mean(dim=0) - q.mean).abs() < 4.5 * y.std(dim=0) / math.sqrt(len(y))).all()


# Draws


@boxes
@dtypes
def test_samples_agree_with_the_distribution_function(box, dtype):
    q = truncated(box, B=2, dtype=dtype)
    y = q.sample(20_000, rng())
    assert y.dtype == dtype
    assert ((y >= q.low) & (y <= q.high)).all()
    # In single precision a narrow box has few numbers in it.
    rounding = 1e-3 if dtype == F32 else 0
    for row in q.double().cdf(y.double()).T:
        assert stats.kstest(row, "uniform").statistic < 2.2 / math.sqrt(20_000) + rounding


@pytest.mark.parametrize("D", [1, 2, 3])
@dtypes
def test_marginals_of_draws(D, dtype):
    q = truncated((-0.3, 1.0), D, dtype)
    for y in (q.sample(10_000, rng()), inside(q, 8192)):
        assert q.log_prob(y).isfinite().all()
        for d in range(D):
            for row in q.marginal(d).cdf(y[..., [d]]).T:
                assert stats.kstest(row, "uniform").pvalue > 1e-4


def test_sample_shapes_and_generator():
    q = truncated((-1.0, 2.0), D=2)
    assert q.sample().shape == (3, 2)
    assert q.sample((4, 5)).shape == (4, 5, 3, 2)
    state = torch.get_rng_state()
    assert torch.equal(q.sample(6, rng(3)), q.sample((6,), rng(3)))
    assert torch.equal(state, torch.get_rng_state())


@hard
@uppers
@dtypes
def test_levels_come_back_from_draws(mean, scale, high, dtype):
    q = single(mean, scale, 0.0, high, dtype)
    u = torch.linspace(0.001, 0.999, 99, dtype=dtype)[:, None, None]
    y = q.from_uniform(u)
    # Neighbouring numbers may be further apart than the levels.
    eps = torch.finfo(dtype).eps
    resolution = q.log_prob(y).exp() * 4 * eps * (y.abs()[..., 0] + q.scales.item())
    tolerance = {F32: 5e-5, F64: 1e-9}[dtype]
    assert ((q.cdf(y) - u[..., 0]).abs() <= tolerance + resolution).all()


@pytest.mark.parametrize("D", [1, 3])
@dtypes
def test_place_is_where_a_draw_came_from(D, dtype):
    q = truncated((-1.0, 2.0), D, dtype, K=1)
    u = sampling.independent(50, 3, D, rng()).to(dtype)
    for draw, point in zip(q.from_uniform(u), u, strict=True):
        place = q.place(draw, torch.full((3,), 0.5, dtype=dtype))
        torch.testing.assert_close(place, point[:, 0], rtol=0, atol={F32: 1e-5, F64: 1e-9}[dtype])


def test_places_of_draws_are_uniform():
    values = parameters(B=1)
    q = TruncatedMixture(*(part.expand(8000, *part.shape[1:]) for part in values), *ends((-1.0, 2.0)))
    u = torch.rand(8000, generator=rng(), dtype=F64)
    places = q.place(q.sample((), rng(1)), u)
    assert stats.kstest(places, "uniform").pvalue > 1e-4


# Distribution function and quantiles

LEVELS = torch.tensor([1e-9, 1e-4, 0.01, 0.3, 0.5, 0.8, 0.99, 1 - 1e-6], dtype=F64)


@boxes
def test_distribution_function_against_scipy(box):
    q = truncated(box)
    y = inside(q, 64)
    for b in range(3):
        expected = sum(w * component.cdf(y[:, b, 0].numpy()) for w, component in oracle(q, b))
        torch.testing.assert_close(q.cdf(y)[:, b], torch.as_tensor(expected), rtol=1e-8, atol=1e-10)


@boxes
def test_quantiles_invert_the_distribution_function(box):
    q = truncated(box)
    y = q.icdf(LEVELS)
    assert y.shape == (len(LEVELS), 3, 1)
    assert ((y >= q.low) & (y <= q.high)).all()
    resolution = q.log_prob(y).exp() * 4 * torch.finfo(F64).eps * (1 + y[..., 0].abs())
    assert ((q.cdf(y) - LEVELS[:, None]).abs() <= 1e-9 * LEVELS[:, None] + resolution).all()
    assert q.icdf(0.5).shape == (3, 1)


@hard
@uppers
@dtypes
def test_quantiles_of_hard_components(mean, scale, high, dtype):
    q = single(mean, scale, 0.0, high, dtype)
    y = q.icdf(LEVELS)[:, 0, 0]
    assert (y.diff() >= 0).all()
    exact = q.double()
    difference = exact.cdf(y.double()[:, None, None])[:, 0] - LEVELS
    rounding = (
        exact.log_prob(y.double()[:, None, None]).exp()[:, 0] * torch.finfo(dtype).eps * y.double().abs()
    )
    assert (difference.abs() <= 1e-9 + 4 * rounding).all()


@pytest.mark.parametrize("D", [1, 2])
def test_distribution_function_outside_the_box(D):
    q = TruncatedMixture(
        *parameters(D=D), torch.full((D,), -1.0, dtype=F64), torch.full((D,), 2.0, dtype=F64)
    )
    rows = torch.ones(3, D, dtype=F64)
    for below, above in [(-1.0, 2.0), (-5.0, 7.0), (-INF, INF)]:
        assert (q.cdf(below * rows) == 0).all()
        torch.testing.assert_close(q.cdf(above * rows), torch.ones(3, dtype=F64))


@pytest.mark.parametrize("D", [1, 2, 3])
def test_quantiles_of_each_target(D):
    q = truncated((-1.0, 2.0), D)
    y = q.quantile(LEVELS)
    assert y.shape == (len(LEVELS), 3, D)
    assert q.quantile(0.5).shape == (3, D)
    for d in range(D):
        marginal = q.marginal(d)
        assert isinstance(marginal, TruncatedMixture)
        torch.testing.assert_close(marginal.cdf(y[..., [d]]), LEVELS[:, None].expand(-1, 3))
    everywhere = q.high.expand(3, D).clone()
    everywhere[:, 0] = y[4, :, 0]
    torch.testing.assert_close(q.cdf(everywhere), torch.full((3,), 0.5, dtype=F64))


# Shape of the density


def test_a_density_that_falls_has_its_mode_at_the_end():
    for mean, end in [(-2.0, 0.0), (3.0, 1.0)]:
        (row,) = single(mean, 0.8, 0.0, 1.0).modes()
        assert row.locations.tolist() == [[end]]
        assert row.masses.tolist() == pytest.approx([1.0])


def test_modes_inside_and_at_the_end():
    means, scales = torch.tensor([[[-0.5], [3.0]]], dtype=F64), torch.tensor([[[0.4], [0.2]]], dtype=F64)
    q = TruncatedMixture(torch.zeros(1, 2, dtype=F64), means, scales, *ends((0.0, INF)))
    (row,) = q.modes()
    assert sorted(row.locations.flatten().tolist()) == pytest.approx([0.0, 3.0], abs=1e-9)
    torch.testing.assert_close(row.masses, torch.full((2,), 0.5, dtype=F64), rtol=0, atol=1e-3)
    top = q.log_prob(row.locations[:, None])[:, 0]
    torch.testing.assert_close(row.log_densities, top, rtol=0, atol=1e-3)


def test_modes_of_two_targets_on_the_border():
    # The tops are a corner, a point of an edge and a point inside.
    means = torch.tensor([[[-1.0, -1.0]], [[5.0, 0.4]], [[0.3, 0.6]]], dtype=F64)
    scales = torch.tensor([0.9, 0.9, 0.1], dtype=F64)[:, None, None].expand(3, 1, 2)
    square = torch.zeros(2, dtype=F64), torch.ones(2, dtype=F64)
    q = TruncatedMixture(torch.zeros(3, 1, dtype=F64), means, scales, *square)
    for row, top in zip(q.modes(), [(0.0, 0.0), (1.0, 0.4), (0.3, 0.6)], strict=True):
        torch.testing.assert_close(row.locations, torch.tensor([top], dtype=F64), rtol=0, atol=0.02)
        assert ((row.locations >= 0) & (row.locations <= 1)).all()
        assert row.masses.tolist() == [1.0]


@pytest.mark.parametrize("mass", [0.2, 0.9])
def test_region_of_a_density_that_falls(mass):
    q = single(-1.0, 0.8, 0.0, INF)
    (interval,) = q.highest_density_region(mass).intervals[0]
    assert interval[0].item() == 0
    assert interval[1].item() == pytest.approx(q.icdf(mass).item(), abs=1e-3)


@boxes
@pytest.mark.parametrize("mass", [0.3, 0.95])
def test_region_holds_its_mass(box, mass):
    q = truncated(box)
    region = q.highest_density_region(mass)
    for b, intervals in enumerate(region.intervals):
        assert (intervals >= q.low).all()
        assert (intervals <= q.high).all()
        lower, upper = (q.cdf(side[:, None, None].expand(-1, 3, 1))[:, b] for side in intervals.T)
        assert (upper - lower).sum().item() == pytest.approx(mass, abs=2e-3)
    y = q.sample(10_000, rng())
    frequency = region.contains(y).double().mean(dim=0)
    # In the narrow box the density is all but level: where it is above a threshold is a matter of rounding.
    if box != BOXES["narrow"]:
        assert ((frequency - mass).abs() < 4.5 * math.sqrt(mass * (1 - mass) / 10_000) + 2e-3).all()


def test_region_of_two_targets():
    q = truncated((-1.0, 2.0), D=2)
    region = q.highest_density_region(0.8)
    frequency = region.contains(q.sample(20_000, rng())).double().mean(dim=0)
    assert ((frequency - 0.8).abs() < 4.5 * math.sqrt(0.16 / 20_000) + 0.01).all()
    assert not region.contains(torch.full((3, 2), -1.001, dtype=F64)).any()


@boxes
def test_expectations(box):
    q = truncated(box)
    mean = q.expectation(lambda y: y)
    assert ((mean - q.mean).abs() < 1e-3 * q.stddev).all()
    torch.testing.assert_close(q.expectation(lambda y: (y - q.mean) ** 2), q.variance, rtol=3e-3, atol=0)


def test_expectation_of_two_targets():
    q = truncated((-1.0, 2.0), D=2)
    torch.testing.assert_close(q.expectation(lambda y: y), q.mean, rtol=0, atol=0.02)


@hard
@uppers
def test_shapes_of_hard_components(mean, scale, high):
    q = single(mean, scale, 0.0, high)
    (row,) = q.modes()
    top = min(max(mean, 0.0), high)
    if scale < 10:  # a level density has its mode anywhere
        assert row.locations[0].item() == pytest.approx(top, abs=1e-6 + 0.01 * scale)
    assert q.expectation(lambda y: y).item() == pytest.approx(q.mean.item(), abs=1e-3 * q.stddev.item())
    (intervals,) = q.highest_density_region(0.5).intervals
    assert (intervals >= 0).all()
    assert (intervals <= high).all()


# Other units


@pytest.mark.parametrize("D", [1, 2])
def test_rescaled(D):
    q = truncated((-1.0, 2.0), D, F32)
    shift, scale = torch.tensor([5.0, -1.0][:D], dtype=F64), torch.tensor([100.0, 0.01][:D], dtype=F64)
    rescaled = q.rescaled(shift, scale)
    assert isinstance(rescaled, TruncatedMixture)
    assert rescaled.means.dtype == F64
    assert torch.equal(rescaled.low, shift + scale * q.low)
    assert torch.equal(rescaled.high, shift + scale * q.high)
    y = inside(q.double(), 9)
    torch.testing.assert_close(
        rescaled.log_prob(shift + scale * y), q.double().log_prob(y) - scale.log().sum()
    )
    torch.testing.assert_close(rescaled.mean, shift + scale * q.double().mean)
    torch.testing.assert_close(rescaled.covariance, scale[:, None] * scale * q.double().covariance)


def test_double():
    q = truncated((-1.0, 2.0), dtype=F32).double()
    assert isinstance(q, TruncatedMixture)
    assert {part.dtype for part in (q.logits, q.means, q.scales, q.low, q.high)} == {F64}


def test_support():
    q = truncated((-1.0, 2.0), D=2)
    y = torch.tensor([[0.0, 9.0], [2.0, 0.0], [2.1, 0.0]], dtype=F64)
    assert q.support.check(y).tolist() == [True, True, False]


# Noise around the target


@pytest.mark.parametrize("D", [1, 2])
def test_truncated_target_noise(D):
    y = torch.rand(4, D, generator=rng(), dtype=F64)
    noise = TargetNoise([0.1, 0.8])
    zero, one = torch.zeros(D, dtype=F64), torch.ones(D, dtype=F64)
    q = noise.around(y, unit=2.0, bounds=Bounds(zero, one))
    assert isinstance(q, TruncatedMixture)
    assert torch.equal(q.scales, noise.around(y, unit=2.0).scales)
    draws = q.sample(2000, rng())
    assert ((draws >= 0) & (draws <= 1)).all()
    for i in range(4):
        components = [stats.truncnorm(-y[i, 0] / s, (1 - y[i, 0]) / s, y[i, 0], s) for s in (0.05, 0.4)]
        cdf = sum(0.5 * component.cdf(draws[:, i, 0].numpy()) for component in components)
        assert stats.kstest(cdf, "uniform").pvalue > 1e-4
    for low, high in ((zero, torch.inf * one), (-torch.inf * one, one)):
        one_sided = noise.around(y, bounds=Bounds(low, high)).sample(2000, rng())
        assert (one_sided < 0).any() == low.isinf().all()
        assert (one_sided > 1).any() == high.isinf().all()
    assert not isinstance(noise.around(y), TruncatedMixture)


# Wrong arguments


@pytest.mark.parametrize("box", [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.nan), (INF, INF)])
def test_wrong_ends_are_refused(box):
    low, high = (torch.tensor([0.0, end], dtype=F64) for end in box)
    low[0] = -1.0
    with pytest.raises(ValueError, match=r"low must lie below high in every target, got \[-1.0, .*\] and \["):
        TruncatedMixture(*parameters(D=2), low, high)
    TruncatedMixture(*parameters(D=2), low, high, validate_args=False)


def test_wrong_shapes_are_refused():
    low, high = ends((-1.0, 2.0), 2)
    for name, pair in {"low": (low[:1], high), "high": (low, high.expand(3, 2))}.items():
        with pytest.raises(ValueError, match=rf"{name} must have shape \(2,\), got"):
            TruncatedMixture(*parameters(D=2), *pair)
    q = TruncatedMixture(*parameters(D=2), low, high)
    for ask in (q.log_prob, q.cdf):
        with pytest.raises(ValueError, match=r"value must have shape \(3, 2\), got \(3, 1\)"):
            ask(torch.zeros(3, 1, dtype=F64))
    with pytest.raises(ValueError, match="scales must be above 0"):
        TruncatedMixture(*parameters(D=2)[:2], torch.zeros(3, 4, 2, dtype=F64), low, high)
