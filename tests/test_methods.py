import copy
import math
import pickle

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from ebreg.distributions import GaussianMixture
from ebreg.methods import (
    METHODS,
    FixedMLE,
    FixedNCE,
    JointMLE,
    JointNCE,
    Method,
    MixtureNLL,
    MixtureTeacher,
    ResidualNCE,
)
from ebreg.models import EnergyModel, MixtureModel, ResidualModel
from ebreg.networks import MLP, EnergyHead, MixtureHead, residual_energy
from ebreg.predictive import VALIDATION
from ebreg.sampling import SAMPLERS, Independent, Stratified
from ebreg.units import Standardizer
from support import normal, rng

B, H = 6, 5


def batch(D: int = 1, n: int = B) -> tuple[Tensor, Tensor]:
    return normal(n, 2), 0.7 * normal(n, D, seed=1) + 0.2


def energy_model(D: int = 1, K: int = 3, y_units: Standardizer | None = None) -> EnergyModel:
    return EnergyModel(
        backbone(), energy(D), MixtureHead(H, D, K, activation="tanh"), y_units=y_units
    ).double()


def residual_model(D: int = 1, K: int = 3) -> ResidualModel:
    correction = residual_energy(H, D, width=7)
    # It is 0 before training, and only its last layer has a gradient then.
    nn.init.normal_(correction.coefficients.weight)
    return ResidualModel(backbone(), correction, MixtureHead(H, D, K, activation="tanh")).double()


def mixture_model(D: int = 1, K: int = 3) -> MixtureModel:
    return MixtureModel(backbone(), MixtureHead(H, D, K, activation="tanh")).double()


def backbone() -> nn.Module:
    return MLP(2, (H, H), activation="tanh").double()


def energy(D: int) -> EnergyHead:
    return EnergyHead(H, D, (7,), (7, 7)).double()


SIGMAS = (0.1, 0.8)
# Every method, as D targets, K components, M draws; which losses it has, and whom each of them moves.
FAMILY = {
    "fixed-mle": (
        lambda D, K, M: FixedMLE(energy_model(D, K), SIGMAS, M),
        {"mle": {"backbone", "energy"}, "log_z": {"q"}},
    ),
    "fixed-nce": (
        lambda D, K, M: FixedNCE(energy_model(D, K), SIGMAS, M),
        {"nce": {"backbone", "energy"}, "log_z": {"q"}},
    ),
    "joint-mle": (
        lambda D, K, M: JointMLE(energy_model(D, K), M),
        {"mle": {"backbone", "energy", "q"}},
    ),
    "joint-nce": (
        lambda D, K, M: JointNCE(energy_model(D, K), M),
        {"nce": {"backbone", "energy"}, "log_z": {"q"}},
    ),
    "joint-nce independent": (
        lambda D, K, M: JointNCE(energy_model(D, K), M, draws="independent"),
        {"nce": {"backbone", "energy"}, "log_z": {"q"}},
    ),
    "mdn-nll": (
        lambda D, K, M: MixtureNLL(mixture_model(D, K)),
        {"nll": {"backbone", "q"}},
    ),
    "mdn-teacher": (
        lambda D, K, M: MixtureTeacher(mixture_model(D, K), energy(D), backbone(), M),
        {"nce": {"energy", "teacher"}, "mdn": {"backbone", "q"}},
    ),
    "mdn-teacher shared": (
        lambda D, K, M: MixtureTeacher(mixture_model(D, K), energy(D), n_draws=M),
        {"nce": {"backbone", "energy"}, "mdn": {"backbone", "q"}},
    ),
    "residual-nce": (
        lambda D, K, M: ResidualNCE(residual_model(D, K), M),
        {"nce": {"backbone", "energy"}, "offset": {"backbone", "energy"}, "nll": {"backbone", "q"}},
    ),
    "residual-nce mdn": (
        lambda D, K, M: ResidualNCE(residual_model(D, K), M, proposal_loss="mdn"),
        {"nce": {"backbone", "energy"}, "offset": {"backbone", "energy"}, "mdn": {"backbone", "q"}},
    ),
}


def build(name: str, D: int = 1, K: int = 3, M: int = 8) -> Method:
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        return FAMILY[name][0](D, K, M)


def groups(method: Method) -> dict[str, list[nn.Parameter]]:
    """The parameters of a method by their part in it; every one is in exactly one group."""
    model = method.model
    parts = {
        "backbone": model.backbone,
        "q": model.head if isinstance(model, MixtureModel) else model.proposal,
    }
    if isinstance(method, MixtureTeacher):
        parts["energy"] = method.teacher.energy
        if not method.shared:
            parts["teacher"] = method.teacher.backbone
    elif isinstance(model, EnergyModel):
        parts["energy"] = model.energy
    found = {name: list(part.parameters()) for name, part in parts.items()}
    assert sum(map(len, found.values())) == len(list(method.parameters()))
    return found


