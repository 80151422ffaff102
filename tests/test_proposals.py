"""Any proposal, any energy: one body of tests over mixtures, flows and plain torch Distributions."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
import zuko
from torch import Tensor, nn
from torch.distributions import (
    Beta,
    Independent,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    Poisson,
    StudentT,
    Uniform,
)

import ebreg
from ebreg import EnergyRegressor, MixtureDensityRegressor, methods, networks, objectives
from ebreg.distributions import FullMixture, GaussianMixture
from ebreg.errors import ModelFileError, NetworkError, UndefinedError
from ebreg.estimators.chunks import Chunks
from ebreg.models import EnergyModel, MixtureModel
from ebreg.networks import MLP, EnergyHead, FullMixtureHead, MixtureHead
from ebreg.predictive import Accuracy
from ebreg.sampling import (
    AllAtOnce,
    RowByRow,
    Stratified,
    draw,
    independent,
    place,
    proposal_rows,
    sobol,
    stratified,
    uniform_map,
)
from ebreg.units import Bounds, Standardizer, Tail
from support import normal, rng

FEW = Accuracy(n_draws=256, max_draws=256)
H = 8


class PlainHead(nn.Module):
    """A head that gives a torch Distribution of two numbers for each target."""

    def __init__(self, n_features: int, n_targets: int, make):
        super().__init__()
        self.layer = nn.Linear(n_features, 2 * n_targets)
        self.make = make

    def forward(self, h: Tensor):
        loc, log_scale = self.layer(h).chunk(2, dim=1)
        return self.make(loc, (0.3 * log_scale).exp())


def correlated(loc: Tensor, scale: Tensor) -> MultivariateNormal:
    factor = torch.tril(0.5 * torch.ones(loc.shape[1], loc.shape[1], dtype=loc.dtype)) * scale[..., None]
    return MultivariateNormal(loc, scale_tril=factor)


# Heads by name, from H and D.
HEADS = {
    "mixture": lambda H, D: MixtureHead(H, D, 3, activation="silu"),
    "full-mixture": lambda H, D: FullMixtureHead(H, D, 3),
    "zuko spline flow": lambda H, D: zuko.flows.NSF(D, H, transforms=2, hidden_features=(16,)),
    "zuko affine flow": lambda H, D: zuko.flows.MAF(D, H, transforms=2, hidden_features=(16,)),
    "normal": lambda H, D: PlainHead(H, D, lambda m, s: Independent(Normal(m, s), 1)),
    "laplace": lambda H, D: PlainHead(H, D, lambda m, s: Independent(Laplace(m, s), 1)),
    "multivariate normal": lambda H, D: PlainHead(H, D, correlated),
    "student": lambda H, D: PlainHead(H, D, lambda m, s: Independent(StudentT(5.0, m, s), 1)),
}
ROW_BY_ROW = {"student"}
FAMILY = list(itertools.product(HEADS, [1, 2]))
family = pytest.mark.parametrize(("name", "D"), FAMILY, ids=[f"{name}-{D}" for name, D in FAMILY])


def seeded(build):
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        return build()


def head_of(name: str, D: int) -> nn.Module:
    """In float64, with weights far from their initial values."""
    head = seeded(lambda: HEADS[name](H, D)).double()
    with torch.no_grad():
        for i, parameter in enumerate(head.parameters()):
            parameter.add_(0.2 * normal(*parameter.shape, seed=i))
    return head


def data(D: int, n: int = 40) -> tuple[Tensor, Tensor]:
    x, noise = normal(n, 2), normal(n, D, seed=1)
    return 100 * x - 7, 1e-3 * (x[:, :1] + 0.5 * noise) + 5


def energy_model(name: str, D: int) -> EnergyModel:
    x, y = data(D)
    y_units = Standardizer.of("y", y)
    parts = seeded(lambda: (MLP(2, (H, H), activation="silu"), EnergyHead(H, D, (16,), (16, 16))))
    model = EnergyModel(
        *parts,
        head_of(name, D),
        x_units=Standardizer.of("x", x),
        y_units=y_units,
        tail=Tail.of(y_units(y)),
    )
    return model.double()


# Draws


@family
def test_draws_are_those_of_the_density(name, D):
    # E_q[r(y) / q(y)] = 1 for any density r: a draw from the wrong place, or a wrong density, shows.
    q = proposal_rows(head_of(name, D), normal(3, H))
    y = q.from_uniform(independent(20_000, 3, D, rng()).double())
    centre, spread = y.median(dim=0).values, 0.4
    log_r = Independent(Normal(centre, spread), 1).log_prob(y)
    weights = (log_r - q.log_prob(y)).exp()
    error = weights.std(dim=0) / math.sqrt(len(y))
    assert ((weights.mean(dim=0) - 1).abs() < 4 * error).all()
    assert (error < 0.1).all()


@family
def test_rows_do_not_depend_on_each_other(name, D):
    head, h, u = head_of(name, D), normal(4, H), sobol(64, D)[:, None].expand(-1, 4, -1)
    q = proposal_rows(head, h)
    y, log_q = q.from_uniform(u), q.log_prob(q.from_uniform(u))
    for rows in ([2], [3, 1]):
        some = q[rows]
        torch.testing.assert_close(some.from_uniform(u[:, rows]), y[:, rows], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(some.log_prob(y[:, rows]), log_q[:, rows], rtol=1e-9, atol=1e-9)
    again = q[[0, 1]].joined([q[[2, 3]]])
    torch.testing.assert_close(again.from_uniform(u), y, rtol=1e-9, atol=1e-9)
    assert len(again) == 4


@family
def test_rescaled_draws_and_densities(name, D):
    q, u = proposal_rows(head_of(name, D), normal(3, H)), sobol(16, D)[:, None].expand(-1, 3, -1)
    shift, scale = torch.full((D,), 5.0).double(), torch.full((D,), 1e-3).double()
    y, moved = q.from_uniform(u), q.rescaled(shift, scale)
    torch.testing.assert_close(moved.from_uniform(u), shift + scale * y)
    expected = q.log_prob(y) - scale.log().sum()
    torch.testing.assert_close(moved.log_prob(shift + scale * y), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", sorted(set(HEADS) - {"mixture", "full-mixture"} - ROW_BY_ROW))
@pytest.mark.parametrize("D", [1, 2])
def test_maps_are_inverted(name, D):
    q = head_of(name, D)(normal(5, H))
    to_draws, u = uniform_map(q), independent(50, 5, D, rng(1)).double()
    y = to_draws(u)
    torch.testing.assert_close(to_draws.inverse(y), u, rtol=0, atol=1e-5)  # zuko solves for some inverses
    torch.testing.assert_close(place(q, y[0], u[0, :, 0]), u[0, :, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_which_proposals_are_sampled_row_by_row(name):
    q = proposal_rows(head_of(name, 2), normal(3, H))
    expected = RowByRow if name in ROW_BY_ROW else (AllAtOnce, GaussianMixture, FullMixture)
    assert isinstance(q, expected)


@pytest.mark.parametrize("name", sorted(set(HEADS) - ROW_BY_ROW))
def test_all_rows_are_drawn_in_one_call_of_the_head(name):
    head, calls = head_of(name, 2), []
    head.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        q = proposal_rows(head, normal(50, H))
        q.log_prob(q.from_uniform(sobol(8, 2)[:, None].expand(-1, 50, -1)))
    assert len(calls) <= 2


@pytest.mark.parametrize("name", sorted(set(HEADS) - {"mixture", "full-mixture"}))  # those are tensors
@pytest.mark.parametrize("D", [1, 2])
def test_densities_have_gradients_after_answers_without(name, D):
    head = head_of(name, D)
    with torch.no_grad():
        q = proposal_rows(head, normal(3, H))
        y = q.from_uniform(sobol(4, D)[:, None].expand(-1, 3, -1))
        q.log_prob(y)
    q.log_prob(y).sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


@pytest.mark.parametrize("name", sorted(set(HEADS) - ROW_BY_ROW))
def test_places_of_draws_are_uniform(name):
    # What stratified NCE needs: a target that comes from q is as likely in one stratum as in another.
    n, D = 20_000, 2
    q = head_of(name, D)(normal(1, H).expand(n, -1))
    y = draw(q, independent(1, n, D, rng(2)).double())[0]
    places = place(q, y, independent(1, n, 1, rng(3))[0, :, 0].double())
    counts = torch.histc(places, bins=10, min=0, max=1)
    assert ((counts - n / 10).square() / (n / 10)).sum() < 27.9  # chi-square, 9 degrees of freedom, 0.1 %


def test_maps_of_nested_distributions():
    loc, scale = normal(4, 3), normal(4, 3, seed=1).exp()
    u = independent(10, 4, 3, rng()).double()
    log_normal = Independent(LogNormal(loc, scale), 1)
    expected = (loc + scale * torch.special.ndtri(u)).exp()
    torch.testing.assert_close(uniform_map(log_normal)(u), expected)
    assert uniform_map(Independent(Beta(scale, scale), 1)) is None  # it has no quantile function


def test_the_map_reaches_far_tails_in_single_precision():
    q = Independent(Normal(torch.zeros(1, 1), torch.ones(1, 1)), 1)
    y = draw(q, torch.tensor([2.0**-32, 1 - 2.0**-32], dtype=torch.float64)[:, None, None])[:, 0, 0]
    assert torch.isfinite(y).all()
    assert y[0] < -6


class Shifted:
    """A distribution of the user's own with ``from_uniform``, and without ``place``."""

    batch_shape, event_shape = (3,), (1,)

    def __init__(self):
        self.shift = torch.zeros(1, requires_grad=True)

    def from_uniform(self, u: Tensor) -> Tensor:
        return self.shift + torch.special.ndtri(u)

    def log_prob(self, y: Tensor) -> Tensor:
        return Normal(self.shift, 1.0).log_prob(y).sum(dim=-1)


