import math

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Distribution, StudentT

from ebreg import sampling
from ebreg.distributions import GaussianMixture
from ebreg.objectives import log_partition, nce
from ebreg.sampling import SAMPLERS, Draws, Independent, Stratified
from support import rng


def mixture(
    B: int, weights: list[float], means: list[float], scales: list[float], dtype: torch.dtype = torch.float64
) -> GaussianMixture:
    """The same one-dimensional mixture in each of B rows."""
    rows = torch.tensor([weights, means, scales], dtype=dtype)[:, None].expand(3, B, -1)
    return GaussianMixture(rows[0].log(), rows[1, ..., None], rows[2, ..., None])


def proposal(B: int, dtype: torch.dtype = torch.float64) -> GaussianMixture:
    return mixture(B, [0.3, 0.2, 0.3, 0.2], [-3.0, -1.0, 1.0, 3.0], [0.5, 0.6, 0.5, 0.6], dtype)


def model(B: int) -> GaussianMixture:
    return mixture(B, [0.6, 0.3, 0.1], [-2.8, 0.9, 2.9], [0.35, 0.4, 0.4])


def random_mixture(D: int, K: int = 4, B: int = 1, seed: int = 0, dtype=torch.float64) -> GaussianMixture:
    g = rng(seed)
    logits, means = torch.randn(B, K, generator=g), 2 * torch.randn(B, K, D, generator=g)
    scales = 0.2 + torch.rand(B, K, D, generator=g)
    return GaussianMixture(logits.to(dtype), means.to(dtype), scales.to(dtype))


def assert_zero(values: Tensor, standard_errors: float = 4.5) -> None:
    """The mean over the first axis is zero within standard errors."""
    error = values.std(dim=0) / math.sqrt(len(values))
    assert (values.mean(dim=0).abs() < standard_errors * error).all(), (values.mean(dim=0) / error).tolist()


# Points in the unit cube

POINTS = {"independent": sampling.independent, "stratified": sampling.stratified}


@pytest.mark.parametrize("name", POINTS)
def test_points_are_uniform_and_seeded(name):
    u = POINTS[name](50, 400, 3, rng())
    assert u.shape == (50, 400, 3)
    assert u.min() >= 0
    assert u.max() <= 1
    for d in range(3):
        assert stats.kstest(u[..., d].flatten(), "uniform").pvalue > 1e-4
    assert torch.equal(u, POINTS[name](50, 400, 3, rng()))
    state = torch.get_rng_state()
    POINTS[name](5, 4, 3, rng())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("n", [1, 7, 1024])
def test_every_stratum_has_one_point(n):
    u = sampling.stratified(n, 20, 2, rng())
    strata = (u[..., 0].double() * n).floor()
    # In single precision a point may be rounded up to the border of its stratum.
    border = (u[..., 0].double() * n - torch.arange(1, n + 1)[:, None]).abs() < 1e-3
    assert ((strata == torch.arange(n)[:, None]) | border).all()
    assert border.double().mean() < 0.01
    inside = u[..., 0].double() * n - torch.arange(n)[:, None]
    assert n == 1 or stats.kstest(inside.flatten(), "uniform").pvalue > 1e-4


def test_strata_are_independent_of_each_other():
    inside = sampling.stratified(4, 20_000, 1, rng())[..., 0] * 4 - torch.arange(4)[:, None]
    correlation = torch.corrcoef(inside) - torch.eye(4)
    assert correlation.abs().max() < 4.5 / math.sqrt(20_000)


def test_sobol_continues_and_stays_inside():
    longer, shorter = sampling.sobol(1000, 3), sampling.sobol(300, 3)
    assert torch.equal(longer[:300], shorter)
    assert longer.dtype == torch.float64
    assert longer.min() > 0
    assert longer.max() < 1
    assert not torch.equal(sampling.sobol(8, 3, seed=1), sampling.sobol(8, 3, seed=2))
    shorter.zero_()  # the caller's copy
    assert torch.equal(sampling.sobol(300, 3), longer[:300])
    assert ((sampling.sobol(64, 2) * 64).floor().sort(dim=0).values == torch.arange(64)[:, None]).all()