def values(method: Method, D: int = 1, seed: int = 2) -> dict[str, Tensor]:
    x, y = batch(D)
    return method(x, y, method.points(B, rng(seed)))


@pytest.fixture(params=FAMILY)
def name(request) -> str:
    return request.param


def test_every_method_is_in_the_family():
    assert {name.split()[0] for name in FAMILY} == set(METHODS)
    assert all(METHODS[method.name] is method for method in METHODS.values())
    assert {type(build(name)) for name in FAMILY} == set(METHODS.values())


@pytest.mark.parametrize("D", [1, 3])
def test_one_finite_loss_per_example(name, D):
    method = build(name, D)
    u = method.points(B, rng())
    assert u.shape[1:] == (B, D)
    losses = values(method, D)
    assert set(losses) == set(FAMILY[name][1])
    for loss in losses.values():
        assert loss.shape == (B,)
        assert torch.isfinite(loss).all()


@pytest.mark.parametrize("D", [1, 2])
def test_single_precision_works(name, D):
    method = build(name, D).float()
    x, y = batch(D)
    single = method(x.float(), y.float(), method.points(B, rng(2)))
    double = values(build(name, D), D)
    for key, loss in single.items():
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, double[key].float(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("M", "K", "n"), [(1, 3, 4), (8, 1, 4), (8, 3, 1), (1, 1, 1)])
@pytest.mark.parametrize("D", [1, 2])
def test_one_of_everything_is_enough(name, M, K, n, D):
    method = build(name, D, K, M)
    x, y = batch(D, n)
    losses = method(x, y, method.points(n, rng()))
    sum(loss.mean() for loss in losses.values()).backward()
    for loss in losses.values():
        assert loss.shape == (n,)
        assert torch.isfinite(loss).all()
    for parameter in method.parameters():
        assert torch.isfinite(parameter.grad).all()


# Who learns from what


def moved(loss: Tensor, method: Method) -> set[str]:
    """The groups that get a gradient from a loss, every parameter or none of each."""
    found = set()
    for group, parameters in groups(method).items():
        gradients = torch.autograd.grad(loss.sum(), parameters, retain_graph=True, allow_unused=True)
        reached = [gradient is not None and bool(gradient.abs().sum() > 0) for gradient in gradients]
        # An offset of f cancels in every loss: the bias of its last layer alone stays where it is. Under a
        # tanh it is no offset.
        if group == "energy" and not isinstance(method, ResidualNCE):
            assert reached[-1] is False or gradients[-1].abs().max() < 1e-12
            reached = reached[:-1]
        assert all(reached) or not any(reached), f"part of {group}"
        if any(reached):
            found.add(group)
    return found


@pytest.mark.parametrize("D", [1, 2])
def test_each_loss_moves_exactly_whom_it_should(name, D):
    method = build(name, D)
    losses = values(method, D)
    for key, groups_moved in FAMILY[name][1].items():
        assert moved(losses[key], method) == groups_moved, key
    # Between them nobody is left out.
    assert set().union(*FAMILY[name][1].values()) == set(groups(method))


def test_the_proposal_of_the_papers_energy_models_sees_detached_features(name):
    method = build(name)
    seen = []
    model = method.model
    head = model.head if isinstance(model, MixtureModel) else model.proposal
    head.register_forward_pre_hook(lambda _, args: seen.append(args[0].requires_grad))
    values(method)
    # A mixture density network is its own model, and a correction starts from its proposal: there the
    # features learn from it.
    assert seen == [isinstance(model, MixtureModel | ResidualModel)]


def test_joint_mle_moves_the_backbone_through_f_alone():
    method = build("joint-mle")
    x, y = batch()
    u = method.points(B, rng())
    (loss,) = method(x, y, u).values()
    gradients = torch.autograd.grad(loss.sum(), groups(method)["backbone"])
    # The same with log q as a number.
    model = method.model
    h = model.features(x)
    with torch.no_grad():
        q = model.q(h)
        draws = q.from_uniform(u[:-1])
        log_q = q.log_prob(draws)
    expected = (model.f(h, draws) - log_q).logsumexp(dim=0) - math.log(len(draws)) - model.f(h, y)
    torch.testing.assert_close(loss, expected)
    expected = torch.autograd.grad(expected.sum(), groups(method)["backbone"])
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("name", ["fixed-mle", "fixed-nce"])
def test_hand_set_noise_knows_nothing_of_the_proposal(name):
    method = build(name)
    before = values(method)
    with torch.no_grad():
        for parameter in groups(method)["q"]:
            parameter.add_(torch.randn(parameter.shape, generator=rng(9)))
    after = values(method)
    loss = next(key for key in before if key != "log_z")
    assert torch.equal(before[loss], after[loss])
    assert not torch.allclose(before["log_z"], after["log_z"])


