"""Derivatives of predictions: closed forms, finite differences, and backward passes that stay finite."""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad, gradcheck

from ebreg import EnergyRegressor, MixtureDensityRegressor, methods
from ebreg._utils import gradients
from ebreg.distributions import GaussianMixture, LogLinear, TruncatedMixture, segments
from ebreg.models import EnergyModel, MixtureModel
from ebreg.predictive import Accuracy, Predictive, quadrature
from ebreg.units import Bounds, Tail
from support import draws_of, normal, target_of

LEVELS = torch.tensor([0.003, 0.2, 0.5, 0.9, 0.999], dtype=torch.float64)
# What is differentiated, and what is not: functions of a predictive distribution and targets (B, D).
DIFFERENTIABLE = {
    "log_prob": lambda p, y: p.log_prob(y),
    "mean": lambda p, y: p.mean,
    "variance": lambda p, y: p.variance,
    "stddev": lambda p, y: p.stddev,
    "covariance": lambda p, y: p.covariance,
    "quantile": lambda p, y: p.quantile(LEVELS),
    "cdf": lambda p, y: p.cdf(y),
    "expectation": lambda p, y: p.expectation(torch.sin),
}
CONSTANT = {
    "effective_sample_size": lambda p: p.effective_sample_size,
    "pareto_k": lambda p: p.pareto_k,
    "log_partition_error": lambda p: p.log_partition_error,
    "unreliable": lambda p: p.unreliable,
    "sample": lambda p: p.sample(3),
    "modes": lambda p: p.modes()[0].locations,
    "masses": lambda p: p.modes()[0].masses,
    "region": lambda p: p.highest_density_region(0.8).log_threshold,
}