def test_draws_without_a_known_place_are_finite_and_constant():
    sampler = Stratified(31)
    u = sampler.points(3, 1, rng())
    u[1:-1, :, 0] = (torch.arange(31) + 1)[:, None] / 32  # each on the lower border of its stratum
    draws = sampler(Shifted(), torch.zeros(3, 1), u)
    assert draws.taken is None
    assert torch.isfinite(draws.y).all()
    assert not draws.y.requires_grad


def test_a_distribution_with_from_uniform_alone_can_be_used():
    q = proposal_rows(lambda h: Shifted(), normal(3, H))
    u = sobol(8, 1)[:, None].expand(-1, 3, -1)
    y = q.rescaled(torch.tensor([5.0]), torch.tensor([2.0])).from_uniform(u)
    torch.testing.assert_close(y, 5 + 2 * torch.special.ndtri(u), check_dtype=False)


def test_stratified_nce_with_a_flow_has_no_gradient_at_the_truth():
    # At f = log p = log q the expected gradient vanishes if target and noise are exchangeable.
    n, D = 4000, 2
    q = head_of("zuko spline flow", D)(normal(1, H).expand(n, -1))
    sampler, y = Stratified(7), draw(q, independent(1, n, D, rng(2)).double())[0]
    draws = sampler(q, y, sampler.points(n, D, rng(3)))
    values = torch.cat([y[None], draws.y])
    log_q = q.log_prob(values).detach()
    for test_function in (values[..., 0], values[..., 1].square(), values.prod(dim=-1)):
        amount = torch.zeros(n, dtype=torch.float64, requires_grad=True)
        f = log_q + amount * test_function
        loss = objectives.nce(f[0], log_q[0], draws.as_noise(f[1:]), log_q[1:])
        (gradient,) = torch.autograd.grad(loss.sum(), amount)
        assert gradient.mean().abs() < 4 * gradient.std() / math.sqrt(n)


