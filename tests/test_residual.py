"""Residual energies: f = log q + g, with a bounded g that is 0 at the start, by NCE with q as the noise."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ebreg import networks, objectives
from ebreg.methods import ResidualNCE
from ebreg.models import EnergyModel, Position, ResidualModel
from ebreg.networks import Correction
from ebreg.predictive import VALIDATION, Accuracy
from ebreg.sampling import Draws
from ebreg.training import TrainingConfig, fit
from ebreg.units import Bounds, Units
from support import normal, rng

B, H = 6, 8
TARGETS = pytest.mark.parametrize("D", [1, 2])


def data(D: int = 1, n: int = 40) -> tuple[Tensor, Tensor]:
    x = normal(n, 2)
    return x, 3 * (x[:, :1] + 0.7 * normal(n, D, seed=1)) - 2


def build(D: int = 1, size: float = 1.0, limit: float = 8.0, bounds: Bounds | None = None) -> ResidualModel:
    """With a correction of this size; 0 is that of a new model."""
    units = Units.of(*data(D), bounds)
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        parts = networks.table(2, D, 3, H, bounds=units.standard_bounds)
        energy = Correction(1, H, D, H, fall=limit, rise=limit)
        last = energy.coefficients
        with torch.no_grad():
            last.weight += size * torch.randn_like(last.weight)
            last.bias += size
    return ResidualModel.of(replace(parts, energy=energy), units).double()


def values(method: ResidualNCE, D: int = 1) -> dict[str, Tensor]:
    return method(*data(D, B), method.points(B, rng(2)))


def terms(method: ResidualNCE, D: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor, Draws]:
    """f and log q of the targets, (B,), and of the draws of the same step, (M, B); and the draws."""
    model, (x, y) = method.model, data(D, B)
    h, y = model.features(x), model.standardize(y)
    q = model.q(h)
    draws = method.sampler(q, y, method.points(B, rng(2)))
    return model.f(h, y), q.log_prob(y), model.f(h, draws.y), q.log_prob(draws.y), draws


# The model


@TARGETS
def test_a_new_model_is_its_proposal(D):
    model, (x, y) = build(D, size=0.0), data(D, B)
    h, z = model.features(x), model.standardize(y)
    assert torch.equal(model.g(h, z), torch.zeros(B, dtype=torch.float64))
    assert torch.equal(model.f(h, z), model.q(h).log_prob(z))
    with torch.no_grad():
        p = model.predictive(x)
        log_q = p.proposal.log_prob(y)
        torch.testing.assert_close(p.log_prob(y), log_q, rtol=0, atol={1: 1e-3, 2: 0.01}[D])
        torch.testing.assert_close(
            p.log_partition,
            torch.zeros(B, dtype=torch.float64) + model.y_units.scale.log().sum(),
            rtol=0,
            atol=0.01,
        )


@TARGETS
@pytest.mark.parametrize("limit", [0.3, 2.0])
def test_no_density_moves_from_the_proposal_by_more_than_twice_the_limit(D, limit):
    model, (x, _) = build(D, size=5.0, limit=limit), data(D, B)
    with torch.no_grad():
        p = model.predictive(x, Accuracy(n_draws=1024, max_draws=1024))
        y = p.proposal.from_uniform(torch.rand(256, B, D, generator=rng(), dtype=torch.float64))
        change = p.log_prob(y) - p.proposal.log_prob(y)
    assert change.abs().max() < 2 * limit + 0.02
    assert change.abs().max() > 0.8 * limit  # the limit is reached, or this shows nothing


def test_limits_bend_the_energy_smoothly():
    energy = Correction(1, H, 1, H, fall=3.0, rise=2.0).double()
    free = Correction(1, H, 1, H, fall=1e9, rise=1e9).double()
    with torch.no_grad():
        energy.coefficients.weight.copy_(5 * normal(*energy.coefficients.weight.shape))
    free.load_state_dict(energy.state_dict())
    h, u, log_q = normal(B, H), torch.rand(B, 1, generator=rng(), dtype=torch.float64), normal(B)
    e, g = free(h, u, log_q), energy(h, u, log_q)
    assert e.min() < -0.5
    assert e.max() > 0.5
    bound = torch.where(e < 0, 3.0, 2.0)
    torch.testing.assert_close(g, e / (1 + (e / bound) ** 2).sqrt())
    assert energy.n_targets == 1


def test_the_correction_is_a_sum_of_polynomials_in_the_level():
    degree, n_products, D = 5, 2, 2
    energy = Correction(1, H, D, H, degree=degree, n_products=n_products, fall=1e9, rise=1e9).double()
    with torch.no_grad():
        energy.coefficients.weight.copy_(normal(*energy.coefficients.weight.shape))
    h, u, log_q = normal(B, H), torch.rand(B, D, generator=rng(), dtype=torch.float64), 20 * normal(B)
    w, t, log_q_seen = energy.weights(h), 2 * u - 1, log_q.clamp(-6, 6)
    angle = torch.arccos(t)  # T_k(t) = cos(k arccos t)
    polynomials = [torch.cos(k * angle) for k in range(1, degree + 1)]
    functions = [torch.ones(B), log_q_seen, log_q_seen**2 / 6]
    for d in range(D):
        functions += [values[:, d] for values in polynomials]
        functions += [log_q_seen * values[:, d] for values in polynomials[:n_products]]
    wanted = (w * torch.stack(functions, dim=1)).sum(dim=1)
    torch.testing.assert_close(energy(h, u, log_q), wanted)


@TARGETS
def test_the_correction_depends_on_the_position_in_the_proposal_alone(D):
    model, x = build(D), data(D, B)[0]
    h = model.features(x)
    q = model.q(h)
    y = q.mean + q.stddev * normal(B, D)
    narrower = q.with_components(q.logits, q.mean[:, None] + (q.means - q.mean[:, None]) / 3, q.scales / 3)
    moved = Position.of(narrower, q.mean + (y - q.mean) / 3)
    position = Position(moved.u, moved.log_q - D * math.log(3))
    torch.testing.assert_close(model.g(h, y, position), model.g(h, y))


def test_far_out_the_correction_is_constant():
    model, x = build(size=3.0), data(1, B)[0]
    h = model.features(x)
    y = torch.tensor([40.0, 80.0, 1e6], dtype=torch.float64)[:, None, None].expand(-1, B, 1)
    for sign in (1, -1):
        g = model.g(h, sign * y)
        torch.testing.assert_close(g, g[:1].expand_as(g))


def test_bounds_are_those_of_the_proposal():
    x, y = data(1, B)
    bounds = Bounds(data()[1].amin(dim=0), torch.tensor([torch.inf]))
    model = build(bounds=bounds)
    with torch.no_grad():
        p = model.predictive(x)
        below = bounds.low.expand(B, 1) - 0.01
        assert (p.log_prob(below) == -torch.inf).all()
        assert torch.isfinite(p.log_prob(bounds.low.expand(B, 1))).all()
        assert torch.isfinite(p.log_prob(y)).all()
        grid = bounds.low + 60 * (torch.arange(6000, dtype=torch.float64) + 0.5)[:, None, None] / 6000
        mass = p.log_prob(grid.expand(-1, B, -1)).exp().sum(dim=0) * 60 / 6000
        torch.testing.assert_close(mass, torch.ones(B, dtype=torch.float64), rtol=0, atol=1e-3)


@TARGETS
def test_grid_is_f_at_the_same_points(D):
    model, x = build(D), data(D, B)[0]
    h, y = model.features(x), normal(7, D)
    torch.testing.assert_close(model.f_grid(h, y), model.f(h, y[:, None].expand(-1, B, -1)))


@TARGETS
def test_the_normaliser_in_training_is_near_that_of_a_prediction(D):
    model, (x, y) = build(D, size=0.3), data(D, B)
    with torch.no_grad():
        near = model.member_log_prob(x, y, VALIDATION)
        torch.testing.assert_close(near, model.log_prob(x, y), rtol=0, atol=0.1)


# The losses


@pytest.mark.parametrize("draws", ["stratified", "independent"])
@TARGETS
def test_loss_of_g_is_nce_with_the_proposal_as_noise(D, draws):
    method = ResidualNCE(build(D), n_draws=5, draws=draws)
    f_y, log_q_y, f, log_q, noise = terms(method, D)
    expected = objectives.nce(f_y, log_q_y, noise.as_noise(f), log_q)
    torch.testing.assert_close(values(method, D)["nce"], expected, rtol=1e-10, atol=1e-10)


def test_an_offset_of_g_costs_its_square_and_changes_nothing_else():
    method = ResidualNCE(build(size=0.1, limit=1e6), n_draws=5)
    bias = method.model.energy.coefficients.bias[..., 0]  # of the constant function
    losses = []
    for _ in range(3):  # g grows by 4 each time
        losses.append(values(method))
        with torch.no_grad():
            bias += 4.0
    first, second, third = (each["offset"] / 0.03 for each in losses)
    torch.testing.assert_close(
        first - 2 * second + third, torch.full_like(first, 2 * 4.0**2), rtol=1e-6, atol=0
    )
    torch.testing.assert_close(losses[2]["nce"], losses[0]["nce"], rtol=1e-9, atol=1e-9)


def test_training_keeps_g_away_from_its_lower_bound():
    # From there it could raise a far tail of q by ten nats, and most of the mass would be there.
    x, y = data(n=200)
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        model = ResidualModel.for_table(x, y)
        with torch.no_grad():
            model.energy.coefficients.bias[..., 0] -= 6.0
    config = TrainingConfig(epochs=20, batch_size=50, learning_rate=1e-2, averaging=None)
    fit(ResidualNCE(model), (x, y), config=config, progress=False)
    with torch.no_grad():
        assert model._log_mean_exp_g(model.features(x), 64).min() > -2


@TARGETS
def test_losses_of_the_proposal(D):
    _, log_q_y, f, log_q, _ = terms(ResidualNCE(build(D), n_draws=5), D)
    nll = values(ResidualNCE(build(D), n_draws=5), D)["nll"]
    torch.testing.assert_close(nll, objectives.nll(log_q_y), rtol=1e-12, atol=1e-12)
    mdn = values(ResidualNCE(build(D), n_draws=5, proposal_loss="mdn"), D)["mdn"]
    torch.testing.assert_close(mdn, objectives.mdn(log_q_y, f, log_q), rtol=1e-10, atol=1e-10)


def gradients(loss: Tensor, model: ResidualModel) -> dict[str, Tensor | None]:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, retain_graph=True)
    return dict(zip(dict(model.named_parameters()), found, strict=True))


@TARGETS
def test_gradient_of_the_proposal_is_that_of_the_objective_with_f_fixed(D):
    method = ResidualNCE(build(D), n_draws=5, proposal_loss="mdn")
    _, log_q_y, f, log_q, _ = terms(method, D)
    expected = gradients(objectives.mdn(log_q_y, f.detach(), log_q).sum(), method.model)
    found = gradients(values(method, D)["mdn"].sum(), method.model)
    for key, value in expected.items():
        if value is None:
            assert key.startswith("energy.")
            assert found[key] is None
        else:
            torch.testing.assert_close(found[key], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("proposal_loss", ["nll", "mdn"])
def test_which_loss_trains_what(proposal_loss):
    method = ResidualNCE(build(), n_draws=5, proposal_loss=proposal_loss)
    for name, moved in (("nce", {"backbone", "energy"}), (proposal_loss, {"backbone", "proposal"})):
        found = gradients(values(method)[name].sum(), method.model)
        parts = {key.split(".")[0] for key, value in found.items() if value is not None and value.any()}
        assert parts == moved


def test_gradient_of_g_is_right():
    method = ResidualNCE(build(), n_draws=4)
    points = method.points(B, rng(2))
    layer = method.model.energy.coefficients
    weight = layer.weight.detach().clone()

    def loss(value: Tensor) -> Tensor:
        found = torch.func.functional_call(
            method, {"model.energy.coefficients.weight": value}, (*data(1, B), points)
        )
        return found["nce"].sum()

    assert torch.autograd.gradcheck(loss, weight.requires_grad_(), eps=1e-6, atol=1e-6)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"proposal_loss must be one of .*got 'mle'"):
        ResidualNCE(build(), proposal_loss="mle")
    parts = networks.table(2, 1, 2, H)
    with pytest.raises(TypeError, match="ResidualNCE trains a model of type ResidualModel, got EnergyModel"):
        ResidualNCE(EnergyModel.of(parts))


# A training


def test_the_correction_finds_what_the_proposal_cannot():
    """Two branches, and one Gaussian as the proposal."""
    x = torch.rand(400, 1, generator=rng()) * 2 + 1
    sign = torch.randint(0, 2, (400, 1), generator=rng(1)) * 2 - 1
    y = sign * x + 0.1 * normal(400, 1, dtype=torch.float32)
    units = Units.of(x, y)
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        parts = networks.table(1, 1, 1, 16)
        model = ResidualModel.of(replace(parts, energy=networks.residual_energy(16, 1, 16)), units)
    config = TrainingConfig(epochs=30, batch_size=32, learning_rate=1e-2)
    fit(ResidualNCE(model, n_draws=8), (x[:300], y[:300]), config=config, progress=False)
    with torch.no_grad():
        p = model.predictive(x[300:])
        gain = p.log_prob(y[300:].double()) - p.proposal.log_prob(y[300:].double())
    assert gain.mean() > 0.5
    assert (p.proposal.stddev > 0.8).all()
    assert all(len(row.locations) >= 2 for row in p[:20].modes())