@pytest.mark.parametrize("extreme", [0.0, 1 - 2.0**-24])
@pytest.mark.parametrize("name", POINTS)
def test_points_lie_inside_the_cube(monkeypatch, name, extreme):
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.full(shape, extreme))
    u = POINTS[name](1024, 2, 2)
    assert u.min() > 0
    assert u.max() < 1


# From points to draws


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("D", [1, 3])
@pytest.mark.parametrize("name", POINTS)
def test_uniform_points_become_draws_of_the_mixture(name, D, dtype):
    q = random_mixture(D, dtype=dtype)
    y = q.from_uniform(
        POINTS[name](100, 400, D, rng(1)).transpose(0, 1).reshape(-1, 1, D)
    ).double()  # (40000, 1, D)
    q = q.double()
    for d in range(D):
        marginal = GaussianMixture(q.logits, q.means[..., d : d + 1], q.scales[..., d : d + 1])
        u = marginal.cdf(y[..., d : d + 1])[:, 0]
        assert stats.kstest(u, "uniform").pvalue > 1e-4
        assert stats.chisquare(torch.histc(u, 50, 0, 1)).pvalue > 1e-4
    for corner in y[:5]:  # the targets together
        inside = (y <= corner).all(dim=-1).double()[:, 0]
        expected = q.cdf(corner).item()
        assert abs(inside.mean() - expected) < 4.5 * math.sqrt(expected * (1 - expected) / len(y)) + 1e-4


def test_draws_of_one_target_are_ordered_within_components():
    q = proposal(1)
    u = torch.linspace(0.0005, 0.9995, 1000, dtype=torch.float64)  # none on a border
    y = q.from_uniform(u[:, None, None])[:, 0, 0]
    borders = q.logits.exp().cumsum(dim=1)[0, :-1]
    component = (u[:, None] > borders).sum(dim=1)
    for k in range(4):
        assert (y[component == k].diff() > 0).all()
    below = borders.new_zeros(4).index_copy(0, torch.arange(1, 4), borders)[component]
    weight, mean, scale = (part[0].flatten()[component] for part in (q.logits.exp(), q.means, q.scales))
    torch.testing.assert_close(y, mean + scale * torch.special.ndtri((u - below) / weight))


def test_rows_depend_on_themselves_alone():
    g = rng(2)
    logits, means = torch.randn(5, 4, generator=g), torch.randn(5, 4, 2, generator=g)
    q = GaussianMixture(logits, means, torch.ones_like(means))
    u = torch.rand(40, 5, 2, generator=g)
    y = q.from_uniform(u)
    for i in range(5):
        row = GaussianMixture(logits[[i]], means[[i]], torch.ones(1, 4, 2))
        assert torch.equal(row.from_uniform(u[:, [i]]), y[:, [i]])
    assert torch.equal(q.from_uniform(u[:, 0]), q.from_uniform(u[:, :1].expand(-1, 5, -1)))