def gradients_of(answer: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Of a sum with weights that differ, so that no two errors cancel."""
    weights = torch.linspace(1, 2, answer.numel(), dtype=answer.dtype).reshape(answer.shape)
    return grad((weights * answer).sum(), inputs, retain_graph=True, materialize_grads=True)


# One segment, and densities that are log-linear between fixed nodes


@pytest.mark.parametrize("scale", [1e-18, 1e-9, 1e-3, 2.9e-3, 3.1e-3, 1.0, 30.0, 650.0])
def test_derivatives_of_a_segment(scale):
    rise = scale * torch.tensor([-1.0, 1.0, -0.3, 0.3], dtype=torch.float64)
    t = torch.tensor([0.2, 0.9, 0.5, 0.99], dtype=torch.float64)
    drop = rise.abs().requires_grad_()
    (slope,) = grad(segments.log_mean_decay(drop).sum(), drop)
    torch.testing.assert_close(slope, -segments.moments(-drop.detach())[0])
    (slope,) = grad(segments.mean_decay(drop).log().sum(), drop)
    torch.testing.assert_close(slope, -segments.moments(-drop.detach())[0])
    torch.testing.assert_close(segments.mean_position(rise), segments.moments(rise)[0], rtol=0, atol=1e-9)
    rise.requires_grad_()
    (by_rise,) = grad(segments.share_below(t, rise).sum(), rise)
    # The series in the rise, exact to its square, where a difference quotient has no digits.
    small = -t * (1 - t) / 2 * (1 + rise.detach() * (2 * t - 1) / 3)
    if scale < 1e-4:
        torch.testing.assert_close(by_rise, small, rtol=1e-6, atol=0)
    else:
        h = 1e-4 * scale
        numeric = (segments.share_below(t, rise + h) - segments.share_below(t, rise - h)) / (2 * h)
        torch.testing.assert_close(by_rise, numeric.detach(), rtol=1e-5, atol=1e-8)


def test_second_derivatives_of_a_segment():
    rise = torch.tensor([-2.0, -0.01, 0.02, 5.0], dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.1, 0.4, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(segments.share_below, (t, rise))
    for decay in (segments.log_mean_decay, segments.mean_decay):
        assert torch.autograd.gradgradcheck(decay, (rise.detach().abs().requires_grad_(),))


BOUNDED = [(False, False), (True, False), (True, True)]


def curve_inputs() -> tuple[Tensor, Tensor]:
    nodes = normal(2, 8).sort(dim=1).values
    log_f = 2 * normal(2, 8, seed=1)
    log_f[0, 3] = log_f[0, 4]  # level
    log_f[1, 5] = log_f[1, 4] + 1e-9  # nearly level
    return nodes, log_f.requires_grad_()


@pytest.mark.parametrize("bounded", BOUNDED)
@pytest.mark.parametrize("verb", ["mean", "variance", "stddev", "log_integral"])
def test_moments_between_nodes(verb, bounded):
    nodes, log_f = curve_inputs()
    assert gradcheck(lambda log_f: getattr(LogLinear(nodes, log_f, bounded), verb), (log_f,))


@pytest.mark.parametrize("bounded", BOUNDED)
@pytest.mark.parametrize("verb", ["log_prob", "cdf"])
def test_functions_of_targets_between_nodes(verb, bounded):
    nodes, log_f = curve_inputs()
    low, high = nodes[:, 0].max() + 0.01, nodes[:, -1].min() - 0.01
    y = torch.linspace(low, high, 7, dtype=torch.float64)[:, None, None].repeat(1, 2, 1)
    if bounded == (False, False):
        y[0], y[-1] = -9.0, 9.0  # in the tails
    y.requires_grad_()
    assert gradcheck(lambda log_f, y: getattr(LogLinear(nodes, log_f, bounded), verb)(y), (log_f, y))


@pytest.mark.parametrize("bounded", BOUNDED)
def test_quantiles_between_nodes(bounded):
    nodes, log_f = curve_inputs()
    assert gradcheck(lambda log_f: LogLinear(nodes, log_f, bounded).icdf(LEVELS), (log_f,))


@pytest.mark.parametrize("bounded", BOUNDED)
def test_expectations_between_nodes(bounded):
    # The points move with log_f and are constants in the derivative: both approximate the same integral,
    # where segments are as level as those of a quadrature.
    nodes = torch.linspace(-4, 4, 33, dtype=torch.float64).repeat(2, 1)
    log_f = (torch.sin(3 * nodes) - 0.5 * nodes**2).requires_grad_()
    assert gradcheck(
        lambda log_f: LogLinear(nodes, log_f, bounded).expectation(torch.sin), (log_f,), atol=1e-5, rtol=1e-4
    )


def test_expectation_of_a_step_has_the_derivative_of_the_cdf():
    nodes = torch.linspace(-4, 4, 400, dtype=torch.float64)[None]
    log_f = (-0.5 * nodes**2).requires_grad_()
    curve = LogLinear(nodes, log_f)
    at = torch.tensor([[0.3]], dtype=torch.float64)
    (wanted,) = grad(curve.cdf(at).sum(), log_f, retain_graph=True)
    (found,) = grad(curve.expectation(lambda y: (y[..., 0] <= at[:, 0]).double()).sum(), log_f)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.05 * wanted.abs().max().item())  # of one segment


def test_expectation_of_a_constant_has_no_derivative():
    nodes, log_f = curve_inputs()
    (found,) = grad(LogLinear(nodes, log_f).expectation(torch.ones_like).sum(), log_f)
    assert found.abs().max() < 1e-14


# Mixtures


def mixture_inputs(D: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    parts = normal(2, 3), normal(2, 3, D, seed=1), 0.5 * normal(2, 3, D, seed=2)
    return tuple(part.requires_grad_() for part in parts)


def build(bounds: tuple[float, float] | None):
    def mixture(logits: Tensor, means: Tensor, log_scales: Tensor) -> GaussianMixture:
        if bounds is None:
            return GaussianMixture(logits, means, log_scales.exp())
        low, high = (torch.full(means.shape[2:], bound, dtype=torch.float64) for bound in bounds)
        return TruncatedMixture(logits, means, log_scales.exp(), low, high)

    return mixture


BOXES = [None, (-0.5, 1.0), (-0.5, math.inf)]


@pytest.mark.parametrize("bounds", BOXES)
def test_quantiles_of_mixtures(bounds):
    mixture = build(bounds)
    assert gradcheck(lambda *parts: mixture(*parts).icdf(LEVELS), mixture_inputs(), fast_mode=True)
    assert gradcheck(lambda *parts: mixture(*parts).quantile(0.3), mixture_inputs(2), fast_mode=True)


@pytest.mark.parametrize("bounds", BOXES)
def test_quantiles_of_a_single_precision_mixture_are_solved_in_double(bounds):
    parts = [part.detach().float().requires_grad_() for part in mixture_inputs()]
    exact = mixture_inputs()
    found = gradients_of(build(bounds)(*parts).icdf(LEVELS), *parts)
    wanted = gradients_of(build(bounds)(*exact).icdf(LEVELS), *exact)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bounds", BOXES)
def test_expectations_of_mixtures(bounds):
    # One target: nodes 1/16 of a scale apart. Several: 4096 quasi-random draws, so an error of about 1 %.
    for D, tolerance in ((1, 1e-3), (2, 0.05)):
        parts = mixture_inputs(D)
        mixture = build(bounds)(*parts)
        wanted = gradients_of(mixture.mean, *parts)
        found = gradients_of(mixture.expectation(lambda y: y), *parts)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance)  # the largest entries are near 1


# Energies with a closed form


class GaussianEnergy(nn.Module):
    """f of independent Gaussians with means slope * x and standard deviations exp(log_scale)."""

    def __init__(self, D: int):
        super().__init__()
        self.n_targets = D
        self.slope = nn.Parameter(torch.linspace(0.7, -0.4, D, dtype=torch.float64))
        self.log_scale = nn.Parameter(torch.linspace(-0.6, 0.2, D, dtype=torch.float64))

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return -0.5 * (((y - self.slope * h) / self.log_scale.exp()) ** 2).sum(dim=-1)


class WideProposal(nn.Module):
    """One Gaussian that does not know x."""

    def __init__(self, D: int):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(D, dtype=torch.float64))

    def forward(self, h: Tensor) -> GaussianMixture:
        logits, means = h.new_zeros(len(h), 1), h.new_zeros(len(h), 1, len(self.log_scale))
        return GaussianMixture(logits, means, 2 * self.log_scale.exp().expand_as(means))


def gaussian_model(D: int) -> EnergyModel:
    far = torch.full((D,), 6.0)
    return EnergyModel(nn.Identity(), GaussianEnergy(D), WideProposal(D), tail=Tail(-far, far, far / 6))


# Of the largest entry. Quadrature; and 2048 draws, whose derivative of a quantile rests on a density that is
# estimated by a difference quotient.
TOLERANCE = {1: 1e-3, 2: 0.03}


@pytest.mark.parametrize("D", [1, 2])
def test_gaussian_energy(D):
    model, q = gaussian_model(D), torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64)
    slope, log_scale = model.energy.slope, model.energy.log_scale
    scale = log_scale.detach().exp()
    x = torch.tensor([[-0.5], [0.0], [1.2]], dtype=torch.float64, requires_grad=True)
    y = (0.3 + 0.1 * normal(3, D)).requires_grad_()
    p = model.predictive(x, Accuracy(n_draws=2**14))
    r = ((y - slope * x) / scale).detach()

    def close(found: Tensor, wanted: Tensor, factor: float = 1.0) -> None:
        tolerance = factor * TOLERANCE[D] * max(1.0, wanted.abs().max().item())
        torch.testing.assert_close(found, wanted.expand_as(found), rtol=0, atol=tolerance)

    for d in range(D):
        by_x, by_slope, by_scale = grad(p.mean[:, d].sum(), (x, slope, log_scale), retain_graph=True)
        close(by_x, slope[d].detach())
        close(by_slope[d], x.detach().sum())
        close(by_scale, torch.zeros(D, dtype=torch.float64), 3)
        for level in q:
            by_x, by_scale = grad(p.quantile(level)[:, d].sum(), (x, log_scale), retain_graph=True)
            close(by_x, slope[d].detach(), 5)
            close(by_scale[d], 3 * scale[d] * torch.special.ndtri(level), 5)
        by_x, by_scale = grad(p.stddev[:, d].sum(), (x, log_scale), retain_graph=True)
        close(by_x, torch.zeros(3, 1, dtype=torch.float64))
        close(by_scale[d], 3 * scale[d])
    by_x, by_y, by_scale = grad(p.log_prob(y).sum(), (x, y, log_scale), retain_graph=True)
    close(by_x, (slope * r / scale).sum(dim=1, keepdim=True).detach())
    close(by_y, -r / scale, 10)  # log-linear between nodes: a step function, off by half a step
    close(by_scale, (r**2 - 1).sum(dim=0))
    (by_scale,) = grad(p.log_partition.sum(), log_scale)
    close(by_scale, torch.full((D,), 3.0, dtype=torch.float64))


def test_log_prob_of_several_targets_is_exact_in_y():
    model = gaussian_model(2)
    x = torch.tensor([[0.4]], dtype=torch.float64)
    y = torch.tensor([[0.1, -0.2]], dtype=torch.float64, requires_grad=True)
    (by_y,) = grad(model.predictive(x).log_prob(y).sum(), y)
    energy = model.energy
    torch.testing.assert_close(by_y, (-(y - energy.slope * x) / (2 * energy.log_scale).exp()).detach())


# Networks


def network_model(kind, D: int, bounded: bool):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x, y = torch.randn(64, 2), 2 * torch.rand(64, D)
        bounds = Bounds(torch.zeros(D), torch.full((D,), 2.0)) if bounded else None
        model = kind.for_table(x, y, n_components=3, width=8, bounds=bounds).to_float64()
    if kind is EnergyModel:
        with torch.no_grad():  # as new networks are, f would hardly depend on x
            model.energy.output_layer.weight.mul_(20)
            model.energy.first_joint_layer.weight.mul_(3)
    return model


X = torch.tensor([[0.3, -0.2], [-1.0, 0.7], [1.5, 0.0]], dtype=torch.float64)
Y = torch.tensor([[0.4, 1.1], [1.0, 0.2], [1.9, 0.7]], dtype=torch.float64)
EXACT = [(EnergyModel, 1, False), (EnergyModel, 1, True)]
EXACT += [(MixtureModel, D, bounded) for D in (1, 2) for bounded in (False, True)]
ALL = [*EXACT, (EnergyModel, 2, False), (EnergyModel, 2, True)]


def directional(fn, model, x: Tensor, step: float) -> list[tuple[Tensor, Tensor]]:
    """Derivatives along a direction of x and of two weights, by autograd and by central differences."""
    weights = dict(model.named_parameters())
    head = "energy" if isinstance(model, EnergyModel) else "head"
    some = [next(value for name, value in weights.items() if part in name) for part in ("backbone", head)]
    pairs = []
    x = x.clone().requires_grad_()
    answer = fn(x)
    v = torch.linspace(1, 2, answer.numel(), dtype=answer.dtype).reshape(answer.shape)
    slopes = grad((v * answer).sum(), [x, *some])
    for values, slope in zip([x, *some], slopes, strict=True):
        direction = torch.cos(torch.arange(values.numel(), dtype=values.dtype)).reshape(values.shape)
        with torch.no_grad():
            ends = []
            for sign in (1, -1):
                values.add_(sign * step * direction)
                ends.append((v * fn(x)).sum())
                values.sub_(sign * step * direction)
        pairs.append(((slope * direction).sum(), (ends[0] - ends[1]) / (2 * step)))
    return pairs


@pytest.mark.parametrize(("kind", "D", "bounded"), EXACT)
def test_finite_differences(kind, D, bounded):
    # Mixtures are exact. The nodes of a quadrature move with x, and its error, of 1e-5 or so, with them: over
    # a step of 0.01 that is 1e-3. The error of the central difference is of the order of the step squared.
    model = network_model(kind, D, bounded)
    for name, verb in DIFFERENTIABLE.items():
        if name == "expectation" and D > 1:
            continue  # by draws, which move
        step, tolerance = (1e-2, 3e-3) if kind is EnergyModel or name == "expectation" else (1e-4, 1e-6)
        for found, wanted in directional(
            lambda x, verb=verb: verb(model.predictive(x), Y[:, :D]), model, X, step
        ):
            scale = max(0.1, abs(wanted.item()))
            assert abs(found.item() - wanted.item()) <= tolerance * scale, (name, found, wanted)
    for found, wanted in directional(lambda x: model.log_prob(x, Y[:, :D]), model, X, 1e-2):
        assert abs(found.item() - wanted.item()) <= 5e-3 * max(0.1, abs(wanted.item()))


def grid_answers(model: EnergyModel, x: Tensor, n: int = 240) -> dict[str, Tensor]:
    """Of two targets, by a grid that all rows share and that does not move: a reference with exact slopes."""
    bounds = model.bounds
    side = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    low, high = (bounds.low, bounds.high) if not bounds.are_open else (Y.min() - 6.0, Y.max() + 6.0)
    grid = low + (high - low) * torch.cartesian_prod(side, side)
    f = model.f_grid(model.features(x), model.standardize(grid))
    log_z = f.logsumexp(dim=0)
    p = (f - log_z).exp()
    mean = p.T @ grid
    f_y = model.f(model.features(x), model.standardize(Y))
    area = ((high - low) / n).expand(2).log().sum()
    return {"log_prob": f_y - log_z - area, "mean": mean, "variance": p.T @ grid**2 - mean**2}


@pytest.mark.parametrize("bounded", [False, True])
def test_several_targets_against_a_grid(bounded):
    # Not by differences of the predictions: the draws are chosen anew for every x, and the difference of two
    # Monte Carlo errors of 0.01, over a step, is all that would be seen.
    model = network_model(EnergyModel, 2, bounded)
    x = X.clone().requires_grad_()
    p, wanted = model.predictive(x, Accuracy(n_draws=8192)), grid_answers(model, x)
    weights = [model.backbone.get_parameter(name) for name, _ in model.backbone.named_parameters()][:1]
    weights += [model.energy.output_layer.weight]
    for name, reference in wanted.items():
        answer = DIFFERENTIABLE[name](p, Y)
        torch.testing.assert_close(answer, reference, rtol=0.02, atol=0.02)
        for found, slope in zip(
            gradients_of(answer, x, *weights), gradients_of(reference, x, *weights), strict=True
        ):
            torch.testing.assert_close(found, slope, rtol=0, atol=0.05 * slope.abs().max().item())


@pytest.mark.parametrize(("kind", "D", "bounded"), ALL)
def test_what_is_differentiated_and_what_is_not(kind, D, bounded):
    model = network_model(kind, D, bounded)
    x = X.clone().requires_grad_()
    p = model.predictive(x)
    assert isinstance(p, Predictive)
    for name, verb in DIFFERENTIABLE.items():
        slopes = gradients_of(verb(p, Y[:, :D]), x)[0]
        assert torch.isfinite(slopes).all(), name
        assert slopes.abs().sum() > 0, name
    if kind is EnergyModel:
        assert p.log_partition.requires_grad
    for name, verb in CONSTANT.items():
        assert not verb(p).requires_grad, name


@pytest.mark.parametrize(("kind", "D", "bounded"), ALL)
def test_nothing_is_recorded_without_gradients(kind, D, bounded):
    model = network_model(kind, D, bounded)
    with torch.no_grad():
        p = model.predictive(X.clone().requires_grad_())
        assert not model.log_prob(X, Y[:, :D]).requires_grad
    for values in vars(p).values():
        assert not (isinstance(values, Tensor) and values.requires_grad)
    recorded = model.predictive(X)
    with torch.no_grad():
        for name, verb in DIFFERENTIABLE.items():
            assert not verb(recorded, Y[:, :D]).requires_grad, name
    # Asking without gradients first must not hide them later.
    for name, verb in DIFFERENTIABLE.items():
        assert verb(recorded, Y[:, :D]).requires_grad, name


@pytest.mark.parametrize(("kind", "D", "bounded"), ALL)
def test_answers_are_the_same_with_and_without_gradients(kind, D, bounded):
    model = network_model(kind, D, bounded)
    recorded = model.predictive(X)
    with torch.no_grad():
        plain = model.predictive(X)
        wanted = {name: verb(plain, Y[:, :D]) for name, verb in DIFFERENTIABLE.items()}
    for name, verb in DIFFERENTIABLE.items():
        torch.testing.assert_close(verb(recorded, Y[:, :D]).detach(), wanted[name], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("kind", "D", "bounded"), ALL)
def test_gradients_reach_all_networks_that_the_answer_depends_on(kind, D, bounded):
    model = network_model(kind, D, bounded)
    p = model.predictive(X)
    (p.log_prob(Y[:, :D]) + p.mean[:, 0] + p.quantile(0.7)[:, 0] + p.log_partition).sum().backward()
    for name, weight in model.named_parameters():
        if name.startswith("proposal"):  # p is proportional to exp f, whatever q is
            assert weight.grad is None
        else:
            assert weight.grad is not None, name
            assert torch.isfinite(weight.grad).all()
            assert weight.grad.abs().sum() > 0, name
    if kind is EnergyModel:
        model.predictive(X).proposal.log_prob(Y[:, :D]).sum().backward()
        assert all(weight.grad is not None for weight in model.proposal.parameters())


@pytest.mark.parametrize(("kind", "D"), [(EnergyModel, 1), (EnergyModel, 2), (MixtureModel, 1)])
def test_rows_have_their_own_gradients(kind, D):
    model = network_model(kind, D, bounded=False)
    for name, verb in DIFFERENTIABLE.items():
        if name in ("quantile", "covariance"):
            continue
        x, one = X.clone().requires_grad_(), X[1:2].clone().requires_grad_()
        (together,) = grad(verb(model.predictive(x), Y[:, :D])[1].sum(), x)
        (alone,) = grad(verb(model.predictive(one), Y[1:2, :D]).sum(), one)
        assert (together[[0, 2]] == 0).all()
        torch.testing.assert_close(together[1:2], alone, rtol=1e-6, atol=1e-9)


def test_networks_stay_in_evaluation_mode():
    model = network_model(EnergyModel, 2, bounded=False)
    model.energy = nn.ModuleDict({"inner": model.energy, "dropout": nn.Dropout(0.5)})
    model.energy.forward = lambda h, y: model.energy["inner"](model.energy["dropout"](h), y)
    model.train()
    x = X.clone().requires_grad_()
    first, second = (grad(model.predictive(x).mean.sum(), x)[0] for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    p = model.predictive(x)
    torch.testing.assert_close(p.log_prob(Y), p.log_prob(Y), rtol=0, atol=0)
    assert model.training


# Backward passes stay finite


def assert_finite_slopes(p, y: Tensor, parameter: Tensor) -> None:
    for name, verb in DIFFERENTIABLE.items():
        (slope,) = grad(verb(p, y).sum(), parameter, retain_graph=True)
        assert torch.isfinite(slope).all(), (name, slope)


def wide_mixture(B: int, D: int = 1) -> GaussianMixture:
    shape = (B, 2, D)
    return GaussianMixture(torch.zeros(B, 2), normal(*shape), torch.ones(shape, dtype=torch.float64))


ENERGIES = {
    "narrow": lambda y, a: -0.5 * ((y - a) / 1e-7) ** 2,
    "cliff": lambda y, a: torch.where(y > 0.3, -1e6, a * y),
    "two far peaks": lambda y, a: torch.logaddexp(-1e5 * (y - 1 - a) ** 2, -1e5 * (y + 1 - a) ** 2),
    "level": lambda y, a: 0 * y + a,
    "steep": lambda y, a: 1e4 * (1 + a) * y,
    "no mass in parts": lambda y, a: (a * y).masked_fill(y.abs() > 0.5, -torch.inf),
}


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("box", ["open", "bounded"])
def test_backward_of_one_target_is_finite(name, box):
    a = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, dtype=torch.float64)
    bounds = Bounds(-2 * one, 2 * one) if box == "bounded" else Bounds.none(1)
    tail = Tail(-2 * one, 2 * one, one, bounds)
    target = target_of(lambda y: ENERGIES[name](y[..., 0], a), wide_mixture(3), tail)
    p = quadrature(replace(target, bounds=bounds), Accuracy())
    for y in (0.0, 2.0, -2.0, 1e-7, 50.0, -1e10):
        at = torch.full((3, 1), y, dtype=torch.float64, requires_grad=True)
        assert_finite_slopes(p, at, a)
        value = p.log_prob(at)
        assert torch.isfinite(grad(value.sum(), at, retain_graph=True)[0]).all()
    at = torch.full((3, 1), math.inf, dtype=torch.float64)
    assert torch.isfinite(grad(p.cdf(at).sum(), a, retain_graph=True)[0]).all()


@pytest.mark.parametrize("name", ["narrow", "cliff", "level", "no mass in parts"])
def test_backward_of_several_targets_is_finite(name):
    a = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    p = draws_of(lambda y: ENERGIES[name](y, a[:, None]).sum(dim=-1), wide_mixture(3, 2), n_draws=512)
    assert_finite_slopes(p, torch.zeros(3, 2, dtype=torch.float64), a)


def test_backward_of_rows_without_any_mass_is_finite():
    a = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    p = draws_of(lambda y: (a * y[..., 0]).masked_fill(y[..., 0] > -1e9, -torch.inf), wide_mixture(3, 2))
    assert (p.effective_sample_size == 0).all()
    for name in ("mean", "stddev", "quantile", "cdf", "expectation"):
        (slope,) = grad(DIFFERENTIABLE[name](p, torch.zeros(3, 2)).sum(), a, retain_graph=True)
        assert torch.isfinite(slope).all()


@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_backward_of_narrow_mixtures_is_finite(bounds):
    logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    means = torch.tensor([[0.0, 1.0], [-5.0, 0.5]], dtype=torch.float64)[..., None].requires_grad_()
    log_scales = torch.tensor([[-20.0, -20.0], [-3.0, 4.0]], dtype=torch.float64)[..., None].requires_grad_()
    mixture = build(bounds)(logits, means, log_scales)
    for verb in DIFFERENTIABLE.values():  # the median of the first row lies in a gap without any density
        answer = verb(mixture, torch.full((2, 1), 0.5, dtype=torch.float64))
        for slope in gradients_of(answer, logits, means, log_scales):
            assert torch.isfinite(slope).all()


def test_square_root_has_no_infinite_derivative():
    values = torch.tensor([0.0, 4.0], requires_grad=True)
    root = gradients.sqrt(values)
    assert root.tolist() == [0, 2]
    assert grad(root.sum(), values)[0].tolist() == [0, 0.25]


# Quantiles of draws


@pytest.mark.parametrize("q", [0.02, 0.5, 0.9])
def test_quantiles_of_draws_move_with_the_weights(q):
    # Tilted by exp(a y), a standard Gaussian has the mean a: every quantile moves by 1.
    a = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    p = draws_of(
        lambda y: a * y[..., 0] - 0.5 * (y**2).sum(dim=-1),
        GaussianMixture(torch.zeros(2, 1), torch.zeros(2, 1, 2), torch.ones(2, 1, 2)),
        n_draws=4096,
    )
    (slope,) = grad(p.quantile(q)[:, 0].sum(), a, retain_graph=True)
    torch.testing.assert_close(slope, torch.ones_like(slope), rtol=0, atol=0.1)
    (other,) = grad(p.quantile(q)[:, 1].sum(), a)  # independent of the first target
    torch.testing.assert_close(other, torch.zeros_like(other), rtol=0, atol=0.1)


def test_second_derivatives_of_quantiles_are_refused():
    nodes, log_f = curve_inputs()
    with pytest.raises(RuntimeError, match="quantiles can be differentiated once"):
        grad(LogLinear(nodes, log_f).icdf(0.3).sum(), log_f, create_graph=True)


# What must not keep a graph


def tensors_in(value, depth: int = 0) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, nn.Module) or depth > 6:
        return []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    if inner is None:
        inner = vars(value).values() if hasattr(value, "__dict__") and not callable(value) else ()
    return [tensor for part in inner for tensor in tensors_in(part, depth + 1)]


@pytest.mark.parametrize("D", [1, 2])
@pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
def test_estimators_keep_no_graph(kind, D):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), rng.normal(size=(80, D))
    model = kind(max_iter=1, width=4, random_state=0, verbose=False).fit(X, y)
    with torch.enable_grad():
        p = model.predict_distribution(X[:5])
        p.mean, p.stddev, p.interval(0.8), p.log_prob(y[:5]), p.modes(), p.expectation(np.sin)
        p.highest_density_region(0.5).contains(y[:5])
        recorded = []
        p.apply(lambda p, y: recorded.append(p.log_prob(y).requires_grad) or y[:, 0], y[:5])
    assert recorded == [False]
    kept = [tensor for p in p._chunks._kept.values() for tensor in tensors_in(p)]
    assert len(kept) >= 3
    assert not any(tensor.requires_grad for tensor in kept)
    copy.deepcopy(p)


@pytest.mark.parametrize(("kind", "D"), [(EnergyModel, 1), (EnergyModel, 2), (MixtureModel, 1)])
def test_validation_records_nothing(kind, D):
    model = network_model(kind, D, bounded=False)
    method = methods.JointNCE(model) if kind is EnergyModel else methods.MixtureNLL(model)
    assert not method.validation_nll(X, Y[:, :D]).requires_grad


def test_predictions_with_a_graph_can_be_pickled():
    model = network_model(EnergyModel, 1, bounded=False)
    p = model.predictive(X)
    again = pickle.loads(pickle.dumps(p))
    torch.testing.assert_close(again.mean, p.mean)