def test_mdn_nll_ignores_the_points():
    method = build("mdn-nll")
    x, y = batch()
    assert method.points(B).shape == (0, B, 1)
    q = method.model.q(method.model.features(x))
    assert torch.equal(values(method)["nll"], -q.log_prob(y))


@pytest.mark.parametrize("sampler", [Independent(4), Stratified(4)])
def test_draws_are_never_differentiated(sampler):
    means = normal(B, 2, 1).requires_grad_()
    q = GaussianMixture(normal(B, 2).requires_grad_(), means, normal(B, 2, 1).exp().requires_grad_())
    draws = sampler(q, means[:, 0], sampler.points(B, 1, rng()))
    assert not draws.y.requires_grad
    f = normal(len(draws.y), B).requires_grad_()
    draws.as_noise(f).exp().sum().backward()
    assert means.grad is None
    assert (f.grad == 0).sum().item() == (0 if draws.taken is None else B)


# The losses themselves


def test_losses_by_a_slow_double_loop():
    """Equations (5), (6) and (8), one term at a time, from independent draws."""
    M = 4
    joint = JointNCE(energy_model(2), M, draws="independent")
    student = mixture_model(2)
    teacher = MixtureTeacher(student, energy(2), backbone(), M, draws="independent")
    residual = ResidualNCE(residual_model(2), M, draws="independent", proposal_loss="mdn")
    x, y = batch(2)
    u = joint.points(B, rng(5))
    assert torch.equal(u, teacher.points(B, rng(5)))
    assert torch.equal(u, residual.points(B, rng(5)))
    for method, f_model in ((joint, joint.model), (teacher, teacher.teacher), (residual, residual.model)):
        q = method.model.q(method.model.features(x))
        draws, h = q.from_uniform(u), f_model.features(x)
        losses = method(x, y, u)
        f, f_y = f_model.f(h, draws).tolist(), f_model.f(h, y).tolist()
        log_q, log_q_y = q.log_prob(draws).tolist(), q.log_prob(y).tolist()
        for b in range(B):
            ratios = [math.exp(f[m][b] - log_q[m][b]) for m in range(M)]
            own = math.exp(f_y[b] - log_q_y[b])
            log_z = math.log(sum(ratios) / M)
            assert losses["nce"][b].item() == pytest.approx(-math.log(own / (own + sum(ratios))), rel=1e-9)
            if method is joint:
                assert losses["log_z"][b].item() == pytest.approx(log_z, rel=1e-9)
            else:
                assert losses["mdn"][b].item() == pytest.approx(0.5 * log_z - 0.5 * log_q_y[b], rel=1e-9)


def test_a_correction_of_nothing_gives_the_known_values():
    # At the start f = log q: g is 0, whatever the proposal.
    model = ResidualModel(backbone(), residual_energy(H, 2), MixtureHead(H, 2, 3)).double()
    losses = values(ResidualNCE(model, 5), 2)
    torch.testing.assert_close(losses["nce"], torch.full((B,), math.log(6), dtype=torch.float64))
    x, y = batch(2)
    q = model.q(model.features(x))
    torch.testing.assert_close(losses["nll"], -q.log_prob(y))
    torch.testing.assert_close(model.f(model.features(x), y), q.log_prob(y))


class LogProposal(nn.Module):
    """The energy log q + 3, where nothing is left to learn."""

    n_targets = 2

    def __init__(self, head: MixtureHead):
        super().__init__()
        self.head = head

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return self.head(h).log_prob(y) + 3


@pytest.mark.parametrize("draws", SAMPLERS)
@pytest.mark.parametrize("M", [1, 5, 32])
def test_an_energy_equal_to_the_proposal_gives_the_known_values(draws, M):
    head = MixtureHead(H, 2, 3).double()
    model = EnergyModel(backbone(), LogProposal(head), head).double()
    losses = values(JointNCE(model, M, draws), 2)
    torch.testing.assert_close(losses["nce"], torch.full((B,), math.log(M + 1), dtype=torch.float64))
    torch.testing.assert_close(losses["log_z"], torch.full((B,), 3.0, dtype=torch.float64))