@pytest.mark.parametrize("logits", [[-200.0, 0.0, -200.0], [0.0, -200.0, -200.0], [-200.0, -20.0, 0.0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_borders_and_components_without_weight(logits, dtype):
    heaviest = torch.tensor(logits).argmax()
    means = torch.tensor([[[-100.0], [0.0], [100.0]]], dtype=dtype)
    q = GaussianMixture(torch.tensor([logits], dtype=dtype), means, torch.ones_like(means))
    u = torch.tensor([0.0, 1e-9, 0.3, 0.9999999, 1.0], dtype=dtype)
    y = q.from_uniform(u[:, None, None])
    assert y.isfinite().all()
    assert ((y - means[0, heaviest]).abs() < 10)[2:].all()


def test_points_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"u must have shape \(M, 2, 3\), got \(7, 1, 3\)"):
        random_mixture(3, B=2).from_uniform(torch.rand(7, 1, 3))
    with pytest.raises(ValueError, match=r"u must have shape \(M, 2, 3\), got \(7, 2, 1\)"):
        random_mixture(3, B=2).from_uniform(torch.rand(7, 1))


def test_points_are_not_changed():
    q, u = random_mixture(2, B=3), torch.rand(7, 3, 2, generator=rng(), dtype=torch.float64)
    before = u.clone()
    assert not q.from_uniform(u).requires_grad
    assert torch.equal(u, before)


# From targets to their places


@pytest.mark.parametrize("D", [1, 3])
def test_places_of_draws_are_uniform(D):
    g = rng(3)
    one = random_mixture(D, seed=4)
    q = GaussianMixture(
        *(part.expand(20_000, *part.shape[1:]) for part in (one.logits, one.means, one.scales))
    )
    y = q.sample((), g)
    place = q.place(y, torch.rand(20_000, generator=g, dtype=torch.float64))
    assert stats.kstest(place, "uniform").pvalue > 1e-4
    assert stats.chisquare(torch.histc(place, 40, 0, 1)).pvalue > 1e-4


def test_place_is_an_inverse_of_from_uniform():
    q = proposal(5000)
    y = q.sample((), rng(5))
    for u in (0.2, 0.5, 0.9):
        place = q.place(y, torch.full((5000,), u, dtype=torch.float64))
        torch.testing.assert_close(q.from_uniform(place[None, :, None])[0], y, rtol=0, atol=1e-6)


def test_place_of_a_far_target_is_a_place():
    q = proposal(4, torch.float32)
    y = torch.tensor([[-1e4], [1e4], [-1e25], [1e25]])
    place = q.place(y, torch.rand(4, generator=rng()))
    assert ((place >= 0) & (place <= 1)).all()


# The samplers


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("D", [1, 2])
def test_samplers_have_the_shapes_they_say(name, D):
    sampler = SAMPLERS[name](6)
    q = random_mixture(D, B=3, dtype=torch.float32)
    u = sampler.points(3, D, rng())
    draws = sampler(q, torch.zeros(3, D), u)
    n = {"independent": 6, "stratified": 7}[name]
    assert draws.y.shape == (n, 3, D)
    f = torch.randn(n, 3, generator=rng())
    noise = draws.as_noise(f)
    assert torch.equal(noise.isfinite().sum(dim=0), torch.full((3,), 6))  # M draws take part in NCE
    assert torch.equal(noise[noise.isfinite()], f[noise.isfinite()])
    assert torch.equal(sampler(q, torch.zeros(3, D), u).y, draws.y)


def test_samplers_without_draws_are_refused():
    for sampler in SAMPLERS.values():
        with pytest.raises(ValueError, match="n_draws must be at least 1, got 0"):
            sampler(0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_any_distribution_can_be_sampled(name):
    q = torch.distributions.Independent(StudentT(5.0, torch.zeros(3, 2)), 1)
    sampler = SAMPLERS[name](6)
    state = torch.get_rng_state()
    draws = sampler(q, torch.zeros(3, 2), sampler.points(3, 2, rng()))
    assert torch.equal(state, torch.get_rng_state())
    assert draws.y.shape == (6, 3, 2)
    assert draws.taken is None
    assert torch.equal(sampler(q, torch.zeros(3, 2), sampler.points(3, 2, rng())).y, draws.y)


def test_the_target_takes_its_own_stratum():
    q, sampler = proposal(4000), Stratified(8)
    y = q.sample((), rng(6))
    draws = sampler(q, y, sampler.points(4000, 1, rng(7)))
    counts = torch.bincount(draws.taken, minlength=9)
    assert stats.chisquare(counts).pvalue > 1e-4
    # The draw that it stands in for comes from the same ninth of the mixture; so most often they are close.
    partner = draws.y[draws.taken, torch.arange(4000)]
    other = draws.y[(draws.taken + 4) % 9, torch.arange(4000)]
    assert (partner - y).abs().median() < 0.3 * (other - y).abs().median()


@pytest.mark.parametrize("n", [5, 16, 33])
def test_components_get_their_share_of_stratified_draws(n):
    B = 4000
    weights = [0.3, 0.05, 0.35, 0.1, 0.2]
    q = mixture(B, weights, [0.0, 10.0, 20.0, 30.0, 40.0], [0.1] * 5)  # so far apart that draws can be told
    component = (q.from_uniform(sampling.stratified(n, B, 1, rng(n)))[..., 0] / 10).round()
    counts = torch.stack([(component == k).sum(dim=0) for k in range(5)], dim=1).double()
    expected = n * torch.tensor(weights, dtype=torch.float64)
    assert_zero(counts - expected + 1e-9 * torch.randn(B, 5, generator=rng(), dtype=torch.float64))
    assert (counts - expected).abs().max() < 2
    # The outer components have one border, and so has each group of neighbours from the left.
    assert ((counts - expected).cumsum(dim=1).abs() < 1 + 1e-6).all()


def z_estimates(sampler: Independent | Stratified, B: int, seed: int) -> Tensor:
    """Estimates of Z = 1, one a row."""
    q, p = proposal(B), model(B)
    y = sampler(q, p.sample((), rng(seed)), sampler.points(B, 1, rng(seed + 1))).y
    return (p.log_prob(y) - q.log_prob(y)).exp().mean(dim=0)


@pytest.mark.parametrize("M", [1, 4, 16])
def test_normaliser_is_unbiased_and_less_noisy_with_strata(M):
    # Strata hold M + 1 draws, so the comparison gives the independent ones as many.
    independent, stratified = (z_estimates(s, 40_000, M) for s in (Independent(M + 1), Stratified(M)))
    assert_zero(independent - 1)
    assert_zero(stratified - 1)
    assert stratified.var() < {1: 1.0, 4: 0.85, 16: 0.35}[M] * independent.var()


# NCE: at f = log p the expected gradient is zero only if target and noise are exchangeable


def tilts(y: Tensor) -> Tensor:
    """Directions in which f could be wrong: (..., 1) -> (..., 4)."""
    return torch.cat([y, y**2, torch.tanh(3 * y), torch.cos(2 * y)], dim=-1)


class Naive(Stratified):
    """What not to do: every stratum is noise, though the target comes from anywhere."""

    def __call__(self, q: Distribution, y: Tensor, u: Tensor) -> Draws:
        return Draws(super().__call__(q, y, u).y[: self.n_draws])

    def points(self, B: int, D: int, generator: torch.Generator | None = None) -> Tensor:
        u = sampling.stratified(self.n_draws, B, D, generator)
        return torch.cat([u, u[:2]])


def tilted(loss: str, sampler: Independent | Stratified, B: int, seed: int) -> Tensor:
    """Gradients in the tilts at f = log p, one replicate a row: (B, 4)."""
    g = rng(seed)
    q, p = proposal(B), model(B)
    y = p.sample((), g)
    draws = sampler(q, y, sampler.points(B, 1, g))
    theta = torch.zeros(B, 4, dtype=torch.float64, requires_grad=True)
    f_y, f = (p.log_prob(v) + (theta * tilts(v)).sum(dim=-1) for v in (y, draws.y))
    log_q = q.log_prob(draws.y)
    value = nce(f_y, q.log_prob(y), draws.as_noise(f), log_q) if loss == "nce" else log_partition(f, log_q)
    return torch.autograd.grad(value.sum(), theta)[0]


@pytest.mark.parametrize("M", [1, 4, 8, 16])
@pytest.mark.parametrize("name", SAMPLERS)
def test_nce_gradient_vanishes_at_the_truth(name, M):
    assert_zero(tilted("nce", SAMPLERS[name](M), 100_000, seed=M))


@pytest.mark.parametrize("M", [4, 8, 16])
def test_naive_strata_bias_nce(M):
    # The test above has the power to see it.
    gradients = tilted("nce", Naive(M), 100_000, seed=M)
    z = gradients.mean(dim=0) / (gradients.std(dim=0) / math.sqrt(len(gradients)))
    assert z.abs().max() > 8


def bias(gradients: Tensor) -> tuple[float, float]:
    """Norm of the mean and of its standard error."""
    return gradients.mean(dim=0).norm().item(), (
        gradients.std(dim=0) / math.sqrt(len(gradients))
    ).norm().item()


GRID = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None, None]


def under_model(values: Tensor) -> Tensor:
    """Expectation under p of values on the grid, (4001, 1, ...) -> (...)."""
    weights = model(1).log_prob(GRID).exp() * 16 / 4000
    return (weights.reshape(-1, 1, *[1] * (values.dim() - 2)) * values).sum(dim=(0, 1))


@pytest.mark.parametrize("M", [4, 16])
def test_gradient_of_log_z_in_f_is_nearer_its_limit_with_strata(M):
    # With many draws it is the expectation of the tilts, as Eq. (2) needs it; few draws bias it.
    exact = under_model(tilts(GRID))
    independent, noise = bias(tilted("log_partition", Independent(M + 1), 40_000, seed=M) - exact)
    stratified, _ = bias(tilted("log_partition", Stratified(M), 40_000, seed=M) - exact)
    assert independent > 8 * noise
    assert stratified < 0.7 * independent


def test_gradient_of_log_z_in_f_reaches_its_limit():
    for sampler in (Independent(2048), Stratified(2048)):
        gradients = tilted("log_partition", sampler, 200, seed=1) - under_model(tilts(GRID))
        assert (gradients.mean(dim=0).abs() < 4.5 * gradients.std(dim=0) / math.sqrt(200) + 2e-3).all()


def proposal_gradients(sampler: Independent | Stratified, B: int, seed: int) -> Tensor:
    """Gradients of log Z in the proposal's logits, means and log scales, one replicate a row: (B, 12)."""
    rows = proposal(B)
    logits, means, log_scales = (
        part.clone().requires_grad_() for part in (rows.logits, rows.means, rows.scales.log())
    )
    q, p = GaussianMixture(logits, means, log_scales.exp()), model(B)
    draws = sampler(q, p.sample((), rng(seed)), sampler.points(B, 1, rng(seed + 1)))
    loss = log_partition(p.log_prob(draws.y), q.log_prob(draws.y))
    gradients = torch.autograd.grad(loss.sum(), (logits, means, log_scales))
    return torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)


def test_proposal_gradient_is_nearer_that_of_the_divergence_with_strata():
    # KL(p || q) on a fine grid has the gradient that log Z should have (Result 1).
    rows = proposal(1)
    logits, means, log_scales = (
        part.clone().requires_grad_() for part in (rows.logits, rows.means, rows.scales.log())
    )
    kl = -under_model(GaussianMixture(logits, means, log_scales.exp()).log_prob(GRID))
    exact = torch.cat([part.flatten() for part in torch.autograd.grad(kl, (logits, means, log_scales))])
    independent, noise = bias(proposal_gradients(Independent(9), 40_000, seed=8) - exact)
    stratified, _ = bias(proposal_gradients(Stratified(8), 40_000, seed=8) - exact)
    assert independent > 10 * noise
    assert stratified < 0.8 * independent
    many = proposal_gradients(Stratified(1024), 300, seed=9) - exact
    assert (many.mean(dim=0).abs() < 4.5 * many.std(dim=0) / math.sqrt(300) + 2e-4).all()
