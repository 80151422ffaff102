import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Normal

from ebreg import importance
from support import rng

MU, SIGMA, C = 0.7, 0.8, -3.0  # p = N(MU, SIGMA^2), f = log p + C, q = N(0, 1) in the closed-form tests


def normal_problem(M: int, B: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    return log_densities(torch.randn(M, B, generator=rng(seed), dtype=torch.float64))


def log_densities(y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return y, Normal(MU, SIGMA).log_prob(y) + C, Normal(0.0, 1.0).log_prob(y)


def random_pair(M: int = 40, B: int = 5, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    f, log_q = torch.randn(2, M, B, generator=rng(1), dtype=torch.float64)
    return (2 * f).to(dtype), log_q.to(dtype)


def log_partition(f: Tensor, log_q: Tensor) -> Tensor:
    return torch.logsumexp(f - log_q, dim=0) - math.log(f.shape[0])


def chi_square_divergence() -> float:
    """Integral of p^2 / q - 1 for the Gaussians above, by completing the square."""
    a, b, c = 1 / SIGMA**2 - 0.5, MU / SIGMA**2, MU**2 / SIGMA**2
    return math.exp(b * b / a - c) * math.sqrt(math.pi / a) / (math.sqrt(2 * math.pi) * SIGMA**2) - 1


def diagnostics(f: Tensor, log_q: Tensor) -> Tensor:
    verbs = (importance.effective_sample_size, importance.log_partition_error, importance.pareto_k)
    return torch.stack([verb(f, log_q) for verb in verbs])


# Exact identities


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_proposal_equal_to_model(dtype):
    # Halves and integers, so that f - log_q is exact in both precisions.
    log_q = torch.randint(-9, 9, (64, 3), generator=rng()).to(dtype) / 2
    f = log_q + torch.tensor([0.0, 2.5, -300.0], dtype=dtype)
    torch.testing.assert_close(importance.normalized_weights(f, log_q), torch.full_like(f, 1 / 64))
    torch.testing.assert_close(importance.log_weights(f, log_q), torch.full_like(f, -math.log(64)))
    ess, error, k = diagnostics(f, log_q)
    assert torch.equal(ess, torch.full_like(ess, 64.0))
    assert torch.equal(error, torch.zeros_like(error))
    assert torch.equal(k, torch.full_like(k, -math.inf))


def test_proposal_equal_to_model_up_to_rounding():
    log_q = 3 * torch.randn(1000, 50, generator=rng())
    assert (importance.pareto_k(log_q + 0.1, log_q) < 0.5).all()


def test_constant_added_to_f_changes_nothing():
    f, log_q = random_pair()
    shifted = f + torch.tensor([0.0, 1.0, -7.0, 500.0, -1e5], dtype=f.dtype)
    torch.testing.assert_close(
        importance.log_weights(shifted, log_q), importance.log_weights(f, log_q), rtol=0, atol=1e-9
    )
    torch.testing.assert_close(diagnostics(shifted, log_q), diagnostics(f, log_q), rtol=1e-8, atol=0)


def test_permuting_draws_permutes_weights_only():
    f, log_q = random_pair()
    y = torch.randn(40, 5, 2, generator=rng(3), dtype=torch.float64)
    order = torch.randperm(40, generator=rng(2))
    w, w_permuted = (importance.normalized_weights(f[i], log_q[i]) for i in (slice(None), order))
    torch.testing.assert_close(w_permuted, w[order])
    torch.testing.assert_close(diagnostics(f[order], log_q[order]), diagnostics(f, log_q))
    torch.testing.assert_close(importance.expectation(y[order], w_permuted), importance.expectation(y, w))
    q = torch.linspace(0, 1, 7)
    assert torch.equal(importance.quantile(y[order], w_permuted, q), importance.quantile(y, w, q))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_are_a_distribution(dtype):
    f, log_q = random_pair(dtype=dtype)
    w = importance.normalized_weights(f, log_q)
    assert w.dtype == dtype
    torch.testing.assert_close(w.sum(dim=0), torch.ones(5, dtype=dtype))
    torch.testing.assert_close(importance.log_weights(f, log_q).exp(), w)
    torch.testing.assert_close(importance.effective_sample_size(f, log_q), 1 / w.square().sum(dim=0))
    assert all(verb.dtype == dtype for verb in diagnostics(f, log_q))


# Independent reference: plain loops over Python floats


def test_against_slow_loops():
    M, B = 13, 4
    f, log_q = random_pair(M, B)
    y = torch.randn(M, B, generator=rng(4), dtype=torch.float64)
    w = importance.normalized_weights(f, log_q)
    ess, error, _ = diagnostics(f, log_q)
    mean, log_z_error = importance.expectation(y, w), importance.replicate_error(f)
    probs = [0.0, 0.05, 0.3, 0.5, 0.77, 1.0]
    quantiles = importance.quantile(y, w, torch.tensor(probs, dtype=torch.float64))
    for b in range(B):
        ratios = [math.exp(f[m, b]) / math.exp(log_q[m, b]) for m in range(M)]
        weights = [r / sum(ratios) for r in ratios]
        assert w[:, b].tolist() == pytest.approx(weights, rel=1e-12)
        assert ess[b].item() == pytest.approx(1 / sum(v * v for v in weights), rel=1e-12)
        assert error[b].item() == pytest.approx(
            np.std(ratios, ddof=1) / math.sqrt(M) / np.mean(ratios), rel=1e-12
        )
        z = [math.exp(v) for v in f[:, b].tolist()]
        assert log_z_error[b].item() == pytest.approx(
            np.std(z, ddof=1) / math.sqrt(M) / np.mean(z), rel=1e-12
        )
        assert mean[b].item() == pytest.approx(sum(weights[m] * y[m, b].item() for m in range(M)), rel=1e-12)
        for i, prob in enumerate(probs):
            values = y[:, b].tolist()
            reached = [
                v
                for v in values
                if sum(w for u, w in zip(values, weights, strict=True) if u <= v) >= prob - 1e-12
            ]
            assert quantiles[i, b].item() == min(reached)


# Closed forms for Gaussian p and q


def test_gaussian_moments_and_effective_sample_size():
    M, B = 4096, 200
    y, f, log_q = normal_problem(M, B)
    w = importance.normalized_weights(f, log_q)
    ess = importance.effective_sample_size(f, log_q)
    assert (ess / M).mean().item() == pytest.approx(1 / (1 + chi_square_divergence()), rel=0.01)

    mean = importance.expectation(y, w)
    variance = importance.expectation((y - mean).square(), w)
    for estimate, truth in [(mean, MU), (variance, SIGMA**2)]:
        standard_error = estimate.std() / math.sqrt(B)
        # The bias of a ratio estimate is of order 1/M, smaller than the standard error of B rows here.
        assert abs(estimate.mean() - truth) < 4 * standard_error
    probability = importance.expectation(y < MU, w)
    assert probability.mean().item() == pytest.approx(0.5, abs=0.005)
    quartile = importance.quantile(y, w, 0.25)
    assert quartile.mean().item() == pytest.approx(stats.norm(MU, SIGMA).ppf(0.25), abs=0.01)


def test_log_partition_error_agrees_with_replications():
    M, B = 1024, 2000
    _, f, log_q = normal_problem(M, B, seed=1)
    observed = log_partition(f, log_q).std().item()
    stated = importance.log_partition_error(f, log_q).mean().item()
    assert stated == pytest.approx(math.sqrt(chi_square_divergence() / M), rel=0.02)
    assert stated == pytest.approx(observed, rel=0.06)  # the std of 2,000 values is known to 1.6 %


def sobol_normal(M: int, R: int, D: int = 1) -> Tensor:
    """R independently scrambled Sobol sets pushed through the normal icdf, shape (M, R, D)."""
    sets = [
        torch.quasirandom.SobolEngine(D, scramble=True, seed=r).draw(M, dtype=torch.float64) for r in range(R)
    ]
    return torch.special.ndtri(torch.stack(sets, dim=1).clamp(1e-12, 1 - 1e-12))


@pytest.mark.parametrize(("quasi", "low", "high"), [(False, -0.56, -0.44), (True, -2.5, -0.8)])
def test_rate_of_log_partition(quasi, low, high):
    sizes = [2**i for i in range(5, 12)]
    errors = []
    for M in sizes:
        y = sobol_normal(M, 64).squeeze(-1) if quasi else normal_problem(M, 1000, seed=M)[0]
        _, f, log_q = log_densities(y)
        errors.append((log_partition(f, log_q) - C).square().mean().sqrt().item())
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert low < slope < high


def test_replicate_error_of_quasi_random_draws():
    M, R, groups = 256, 8, 60
    _, f, log_q = log_densities(sobol_normal(M, R * groups).squeeze(-1))
    log_z = log_partition(f, log_q).reshape(R, groups)
    combined = torch.logsumexp(log_z, dim=0) - math.log(R)
    observed = (combined - C).square().mean().sqrt().item()
    stated = importance.replicate_error(log_z).square().mean().sqrt().item()
    assert stated == pytest.approx(observed, rel=0.3)  # the rms of 60 values is known to 9 %
    independent = importance.log_partition_error(f, log_q).mean().item() / math.sqrt(R)
    assert independent > 3 * stated


# Expectation


def test_expectation_ignores_values_of_weight_zero():
    values = torch.tensor([[1.0, math.inf], [math.inf, 2.0], [math.nan, -math.inf]])
    weights = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert importance.expectation(values, weights).tolist() == [1.0, 2.0]
    assert importance.expectation(values, weights.new_full((3, 2), 1 / 3))[
        1
    ].isnan()  # inf - inf is undefined


def test_expectation_shapes():
    w = importance.normalized_weights(*random_pair())
    for extra in [(), (2,), (2, 3)]:
        values = torch.randn(40, 5, *extra, generator=rng(), dtype=torch.float64)
        result = importance.expectation(values, w)
        assert result.shape == (5, *extra)
        torch.testing.assert_close(result, torch.einsum("mb,mb...->b...", w, values))


# Quantiles


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("q_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("M", [4, 10, 49, 1000])
def test_quantiles_of_equal_weights_survive_rounding(dtype, q_dtype, M):
    values = torch.arange(1, M + 1, dtype=dtype)[torch.randperm(M, generator=rng())][:, None]
    q = torch.arange(1, M + 1, dtype=q_dtype) / M
    result = importance.quantile(values, torch.full((M, 1), 1 / M, dtype=dtype), q)
    assert torch.equal(result[:, 0], torch.arange(1, M + 1, dtype=dtype))


def test_quantile_shapes_and_marginals():
    f, log_q = random_pair()
    w = importance.normalized_weights(f, log_q)
    y = torch.randn(40, 5, 3, generator=rng(), dtype=torch.float64)
    q = torch.tensor([0.1, 0.5, 0.9])
    both = importance.quantile(y, w, q)
    assert both.shape == (3, 5, 3)
    assert (
        importance.quantile(y, w, 0.5).shape == importance.quantile(y, w, torch.tensor(0.5)).shape == (5, 3)
    )
    assert importance.quantile(y[..., 0], w, 0.5).shape == (5,)
    assert importance.quantile(y, w, torch.tensor([0.5])).shape == (1, 5, 3)
    for d in range(3):
        assert torch.equal(importance.quantile(y[..., d], w, q), both[..., d])
    for i in range(3):
        assert torch.equal(importance.quantile(y, w, q[i].item()), both[i])


def test_quantile_inverts_the_weighted_cdf():
    f, log_q = random_pair()
    w = importance.normalized_weights(f, log_q)
    y = torch.randn(40, 5, generator=rng(), dtype=torch.float64)
    cdf = ((y[None] <= y[:, None]) * w[None]).sum(dim=1)  # at every draw
    for b in range(5):
        assert torch.equal(importance.quantile(y, w, cdf[:, b].clamp(max=1.0))[:, b], y[:, b])


def test_quantile_skips_values_of_weight_zero():
    values = torch.tensor([-math.inf, 1.0, 2.0, math.inf])[:, None]
    weights = torch.tensor([0.0, 0.5, 0.5, 0.0])[:, None]
    q = torch.tensor([0.0, 0.5, 0.51, 1.0])
    assert importance.quantile(values, weights, q)[:, 0].tolist() == [1.0, 1.0, 2.0, 2.0]


def test_quantile_does_not_hide_unusable_weights():
    weights = torch.tensor([[0.5, math.nan, 0.0], [0.5, 0.5, 0.0]])
    result = importance.quantile(torch.arange(6.0).reshape(2, 3), weights, torch.tensor([0.0, 0.5, 1.0]))
    assert result.isnan().all(dim=0).tolist() == [False, True, True]


# Resampling


def test_resample_frequencies():
    weights = torch.tensor([[0.1, 0.0], [0.2, 0.25], [0.3, 0.75], [0.4, 0.0]], dtype=torch.float64)
    draws = torch.arange(8.0).reshape(4, 2, 1).expand(4, 2, 3)
    samples = importance.resample(draws, weights, 20_000, rng())
    assert samples.shape == (20_000, 2, 3)
    assert torch.equal(samples[..., 0], samples[..., 2])  # whole draws, not coordinates
    for b in range(2):
        counts = torch.stack([(samples[:, b, 0] == draws[m, b, 0]).sum() for m in range(4)]).numpy()
        possible = weights[:, b].numpy() > 0
        assert counts[~possible].sum() == 0
        assert stats.chisquare(counts[possible], 20_000 * weights[possible, b].numpy()).pvalue > 0.01
    # Independent in time: neighbours agree as often as chance has it.
    first = samples[:, 0, 0]
    repeats = (first[1:] == first[:-1]).double().mean().item()
    assert repeats == pytest.approx(weights[:, 0].square().sum().item(), abs=0.015)


def test_resample_follows_the_model():
    y, f, log_q = normal_problem(50_000, 2, seed=3)
    samples = importance.resample(y[..., None], importance.normalized_weights(f, log_q), 500, rng(5))
    for b in range(2):
        assert stats.kstest(samples[:, b, 0].numpy(), stats.norm(MU, SIGMA).cdf).pvalue > 0.01


def test_resample_leaves_the_global_generator_alone():
    weights, draws = torch.full((4, 2), 0.25), torch.randn(4, 2, 1, generator=rng())
    before = torch.get_rng_state()
    first = importance.resample(draws, weights, 50, rng(7))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(importance.resample(draws, weights, 50, rng(7)), first)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        free = importance.resample(draws, weights, 50)
        assert not torch.equal(importance.resample(draws, weights, 50), free)  # advanced, not reset


# Pareto k


@pytest.mark.parametrize("M", [25, 99, 224, 225, 226, 1000, 4000])
@pytest.mark.parametrize("tail", ["bounded", "light", "medium", "heavy", "very heavy"])
def test_pareto_k_against_arviz(M, tail):
    psislw = pytest.importorskip("arviz_stats.base").array_stats.psislw
    noise = torch.randn(M, 6, generator=rng(M), dtype=torch.float64)
    log_ratio = {
        "bounded": torch.special.log_ndtr(noise),
        "light": 0.1 * noise,
        "medium": noise,
        "heavy": -0.9 * torch.special.log_ndtr(noise),
        "very heavy": 20 * noise,
    }[tail]
    log_q = torch.randn(M, 6, generator=rng(), dtype=torch.float64)
    # arviz takes log likelihoods, the negative log ratios of leave-one-out cross-validation.
    _, oracle = psislw(-log_ratio.numpy(), axis=0)
    torch.testing.assert_close(
        importance.pareto_k(log_ratio + log_q, log_q), torch.from_numpy(oracle), rtol=1e-8, atol=1e-8
    )
    single = importance.pareto_k(log_ratio.float(), torch.zeros(M, 6))
    torch.testing.assert_close(single.double(), torch.from_numpy(oracle), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("k", [-0.5, 0.0, 0.3, 0.7, 1.5])
def test_pareto_k_finds_the_shape_of_a_pareto_tail(k):
    M, B = 5000, 100
    u = torch.rand(M, B, generator=rng(), dtype=torch.float64)
    ratio = -u.log() if k == 0 else (u**-k - 1) / k
    n = int(3 * math.sqrt(M))
    expected = (n * k + 5) / (n + 10)  # the prior's pull included
    estimate = importance.pareto_k(ratio.log(), torch.zeros(M, B, dtype=torch.float64)).mean().item()
    assert estimate == pytest.approx(expected, abs=0.04)


def test_pareto_k_that_cannot_be_judged_is_infinite():
    f, log_q = random_pair(24, 3)
    assert importance.pareto_k(f, log_q).tolist() == [math.inf] * 3
    f, log_q = random_pair(25, 3)
    assert importance.pareto_k(f, log_q).isfinite().all()
    f, log_q = random_pair(100, 3)  # a tail of 20 and the ratio below it
    f[20:, 0] = -math.inf
    f[21:, 1] = -math.inf
    assert importance.pareto_k(f, log_q).isfinite().tolist() == [False, True, True]
    assert importance.pareto_k(f, log_q)[0] == math.inf


def test_pareto_k_of_one_dominant_ratio_among_ties():
    f = torch.zeros(100, 2, dtype=torch.float64)
    f[3] = torch.tensor([20.0, 1e30])
    k = importance.pareto_k(f, torch.zeros_like(f))
    assert k.isfinite().all()
    assert (k > 1).all()


def test_pareto_k_where_a_grid_point_is_exactly_zero():
    # Found by search: in single precision these tails put a point of the fit's grid on 0, where it is 0 / 0.
    tails = torch.tensor(
        [
            [0.170140535, 0.218450785, 0.227052823, 0.314062625, 0.432281941, 0.490917504],
            [0.366883725, 0.439150602, 0.615903318, 0.712167978, 0.74211216, 0.819632769],
        ]
    )
    f = torch.cat([torch.full((19, 2), -1.0), tails.T])
    k = importance.pareto_k(f, torch.zeros_like(f))
    exact = importance.pareto_k(f.double(), torch.zeros(25, 2, dtype=torch.float64))
    torch.testing.assert_close(k.double(), exact, rtol=0, atol=1e-4)


# Extremes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("M", [1, 2, 30, 300])
def test_extremes_stay_finite(dtype, M):
    noise, log_q, f = torch.randn(3, M, 7, generator=rng(), dtype=torch.float64).to(dtype)
    log_q[:, 1] = -1e4
    f[0, 0], f[:, 1], f[0, 2] = 1e30, 1e30, -1e30
    f[:, 3], f[M // 2 :, 4], f[:, 5] = -1e30, -math.inf, 1e30 * noise[:, 5]
    f[:, 6] = -math.inf
    w = importance.normalized_weights(f, log_q)
    assert w.isfinite().all()
    torch.testing.assert_close(w.sum(dim=0), torch.ones(7, dtype=dtype))
    log_w = importance.log_weights(f, log_q)
    assert not log_w.isnan().any()
    torch.testing.assert_close(torch.logsumexp(log_w, dim=0), torch.zeros(7, dtype=dtype), rtol=0, atol=1e-5)
    ess, error, k = diagnostics(f, log_q)
    assert ess.isfinite().all()
    assert not k.isnan().any()
    assert not error.isnan().any()
    assert error[:6].isfinite().all() == (M > 1)
    if M > 1:
        torch.testing.assert_close(
            importance.effective_sample_size(f, log_q)[1], torch.tensor(float(M), dtype=dtype)
        )
    if M >= 30:
        assert k[[0, 2, 5]].isfinite().all()
    assert importance.quantile(noise, w, torch.tensor([0.0, 0.5, 1.0])).isfinite().all()
    assert importance.resample(noise[..., None], w, 3, rng()).isfinite().all()
    if M > 1:
        assert not importance.replicate_error(f).isnan().any()


def test_row_without_any_usable_draw():
    f, log_q = random_pair(50, 2)
    f[:, 0] = -math.inf
    f.requires_grad_()
    w = importance.normalized_weights(f, log_q)
    assert w[:, 0].tolist() == pytest.approx([1 / 50] * 50)
    assert importance.log_weights(f, log_q)[:, 0].tolist() == pytest.approx([-math.log(50)] * 50)
    assert diagnostics(f, log_q)[:, 0].tolist() == [0.0, math.inf, math.inf]
    assert importance.replicate_error(f)[0] == math.inf
    total = w.square().sum() + importance.effective_sample_size(f, log_q).sum()
    (grad,) = torch.autograd.grad(total + importance.log_partition_error(f, log_q)[1], f)
    assert grad.isfinite().all()


def test_batch_without_rows():
    f = torch.zeros(30, 0)
    w = importance.normalized_weights(f, f)
    assert w.shape == (30, 0)
    assert diagnostics(f, f).shape == (3, 0)
    assert importance.expectation(torch.zeros(30, 0, 2), w).shape == (0, 2)
    assert importance.quantile(torch.zeros(30, 0, 2), w, torch.tensor([0.1, 0.9])).shape == (2, 0, 2)
    assert importance.resample(torch.zeros(30, 0, 2), w, 4, rng()).shape == (4, 0, 2)
    assert importance.replicate_error(f).shape == (0,)


# Gradients


@pytest.mark.parametrize(
    "function",
    [
        importance.log_weights,
        importance.normalized_weights,
        importance.effective_sample_size,
        importance.log_partition_error,
        lambda f, log_q: importance.replicate_error(f + log_q),
        lambda f, log_q: importance.expectation(log_q, importance.normalized_weights(f, log_q)),
        lambda f, log_q: (
            importance.quantile(f, importance.normalized_weights(0 * f, 0 * log_q), 0.4) + log_q[0]
        ),
    ],
)
def test_gradcheck(function):
    f, log_q = (t.requires_grad_() for t in random_pair(6, 3))
    assert torch.autograd.gradcheck(function, (f, log_q))


def test_no_gradient_where_none_is_natural():
    f, log_q = random_pair()
    assert not importance.pareto_k(f.requires_grad_(), log_q).requires_grad
    w = importance.normalized_weights(f, log_q)
    assert not importance.quantile(log_q, w, 0.5).requires_grad
    assert not importance.resample(log_q[..., None], w, 3, rng()).requires_grad
    draws = log_q[..., None].clone().requires_grad_()
    importance.resample(draws, w, 3, rng()).sum().backward()
    assert draws.grad.sum().item() == pytest.approx(15.0)


# Errors name the argument, what it takes and what it got

PAIR_FUNCTIONS = [
    importance.log_weights,
    importance.normalized_weights,
    importance.effective_sample_size,
    importance.log_partition_error,
    importance.pareto_k,
]
GOOD = torch.zeros(4, 3)


@pytest.mark.parametrize("function", PAIR_FUNCTIONS)
@pytest.mark.parametrize(
    ("f", "log_q", "error", "message"),
    [
        (GOOD, torch.zeros(4, 2), ValueError, r"log_q must have shape .*\(4, 3\) of f, got \(4, 2\)"),
        (GOOD, torch.zeros(4, 1), ValueError, r"log_q must have shape .*\(4, 3\) of f, got \(4, 1\)"),
        (torch.zeros(4), torch.zeros(4), ValueError, r"f must have shape \(M, B\).*got \(4,\)"),
        (GOOD, torch.zeros(4, 3, 1), ValueError, r"log_q must have shape \(M, B\).*got \(4, 3, 1\)"),
        (torch.zeros(0, 3), torch.zeros(0, 3), ValueError, r"f must have .*got \(0, 3\)"),
        (GOOD.int(), GOOD, TypeError, r"f must be a floating-point tensor.*got torch\.int32"),
        (GOOD, GOOD.numpy(), TypeError, r"log_q must be a floating-point tensor.*got ndarray"),
    ],
)
def test_pair_errors(function, f, log_q, error, message):
    with pytest.raises(error, match=message):
        function(f, log_q)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: importance.expectation(torch.zeros(3, 4), GOOD),
            ValueError,
            r"values must have shape \(M, B, \.\.\.\) with the \(M, B\) = \(4, 3\) of weights, got \(3, 4\)",
        ),
        (lambda: importance.expectation([1.0], GOOD), TypeError, r"values must be a tensor .*got list"),
        (lambda: importance.expectation(GOOD, GOOD.long()), TypeError, r"weights must be .*got torch\.int64"),
        (lambda: importance.expectation(GOOD, GOOD[0]), ValueError, r"weights must have .*got \(3,\)"),
        (
            lambda: importance.quantile(torch.zeros(4), GOOD, 0.5),
            ValueError,
            r"values must have .*got \(4,\)",
        ),
        (
            lambda: importance.quantile(torch.zeros(4, 3, 2, 2), GOOD, 0.5),
            ValueError,
            r"values must have shape \(M, B\) or \(M, B, D\), got \(4, 3, 2, 2\)",
        ),
        (lambda: importance.quantile(GOOD.int(), GOOD, 0.5), TypeError, r"values must be .*got torch\.int32"),
        (lambda: importance.quantile(GOOD, GOOD, 1.5), ValueError, r"q must lie in \[0, 1\], got 1\.5"),
        (lambda: importance.quantile(GOOD, GOOD, math.nan), ValueError, r"q must lie in \[0, 1\], got nan"),
        (lambda: importance.quantile(GOOD, GOOD, GOOD), ValueError, r"q must be .*got shape \(4, 3\)"),
        (lambda: importance.quantile(GOOD, GOOD, [0.5]), TypeError, r"q must be a float .*got list"),
        (
            lambda: importance.resample(torch.zeros(4, 2, 1), GOOD, 1),
            ValueError,
            r"draws must have shape .*\(4, 3\) of weights, got \(4, 2, 1\)",
        ),
        (lambda: importance.resample(GOOD, GOOD, 2.0), TypeError, r"n must be an int, got float"),
        (lambda: importance.resample(GOOD, GOOD, 0), ValueError, r"n must be at least 1, got 0"),
        (lambda: importance.replicate_error(GOOD[:1]), ValueError, r"log_partitions .*R >= 2 .*got R = 1"),
        (lambda: importance.replicate_error(GOOD[0]), ValueError, r"log_partitions .*\(R, B\).*got \(3,\)"),
        (
            lambda: importance.replicate_error(GOOD.int()),
            TypeError,
            r"log_partitions must .*got torch\.int32",
        ),
    ],
)
def test_other_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