def test_draws_follow_the_points():
    q = Independent(StudentT(5.0, torch.zeros(2, 1), torch.ones(2, 1)), 1)
    u = torch.rand(50, 2, 1, generator=rng())
    before = torch.random.get_rng_state()
    assert torch.equal(draw(q, u), draw(q, u))
    assert not torch.equal(draw(q, u), draw(q, u.flip(0)))
    assert not draw(q, u).requires_grad
    assert torch.equal(torch.random.get_rng_state(), before)


def test_full_mixtures_agree_with_torch():
    head = head_of("full-mixture", 3)
    q = head(normal(4, H))
    components = MultivariateNormal(q.means, scale_tril=q.cholesky)
    reference = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(logits=q.logits), components
    )
    y = normal(5, 4, 3)
    torch.testing.assert_close(q.log_prob(y), reference.log_prob(y))
    torch.testing.assert_close(q.mean, reference.mean)
    torch.testing.assert_close(q.variance, reference.variance)
    draws = q.from_uniform(sobol(2**14, 3))
    centred = draws - draws.mean(dim=0)
    covariance = torch.einsum("mbi,mbj->bij", centred, centred) / len(draws)
    torch.testing.assert_close(covariance, q.covariance, rtol=0.02, atol=0.02)
    assert q.sample((2, 5)).shape == (2, 5, 4, 3)