def test_target_and_stratified_noise_are_exchangeable():
    # A target drawn from q has every rank among its M noise draws equally often, whatever its component.
    n, M = 20_000, 4
    q = GaussianMixture(
        torch.tensor([[0.3, -0.5]]).expand(n, 2),
        torch.tensor([[[-1.0], [1.0]]]).expand(n, 2, 1),
        torch.ones(n, 2, 1),
    )
    y = q.sample((), generator=rng(1))
    sampler = Stratified(M)
    draws = sampler(q, y, sampler.points(n, 1, rng(2)))
    left = torch.ones(M + 1, n, dtype=torch.bool).scatter(0, draws.taken[None], False)
    assert (left.sum(dim=0) == M).all()
    ranks = ((draws.y[..., 0] < y[..., 0]) & left).sum(dim=0)
    assert stats.chisquare(torch.bincount(ranks, minlength=M + 1).numpy()).pvalue > 1e-3
    # The draw that is left out is the one of the target's own stratum, so the target's place is uniform too.
    assert stats.chisquare(torch.bincount(draws.taken, minlength=M + 1).numpy()).pvalue > 1e-3


class WithoutPlace:
    """A proposal that can turn points into draws, and cannot say which point a target comes from."""

    def __init__(self, q: GaussianMixture):
        self.from_uniform, self.log_prob = q.from_uniform, q.log_prob


def test_noise_is_independent_where_the_target_cannot_be_placed():
    n, M = 20_000, 4
    q = WithoutPlace(GaussianMixture(torch.zeros(n, 1), torch.zeros(n, 1, 1), torch.ones(n, 1, 1)))
    sampler = Stratified(M)
    draws = sampler(q, torch.zeros(n, 1), sampler.points(n, 1, rng(2)))
    assert draws.taken is None
    assert draws.y.shape == (M, n, 1)
    below = (draws.y[..., 0] < 0).sum(dim=0)  # binomial; of strata it would be two almost always
    expected = n * stats.binom(M, 0.5).pmf(range(M + 1))
    assert stats.chisquare(torch.bincount(below, minlength=M + 1).numpy(), expected).pvalue > 1e-3


def test_stratified_draws_take_every_stratum_once():
    sampler = Stratified(7)
    u = sampler.points(B, 2, rng())
    assert u.shape == (9, B, 2)
    assert torch.equal((u[:8, :, 0] * 8).long().sort(dim=0).values, torch.arange(8)[:, None].expand(8, B))


# Units


@pytest.mark.parametrize("name", ["fixed-mle", "fixed-nce"])
@pytest.mark.parametrize("unit", [1e-4, 1e5])
def test_sigmas_are_in_the_units_of_the_targets(name, unit):
    x, y = batch(2)

    def losses(unit: float, sigma_unit: float) -> dict[str, Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(0)
            model = energy_model(2, y_units=Standardizer.of("y", y * unit))
        method = METHODS[name](model, [sigma * sigma_unit for sigma in SIGMAS], 16)
        return method(x, y * unit, method.points(B, rng(2)))

    plain, scaled, mixed = losses(1.0, 1.0), losses(unit, unit), losses(unit, 1.0)
    for key in plain:
        torch.testing.assert_close(scaled[key], plain[key], rtol=1e-8, atol=1e-8)
    assert not torch.allclose(mixed[next(iter(mixed))], plain[next(iter(plain))], rtol=1e-2)


def test_sigmas_have_the_size_they_say():
    # Columns of different scale: in the user's units the noise is the same in both.
    y = normal(500, 2) * torch.tensor([1.0, 50.0])
    model = energy_model(2, y_units=Standardizer.of("y", y))
    seen = []
    model.energy.register_forward_pre_hook(lambda _, args: seen.append(args[1]))
    method = FixedNCE(model, (2.0,), 40)
    method(normal(500, 2), y, method.points(500, rng()))
    noise = seen[0][1:] * model.y_units.scale + model.y_units.shift - y
    torch.testing.assert_close(
        noise.std(dim=(0, 1)),
        torch.full((2,), 2.0, dtype=torch.float64),
        rtol=4 / math.sqrt(2 * 20_000),
        atol=0,
    )
    torch.testing.assert_close(seen[0][0], model.standardize(y))


# Rows


@pytest.mark.parametrize("D", [1, 2])
def test_a_row_of_points_belongs_to_its_example(name, D):
    method = build(name, D)
    x, y = batch(D)
    u = method.points(B, rng(4))
    losses = method(x, y, u)
    rows = [4, 1]
    for key, loss in method(x[rows], y[rows], u[:, rows]).items():
        torch.testing.assert_close(loss, losses[key][rows], rtol=1e-10, atol=1e-10)
    other_x, other_y, other_u = x.clone(), y.clone(), u.clone()
    other_x[2:] += 1
    other_y[2:] -= 1
    other_u[:, 2:] = 1 - other_u[:, 2:]
    for key, loss in method(other_x, other_y, other_u).items():
        torch.testing.assert_close(loss[:2], losses[key][:2], rtol=1e-10, atol=1e-10)
        assert not torch.isclose(loss[2:], losses[key][2:]).any()


def test_points_come_from_the_generator_alone(name):
    method = build(name)
    before = torch.random.get_rng_state()
    assert torch.equal(method.points(B, rng(1)), method.points(B, rng(1)))
    first, second = values(method), values(method)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(torch.random.get_rng_state(), before)


# After training


@pytest.mark.parametrize("D", [1, 2])
def test_validation_is_the_likelihood_in_the_users_units(name, D):
    method = build(name, D)
    x, y = batch(D)
    nll = method.validation_nll(x, y)
    assert nll.shape == (B,)
    assert not nll.requires_grad
    p = method.model.predictive(x, VALIDATION)
    torch.testing.assert_close(nll, -p.log_prob(y))
    # The same networks with targets a thousand times larger: log 1000 more for each of them.
    shift, scale = torch.zeros(D), torch.full((D,), 1000.0)
    method.model.y_units = Standardizer(shift, scale)
    torch.testing.assert_close(
        method.validation_nll(x, 1000 * y), nll + D * math.log(1000), rtol=1e-6, atol=1e-6
    )


def test_every_method_learns(name):
    x = torch.rand(256, 2, generator=rng(1), dtype=torch.float64)
    y = x[:, :1] * 2 - 1 + 0.2 * normal(256, 1, seed=3)
    method = build(name, M=16)
    before = method.validation_nll(x, y).mean()
    optimizer = torch.optim.Adam(method.parameters(), lr=1e-2)
    points = rng(5)
    for _ in range(60):
        optimizer.zero_grad()
        sum(loss.mean() for loss in method(x, y, method.points(256, points)).values()).backward()
        optimizer.step()
    after = method.validation_nll(x, y).mean()
    assert after < before - 0.2


def test_methods_are_copied_whole(name):
    method = build(name)
    for other in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        first, second = values(method), values(other)
        assert all(torch.equal(first[key], second[key]) for key in first)
        assert len(list(other.parameters())) == len(list(method.parameters()))


def test_a_shared_backbone_is_one():
    shared, own = build("mdn-teacher shared"), build("mdn-teacher")
    assert shared.teacher.backbone is shared.model.backbone
    assert own.teacher.backbone is not own.model.backbone
    assert own.teacher.y_units is own.model.y_units


def test_a_teacher_of_the_users_own_needs_no_name():
    class Plain(nn.Module):
        def forward(self, h: Tensor, y: Tensor) -> Tensor:
            return -(y - h[:, :1]).square().sum(dim=-1)

    losses = values(MixtureTeacher(mixture_model(), Plain(), n_draws=4))
    assert torch.isfinite(losses["nce"]).all()


# Refusals


def test_unknown_names_and_numbers_are_refused():
    with pytest.raises(ValueError, match="draws must be one of 'independent', 'stratified'; got 'sobol'"):
        JointNCE(energy_model(), draws="sobol")
    with pytest.raises(ValueError, match="proposal_loss must be one of 'nll', 'mdn'; got 'kl'"):
        ResidualNCE(residual_model(), proposal_loss="kl")
    with pytest.raises(TypeError, match="ResidualNCE trains a model of type ResidualModel, got EnergyModel"):
        ResidualNCE(energy_model())
    with pytest.raises(ValueError, match="draws must be one of"):
        MixtureTeacher(mixture_model(), energy(1), draws="")
    with pytest.raises(KeyError, match="joint-nce2"):
        METHODS["joint-nce2"]
    for wrong in (0, -1):
        for method in (JointNCE, JointMLE):
            with pytest.raises(ValueError, match="n_draws must be at least 1"):
                method(energy_model(), wrong)
        with pytest.raises(ValueError, match="n_draws must be at least 1"):
            FixedNCE(energy_model(), SIGMAS, wrong)
    with pytest.raises(ValueError, match="sigmas must be a finite number above 0, got 0"):
        FixedNCE(energy_model(), (0.1, 0.0))
    with pytest.raises(ValueError, match="number of sigmas must be at least 1"):
        FixedMLE(energy_model(), ())