def test_full_mixtures_start_as_diagonal_ones():
    head = seeded(lambda: FullMixtureHead(H, 2, 3))
    q, h = head(normal(4, H).float()), normal(4, H).float()
    diagonal = head.diagonal(h)
    y = normal(6, 4, 2).float()
    torch.testing.assert_close(q.log_prob(y), diagonal.log_prob(y))


# Training


@torch.no_grad()
def nce_with(noise: EnergyModel, model: EnergyModel, x: Tensor, y: Tensor) -> Tensor:
    """NCE loss of a model's f with the proposal of another as the noise: with the same noise it compares."""
    h, z = noise.features(x), noise.standardize(y)
    q = noise.q(h)
    values = torch.cat([z[None], draw(q, independent(64, *z.shape, rng(7)).double())])
    f, log_q = model.f(model.features(x), values), q.log_prob(values)
    return objectives.nce(f[0], log_q[0], f[1:], log_q[1:]).mean()


@pytest.mark.parametrize("draws", ["stratified", "independent"])
@family
def test_proposals_train(name, D, draws):
    model, (x, y) = energy_model(name, D), data(D)
    method = methods.JointNCE(model, n_draws=16, draws=draws)
    optimizer = torch.optim.Adam(method.parameters(), lr=1e-2)
    points, before, start = rng(3), torch.random.get_rng_state(), copy.deepcopy(model)
    for _ in range(30):
        losses = method(x, y, method.points(len(x), points))
        assert all(loss.shape == (len(x),) for loss in losses.values())
        optimizer.zero_grad()
        sum(loss.mean() for loss in losses.values()).backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in method.parameters())
        assert any(p.grad.abs().sum() > 0 for p in model.proposal.parameters())
        optimizer.step()
    assert nce_with(start, model, x, y) < nce_with(start, start, x, y)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", HEADS)
def test_proposals_approach_a_fixed_energy(name):
    # Result 1: the gradient of log Z in q is that of KL(p || q), whatever q is.
    model, (x, _) = energy_model(name, 1), data(1)
    h = model.features(x).detach()
    grid = torch.linspace(-9, 9, 801, dtype=torch.float64)[:, None, None].expand(-1, len(x), 1)
    with torch.no_grad():
        log_p = model.f(h, grid)
        log_p = log_p - log_p.logsumexp(dim=0) - math.log(18 / 800)

    def divergence() -> float:
        with torch.no_grad():
            gap = log_p.exp() * (log_p - model.q(h).log_prob(grid))
        return (gap.sum(dim=0) * 18 / 800).mean().item()

    optimizer, points, first = torch.optim.Adam(model.proposal.parameters(), lr=1e-2), rng(5), divergence()
    for _ in range(60):
        q = model.q(h)
        y = draw(q, independent(64, len(x), 1, points).double())
        loss = objectives.log_partition(model.f(h, y).detach(), q.log_prob(y)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert divergence() < 0.7 * first


@family
def test_strata_are_used_where_the_place_of_a_target_is_known(name, D):
    model, (x, y) = energy_model(name, D), data(D)
    method = methods.JointNCE(model, n_draws=9)
    u = method.points(len(x), rng())
    draws = method.sampler(model.q(model.features(x).detach()), model.standardize(y), u)
    assert (draws.taken is None) == (name in ROW_BY_ROW)
    assert len(draws.y) == (9 if name in ROW_BY_ROW else 10)
    assert not draws.y.requires_grad
    first, second = (method(x, y, u) for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_stratified_draws_of_a_flow_take_each_stratum_once():
    q = head_of("zuko spline flow", 1)(normal(3, H))
    u = stratified(20, 3, 1, rng()).double()
    strata = (uniform_map(q).inverse(draw(q, u))[..., 0] * 20).long()
    assert torch.equal(strata, torch.arange(20)[:, None].expand(-1, 3))


# Predictions


@family
def test_energies_answer_with_any_proposal(name, D):
    model, (x, y) = energy_model(name, D), data(D)
    before = torch.random.get_rng_state()
    with torch.no_grad():
        dist = model.predictive(x[:4], FEW)
        axis = torch.linspace(-9, 9, 401, dtype=torch.float64)
        nodes = torch.cartesian_prod(*[axis] * D).reshape(-1, D)
        log_z = model.f_grid(model.features(x[:4]), nodes).logsumexp(dim=0) + D * (axis[1] - axis[0]).log()
        log_z = log_z + model.y_units.scale.log().sum()
        assert ((dist.log_partition - log_z).abs() < 5 * dist.log_partition_error + 2e-3).all()
        assert dist.mean.shape == (4, D)
        assert torch.isfinite(dist.log_prob(y[:4])).all()
        assert dist.proposal.log_prob(dist.sample(3, rng())).shape == (3, 4)
        for rows in ([2], [3, 1]):
            some = model.predictive(x[rows], FEW)
            torch.testing.assert_close(some.mean, dist.mean[rows], rtol=1e-9, atol=0)
            torch.testing.assert_close(some.log_partition, dist.log_partition[rows], rtol=1e-9, atol=1e-9)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", sorted(set(HEADS) - {"mixture"}))
@pytest.mark.parametrize("D", [1, 2])
def test_mixture_models_answer_by_draws(name, D):
    x, y = data(D)
    units = Standardizer.of("y", y)
    model = MixtureModel(
        seeded(lambda: MLP(2, (H,))).double(),
        head_of(name, D),
        n_targets=D,
        x_units=Standardizer.of("x", x),
        y_units=units,
    )
    with torch.no_grad():
        p, q = model.predictive(x[:5]), model.q(model.features(x[:5]))
        exact = q.log_prob(model.standardize(y[:5])) - units.scale.log().sum()
        torch.testing.assert_close(p.log_prob(y[:5]), exact)
        torch.testing.assert_close(model.log_prob(x[:5], y[:5]), exact)
        many = units.inverse(draw(q, independent(20_000, 5, D, rng(5)).double()))
        error = many.std(dim=0) * (5 / math.sqrt(len(p.draws)) + 5 / math.sqrt(len(many)))
        assert ((p.mean - many.mean(dim=0)).abs() < error).all()
        torch.testing.assert_close(p.stddev, many.std(dim=0), rtol=0.2, atol=0)
        levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
        below = (many <= p.quantile(levels)[:, None]).double().mean(dim=1)  # (Q, B, D)
        assert ((below - levels[:, None, None]).abs() < 0.05).all()
        samples = p.sample(4000, rng(6))
        assert samples.unique(dim=0).shape == samples.shape  # fresh draws, none twice
        assert torch.equal(p.log_partition, torch.zeros(5, dtype=torch.float64))
        assert not p.unreliable.any()
        region = p.highest_density_region(0.8)
        assert (region.contains(samples).double().mean(dim=0) - 0.8).abs().max() < 0.06
        assert len(p.modes()) == 5
        torch.testing.assert_close(p[[3]].mean, p.mean[[3]])
        assert p[[0, 1]].joined([p[[2]]]).mean.shape == (3, D)


def test_targets_outside_of_the_support_have_no_density():
    head = PlainHead(H, 1, lambda m, s: Independent(Beta(1 + s, 1 + m.exp()), 1))
    model = MixtureModel(nn.Identity(), seeded(lambda: head), n_targets=1)
    p = model.predictive(normal(2, H).float())
    y = torch.tensor([[0.5], [1.5]])
    log_p = p.log_prob(y)
    assert torch.isfinite(log_p[0])
    assert log_p[1] == -math.inf
    assert ((p.draws > 0) & (p.draws < 1)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@family
def test_proposals_answer_in_the_users_units(name, D, dtype):
    model, (x, y) = energy_model(name, D).to(dtype), data(D)
    with torch.no_grad():
        q = model.predictive(x[:3], FEW).proposal
        z = model.standardize(y[:3])
        expected = model.q(model.features(x[:3])).log_prob(z).double() - model.y_units.scale.log().sum()
        torch.testing.assert_close(q.log_prob(y[None, :3])[0].double(), expected, rtol=0, atol=1e-3)
        assert q[0].log_prob(y[None, :1]).shape == (1, 1)


def test_a_bounded_support_in_the_users_units():
    head = PlainHead(H, 1, lambda m, s: Independent(Uniform(-1 + 0 * m, 1 + 0 * s), 1))
    q = proposal_rows(head, normal(2, H).float()).rescaled(torch.tensor([10.0]), torch.tensor([2.0]))
    y = torch.tensor([[[9.0], [13.0]]])
    torch.testing.assert_close(q.log_prob(y), torch.tensor([[-math.log(4), -math.inf]]))


class NoisyHead(PlainHead):
    """A head that answers otherwise in training mode."""

    def forward(self, h: Tensor):
        return super().forward(nn.functional.dropout(h, 0.5, self.training))


@pytest.mark.parametrize("D", [1, 2])
def test_questions_are_answered_in_evaluation_mode(D):
    model, (x, y) = energy_model("mixture", D), data(D)
    model.proposal = NoisyHead(H, D, lambda m, s: Independent(Laplace(m, s), 1)).double()
    model.train()
    with torch.no_grad():
        p = model.predictive(x[:3], FEW)
        first, second = (p[[0]].proposal.log_prob(y[None, :1]) for _ in range(2))
        assert torch.equal(first, second)
        assert torch.equal(p.proposal[[0]].log_prob(y[None, :1]), first)
    assert model.proposal.training


def test_chunks_of_draws_get_fewer_rows():
    x, y = data(1)
    model = MixtureModel.for_table(x, y, proposal="flow", width=8)
    rows = [Chunks(model, x, Accuracy(n_draws=n)).n_rows for n in (2048, 200_000)]
    assert rows[0] > 50 * rows[1]
    energy = EnergyModel.for_table(x, y, width=8)
    rows = [
        Chunks(energy, x, Accuracy(engine="importance", n_draws=32_768, max_draws=most)).n_rows
        for most in (None, 32_768)
    ]
    assert rows[0] == rows[1] == 256


# Regressors


class OwnEnergy(nn.Module):
    """A Gaussian energy with a mean that is linear in the features: an energy of the user's own."""

    def __init__(self, n_features: int, n_targets: int):
        super().__init__()
        self.mean = nn.Linear(n_features, n_targets)
        self.log_scale = nn.Parameter(torch.zeros(n_targets))

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return -0.5 * ((y - self.mean(h)) * torch.exp(-self.log_scale)).square().sum(dim=-1)


QUICK = {"max_iter": 3, "width": 8, "random_state": 0}
X = normal(60, 2).numpy()
Y = (normal(60, 1)[:, 0] + 2 * normal(60, seed=3)).numpy()
Y2 = normal(60, 2, seed=4).numpy()

REGRESSORS = {
    "full-mixture": {"proposal": "full-mixture"},
    "flow": {"proposal": "flow"},
    "module": {"proposal": zuko.flows.NSF(1, 8, hidden_features=(8,))},
    "factory": {"proposal": lambda H, D: PlainHead(H, D, lambda m, s: Independent(Laplace(m, s), 1))},
    "energy": {"energy": OwnEnergy},
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_take_proposals_and_energies(name, tmp_path):
    arguments = REGRESSORS[name]
    reg = EnergyRegressor(**arguments, **QUICK).fit(X, Y)
    mean, interval = reg.predict(X[:5]), reg.predict_interval(X[:5])
    assert ((interval[:, 0] < mean) & (mean < interval[:, 1])).all()
    again = EnergyRegressor(**arguments, **QUICK).fit(X, Y)
    assert (again.predict(X[:5]) == mean).all()
    reg.save(tmp_path / "model")
    given = {key: value for key, value in arguments.items() if not isinstance(value, str)}
    loaded = ebreg.load(tmp_path / "model", **given)
    assert abs(loaded.predict(X[:5]) - mean).max() < 1e-6
    if given:
        with pytest.raises(ModelFileError, match=rf"load\(path, {next(iter(given))}=module\)"):
            ebreg.load(tmp_path / "model")
    else:
        with pytest.raises(ModelFileError, match="has no energy of your own"):
            ebreg.load(tmp_path / "model", energy=OwnEnergy)


@pytest.mark.parametrize("wrong", [3, lambda H, D: None])
def test_a_wrong_object_at_load_is_named(tmp_path, wrong):
    EnergyRegressor(energy=OwnEnergy, **QUICK).fit(X, Y).save(tmp_path / "model")
    with pytest.raises(NetworkError, match="energy must"):
        ebreg.load(tmp_path / "model", energy=wrong)


def test_a_distribution_in_double_precision_trains():
    def double(n_features: int, n_targets: int) -> nn.Module:
        return PlainHead(n_features, n_targets, lambda m, s: Independent(Laplace(m.double(), s.double()), 1))

    for method in ("joint-nce", "fixed-nce"):
        reg = EnergyRegressor(method, proposal=double, n_draws=8, **QUICK).fit(X, Y)
        assert reg.predict(X[:3]).shape == (3,)


@pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
def test_an_ascent_starts_at_the_mean_of_a_flow(kind):
    reg = kind(proposal="flow", **QUICK).fit(X, Y)
    assert np.isfinite(reg.gradient_ascent(X[:5])).all()


@pytest.mark.parametrize("proposal", ["full-mixture", "flow"])
@pytest.mark.parametrize("teacher", ["energy", None])
def test_mixture_regressors_take_proposals(proposal, teacher):
    reg = MixtureDensityRegressor(teacher, proposal=proposal, **QUICK).fit(X, Y2)
    p = reg.predict_distribution(X[:5])
    assert p.mean.shape == (5, 2)
    assert p.log_prob(Y2[:5]).shape == (5,)


def test_an_energy_of_the_users_own_is_learned():
    # y = 2 x_0 + noise of standard deviation 0.5: the model is exact, so its parameters are found.
    x = normal(800, 1)
    y = 2 * x[:, 0] + 0.5 * normal(800, seed=1)
    reg = EnergyRegressor(energy=OwnEnergy, width=16, max_iter=60, learning_rate=0.02, random_state=0)
    reg.fit(x.numpy(), y.numpy())
    p = reg.predict_distribution([[-1.0], [1.0]])
    assert abs(p.mean - [-2, 2]).max() < 0.2
    assert abs(p.stddev - 0.5).max() < 0.1


def test_a_warm_start_keeps_the_networks():
    reg = EnergyRegressor(proposal="flow", warm_start=True, **QUICK).fit(X, Y)
    reg.fit(X, Y)
    with pytest.raises(ValueError, match="proposal is mixture, and flow in the fitted model"):
        reg.set_params(proposal="mixture").fit(X, Y)
    with pytest.raises(ValueError, match="energy is not that of the fitted model"):
        reg.set_params(proposal="flow", energy=OwnEnergy).fit(X, Y)


# What is wrong, and with which argument


class Unsampled(torch.distributions.Distribution):
    """A distribution that can only be evaluated."""

    arg_constraints = {}  # noqa: RUF012

    def log_prob(self, value):
        return -value.abs().sum(dim=-1)


def heads_that_fail():
    def distribution(make):
        return lambda H, D: PlainHead(H, D, make)

    yield "a list", [1], TypeError, "proposal must be a torch module, or a function"
    yield "unknown name", "spline", ValueError, "proposal must be one of 'mixture', 'full-mixture', 'flow'"
    yield "no module", lambda H, D: 3, TypeError, "proposal must return a torch module"
    yield "wrong arguments", lambda: 3, TypeError, "proposal must be a function of n_features and n_targets"
    yield "features alone", lambda H, D: nn.Linear(H, D), TypeError, "must return a torch Distribution"
    yield (
        "event shape",
        distribution(Normal),
        ValueError,
        r"batch shape \(4,\).*got batch shape \(4, 1\) and event shape \(\); wrap it in .*Independent",
    )
    yield (
        "other targets",
        lambda H, D: PlainHead(H, D + 1, lambda m, s: Independent(Normal(m, s), 1)),
        ValueError,
        r"event shape \(1,\), the targets; got batch shape \(4,\) and event shape \(2,\)",
    )
    yield (
        "unsampled",
        distribution(lambda m, s: Unsampled(m.shape[:1], m.shape[1:], validate_args=False)),
        TypeError,
        "proposal must be a distribution that can be sampled, and Unsampled cannot",
    )
    yield (
        "infinite",
        distribution(lambda m, s: Independent(Normal(m / 0, s, validate_args=False), 1)),
        ValueError,
        "proposal must have finite draws",
    )
    yield (
        "discrete",
        distribution(lambda m, s: Independent(Poisson(s, validate_args=False), 1)),
        ValueError,
        "proposal must have a density, and Independent is discrete",
    )
    yield (
        "no scale",
        distribution(lambda m, s: Independent(Normal(m, 0 * s, validate_args=True), 1)),
        ValueError,
        r"proposal failed on features of shape \(4, 8\): Expected parameter scale",
    )
    yield "width", nn.Linear(5, 5), ValueError, r"proposal failed on features of shape \(4, 8\)"


FAILURES = list(heads_that_fail())


@pytest.mark.parametrize(
    ("head", "error", "message"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES]
)
def test_proposals_that_do_not_fit_are_explained(head, error, message):
    with pytest.raises(error, match=message):
        EnergyRegressor(proposal=head, **QUICK).fit(X, Y)


@pytest.mark.parametrize(
    ("energy", "error", "message"),
    [
        (lambda h, y: y, ValueError, r"energy must return one value for each target, shape \(16, 4\)"),
        (lambda h, y: 3, ValueError, r"it returned int"),
        (lambda h, y: y[..., 0] * math.nan, ValueError, "energy must return finite values"),
        (lambda h, y: y[..., 0] / 0, ValueError, "energy must return finite values"),
        (lambda h, y: h @ y, ValueError, "energy failed on features of shape"),
        (lambda h, y: h(y), ValueError, "energy failed on features of shape"),
    ],
    ids=["shape", "type", "nan", "infinite", "failure", "type error"],
)
def test_energies_that_do_not_fit_are_explained(energy, error, message):
    class Wrong(OwnEnergy):
        def forward(self, h, y):
            return energy(h, y)

    with pytest.raises(error, match=message):
        EnergyRegressor(energy=Wrong, **QUICK).fit(X, Y)


@pytest.mark.parametrize("D", [1, 2])
def test_an_energy_that_overflows_later_is_explained(D):
    class Overflowing(OwnEnergy):
        limit = math.inf

        def forward(self, h, y):
            return torch.where(y[..., 0] > self.limit, math.nan, super().forward(h, y))

    x, y = data(D)
    model = EnergyModel.for_table(x, y, energy=Overflowing, width=8)
    model.energy.limit = 2.0
    with pytest.raises(UndefinedError, match="energy, or log density, is NaN or infinite"):
        model.predictive(x[:2])


@pytest.mark.parametrize("proposal", ["flow", "full-mixture"])
@pytest.mark.parametrize("bounds", [(0, None), (-100, 100), (None, 30)])
def test_bounds_need_a_proposal_that_keeps_them(proposal, bounds):
    for kind in (EnergyRegressor, MixtureDensityRegressor):
        with pytest.raises(ValueError, match=r"proposal must stay within bounds.*leave out bounds"):
            kind(proposal=proposal, bounds=bounds, **QUICK).fit(X, abs(Y))
    box = Bounds(torch.tensor([0.0]), torch.tensor([100.0]))
    with pytest.raises(ValueError, match="proposal must stay within bounds"):
        EnergyModel.for_table(X, abs(Y)[:, None], proposal=proposal, bounds=box)


def test_a_proposal_with_a_bounded_support_keeps_bounds():
    # In standard units this q ends a little inside of the bounds.
    def uniform(n_features: int, n_targets: int) -> nn.Module:
        return PlainHead(n_features, n_targets, lambda m, s: Independent(Uniform(-5 + 0 * m, 5 + 0 * s), 1))

    reg = EnergyRegressor(proposal=uniform, bounds=(-14, 14), **{**QUICK, "max_iter": 30}).fit(X, Y)
    assert abs(reg.sample(X[:5], 100, random_state=0)).max() < 14


def test_a_support_that_leaves_out_targets_is_explained():
    def log_normal(n_features: int, n_targets: int) -> nn.Module:
        return PlainHead(n_features, n_targets, lambda m, s: Independent(LogNormal(m, s), 1))

    with pytest.raises(ValueError, match="proposal must have a support that holds all targets"):
        EnergyRegressor(proposal=log_normal, **QUICK).fit(X, Y)


def test_named_proposals_are_tested():
    assert set(networks.PROPOSALS) <= {arguments.get("proposal") for arguments in REGRESSORS.values()}
