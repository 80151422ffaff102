"""A model of several members is what its members are by themselves: networks, losses, densities, means."""

import math

import pytest
import torch
from torch import Tensor

import member_models
from ebreg import networks
from ebreg.methods import METHODS
from ebreg.models import Calibration, EnergyModel, MixtureModel, ResidualModel, members
from ebreg.networks import MemberDropout, MemberEnergyHead, count_members, keep_members
from ebreg.predictive import VALIDATION, Accuracy
from ebreg.training import HeldOut
from ebreg.units import Standardizer
from member_models import KINDS, E, alone, data, method_alone, method_of, model_of, sliced, unequal
from support import normal, rng

B = 5
TARGETS = pytest.mark.parametrize("D", [1, 2])
KIND = pytest.mark.parametrize("kind", KINDS)
# Fine enough to compare with, and no finer.
FINE = Accuracy(n_nodes=256, n_draws=4096, max_draws=4096)
FINER = Accuracy(n_nodes=2048, n_draws=8192, max_draws=8192)
FAIR = Accuracy(n_nodes=256, n_draws=512, max_draws=512)
ROUGH = Accuracy(n_draws=256, max_draws=256)


def blocks(values: Tensor, member: int) -> Tensor:
    """Rows of one member, (E * B, ...) -> (B, ...)."""
    return values.view(E, -1, *values.shape[1:])[member]


def separate(model, x: Tensor, y: Tensor, accuracy: Accuracy | None = None) -> Tensor:
    """Log density of targets (M, B, D) by every member's own model, (E, M, B)."""
    return torch.stack([alone(model, e).predictive(x, accuracy).log_prob(y) for e in range(E)])


# Networks, losses and gradients


@TARGETS
@KIND
def test_networks_of_members_are_those_of_separate_models(kind, D):
    model, x = model_of(kind, D), data(D, E * B)[0]
    h, y = model.features(x), normal(4, E * B, D)
    q = model.q(h)
    for e in range(E):
        single = alone(model, e)
        own = single.features(blocks(x, e))
        torch.testing.assert_close(blocks(h, e), own, rtol=1e-12, atol=1e-12)
        for name in ("logits", "means", "scales"):
            torch.testing.assert_close(blocks(getattr(q, name), e), getattr(single.q(own), name))
        if kind is not MixtureModel:
            f, grid = model.f(h, y), model.f_grid(h, y[:, 0])
            rows = torch.arange(E * B).view(E, B)[e]
            torch.testing.assert_close(f[:, rows], single.f(own, y[:, rows]), rtol=1e-11, atol=1e-11)
            torch.testing.assert_close(model.f(h, y[0])[rows], f[0, rows], rtol=1e-11, atol=1e-11)
            torch.testing.assert_close(grid[:, rows], single.f_grid(own, y[:, 0]), rtol=1e-11, atol=1e-11)


def test_energy_of_members_is_its_formula():
    head = MemberEnergyHead(2, 4, 2, 5, n_layers=2).double()
    h, y = normal(6, 4), normal(3, 6, 2, seed=1)

    def silu(z: Tensor) -> Tensor:
        return z / (1 + torch.exp(-z))

    def layer(part, e: int, z: Tensor) -> Tensor:
        return z @ part.weight[e] + part.bias[e, 0]

    f = head(h, y)
    for m, b in ((0, 0), (2, 2), (1, 3), (0, 5)):
        e = b // 3
        z_y = layer(head.from_target, e, silu(layer(head.target_layer, e, y[m, b])))
        a = silu(layer(head.from_features, e, h[b]) + z_y)
        a = a + silu(layer(head.joint_layers[0], e, a))
        torch.testing.assert_close(f[m, b], layer(head.output_layer, e, a)[0], rtol=1e-12, atol=1e-12)


def test_tiles_change_nothing(monkeypatch):
    head, h, y = MemberEnergyHead(2, 4, 1, 5).double(), normal(6, 4), normal(7, 6, 1)
    whole = head(h, y)
    monkeypatch.setattr("ebreg.networks.member_energy_head._TILE", 6 * 5 * 2)
    torch.testing.assert_close(head(h, y), whole, rtol=1e-13, atol=1e-13)


def test_every_method_is_trained_with_members():
    assert {name.split()[0] for name in member_models.METHODS} == set(METHODS)


@TARGETS
@pytest.mark.parametrize("name", member_models.METHODS)
def test_losses_and_gradients_are_those_of_separate_models(name, D):
    method, (x, y) = method_of(name, D), data(D, E * B)
    u = method.points(E * B, rng())
    losses = method(x, y, u)
    sum(values.sum() for values in losses.values()).backward()
    gradients = {key: p.grad for key, p in method.named_parameters()}
    for e in range(E):
        single = method_alone(name, method, e)
        own = single(blocks(x, e), blocks(y, e), u.unflatten(1, (E, B))[:, e])
        for key, values in own.items():
            torch.testing.assert_close(blocks(losses[key], e), values, rtol=1e-9, atol=1e-9)
        sum(values.sum() for values in own.values()).backward()
        for key, p in single.named_parameters():
            torch.testing.assert_close(sliced(gradients[key], e, p), p.grad, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", member_models.METHODS)
def test_the_loss_of_a_member_has_no_gradient_in_the_others(name):
    method, (x, y) = method_of(name), data(1, E * B)
    losses = method(x, y, method.points(E * B, rng()))
    sum(blocks(values, 1).sum() for values in losses.values()).backward()
    for key, p in method.named_parameters():
        assert (p.grad[[0, 2]] == 0).all(), key
        # A constant added to f changes nothing.
        assert (p.grad[1] != 0).any() or key.endswith("output_layer.bias"), key


def test_members_of_a_model_can_be_left_out():
    model, x = model_of(ResidualModel), data(1, B)[0]
    h = model.features(x.repeat(E, 1)).view(E, B, -1)
    keep_members(model, torch.tensor([2, 0]))
    assert model.n_members == count_members(model) == 2
    assert model.calibration.weights.tolist() == [0.5, 0.5]
    torch.testing.assert_close(model.features(x.repeat(2, 1)).view(2, B, -1), h[[2, 0]])
    keep_members(model, torch.tensor([1]))
    torch.testing.assert_close(model.features(x), h[0])
    assert not model.shares_backbone


def test_dropout_has_the_rate_of_each_member():
    dropout, ones = MemberDropout([0.0, 0.2, 0.5]), torch.ones(3 * 400, 50)
    dropped = dropout(ones).view(3, -1)
    for rate, values in zip([0.0, 0.2, 0.5], dropped, strict=True):
        error = math.sqrt(rate * (1 - rate) / values.numel())
        assert (values == 0).double().mean().item() == pytest.approx(rate, abs=4 * error)
        kept = values[values != 0]
        torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)))
    keep_members(dropout, torch.tensor([0, 2]))
    assert dropout.rates.tolist() == [0, 0.5]
    keep_members(dropout, torch.tensor([0]))
    assert torch.equal(dropout(ones), ones)
    dropout = MemberDropout([0.0, 0.5])
    dropout.eval()
    assert dropout(ones) is ones


def test_networks_with_other_numbers_of_members_do_not_go_together():
    with pytest.raises(ValueError, match=r"the same number of members, got \[2, 3\]"):
        count_members(MemberEnergyHead(2, 4, 1), MemberEnergyHead(3, 4, 1))


# One density of all members


@pytest.mark.parametrize("bounded", [False, True])
@TARGETS
def test_a_mixture_of_members_is_the_mean_of_their_densities(D, bounded):
    model, (x, y) = unequal(model_of(MixtureModel, D, bounded=bounded)), data(D, B, seed=3)
    y = y.clamp(min=model.bounds.low)
    targets = torch.stack([y, y + 0.004])
    p, w = model.predictive(x), model.calibration.weights
    log_p = torch.logsumexp(separate(model, x, targets) + w.log()[:, None, None], dim=0)
    torch.testing.assert_close(p.log_prob(targets), log_p, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model.log_prob(x, y), log_p[0], rtol=1e-10, atol=1e-10)
    singles = [alone(model, e).predictive(x) for e in range(E)]

    def mean(values: list[Tensor]) -> Tensor:
        return torch.einsum("e,e...->...", w, torch.stack(values))

    torch.testing.assert_close(p.mean, mean([single.mean for single in singles]), rtol=1e-10, atol=1e-12)
    second = mean([single.variance + (single.mean - p.mean).square() for single in singles])
    torch.testing.assert_close(p.variance, second, rtol=1e-9, atol=0)
    torch.testing.assert_close(p.cdf(y), mean([single.cdf(y) for single in singles]), rtol=1e-9, atol=1e-9)
    if D == 1:
        levels = torch.tensor([0.01, 0.3, 0.9], dtype=torch.float64)
        torch.testing.assert_close(p.cdf(p.icdf(levels)), levels[:, None].expand(-1, B), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bounded", [False, True])
@TARGETS
@pytest.mark.parametrize("kind", [EnergyModel, ResidualModel])
def test_energies_of_members_are_the_mean_of_their_normalised_densities(kind, D, bounded):
    model, (x, y) = unequal(model_of(kind, D, bounded=bounded)), data(D, 2, seed=3)
    targets = torch.stack([y, y - 0.01, y + 0.01]).clamp(min=model.bounds.low)
    with torch.no_grad():
        log_w = model.calibration.log_weights[:, None, None]
        log_p = torch.logsumexp(separate(model, x, targets, FINE) + log_w, dim=0)
        error = {1: 2e-3, 2: 0.03}[D]  # of log Z: of nodes, of draws
        p = model.predictive(x, FINE)
        torch.testing.assert_close(p.log_prob(targets), log_p, rtol=0, atol=error)
        assert integral(p, model).sub(1).abs().max() < {1: 1e-3, 2: 0.03}[D]


def integral(p, model) -> Tensor:
    """Of the density over a grid that holds its mass, (B,)."""
    low = model.y_units.inverse(torch.full((model.n_targets,), -12.0)).clamp(min=model.bounds.low)
    high = model.y_units.inverse(torch.full((model.n_targets,), 12.0))
    n = {1: 2001, 2: 121}[model.n_targets]
    # Midpoints: none of them lies on a bound.
    axes = [a + (b - a) * (torch.arange(n) + 0.5) / n for a, b in zip(low, high, strict=True)]
    grid = torch.cartesian_prod(*axes).view(-1, 1, model.n_targets).expand(-1, len(p), -1)
    return p.log_prob(grid).exp().sum(dim=0) * ((high - low) / n).prod()


def sharp(D: int) -> EnergyModel:
    """A model whose second member has a sharp energy: its rows need more nodes and other draws."""
    model = model_of(EnergyModel, D)
    with torch.no_grad():
        model.energy.output_layer.weight[1] *= 30
    return model


@TARGETS
def test_members_that_need_more_nodes_or_draws_get_them_by_themselves(D):
    model, (x, y) = sharp(D), data(D, 2)
    few = Accuracy(n_nodes=32, n_draws=512, max_draws=1024)
    with torch.no_grad():
        log_p = torch.logsumexp(separate(model, x, y, FINE), dim=0) - math.log(E)
        torch.testing.assert_close(model.log_prob(x, y, few), log_p, rtol=0, atol={1: 0.01, 2: 0.1}[D])
        rows = model.member_log_prob(x.repeat(E, 1), y.repeat(E, 1), few).view(E, 2)
        torch.testing.assert_close(rows, separate(model, x, y, few), rtol=0, atol=1e-6)


def test_rows_of_members_can_be_selected():
    model, (x, _) = model_of(EnergyModel), data(1, B)
    target = model._unnormalized(model._all_features(x))
    y = normal(2, E * B, 1)
    whole, f = members.separated(target, E), target.energy(y)
    for rows in ([0], [4, 5], [14, 3, 3, 7], list(range(10)), [], slice(2, 9)):
        torch.testing.assert_close(whole[rows].energy(y[:, rows]), f[:, rows], rtol=1e-12, atol=1e-12)


@KIND
def test_gradients_are_those_of_the_mean_of_separate_densities(kind, monkeypatch):
    monkeypatch.setattr("ebreg.models.residual_model._N_POINTS", 2**16)
    model, (x, y) = unequal(model_of(kind)), data(1, 2)
    if kind is ResidualModel:
        with torch.no_grad():
            model.energy.coefficients.weight *= 4
    x.requires_grad_()
    own = dict(model.named_parameters())
    (gradient, *of_weights) = torch.autograd.grad(
        model.log_prob(x, y, FINER).sum(), [x, *own.values()], allow_unused=True
    )
    singles = [alone(model, e) for e in range(E)]
    log_p = torch.stack([single.log_prob(x, y, FINER) for single in singles])
    torch.logsumexp(log_p + model.calibration.log_weights[:, None], dim=0).sum().backward()
    assert distance(gradient, x.grad) < 0.01
    for (key, _), found in zip(own.items(), of_weights, strict=True):
        for e, single in enumerate(singles):
            expected = dict(single.named_parameters())[key].grad
            if found is None:  # where the nodes lie is not differentiated
                assert key.startswith("proposal.")
                assert expected is None
            elif not key.endswith("output_layer.bias"):  # adds a constant to f
                assert distance(sliced(found, e, expected), expected) < 0.01, key


def distance(found: Tensor, expected: Tensor) -> float:
    assert expected.norm() > 0
    return ((found - expected).norm() / expected.norm()).item()


@TARGETS
@KIND
def test_a_row_answers_alone_as_in_a_batch(kind, D):
    model, (x, y) = unequal(model_of(kind, D)), data(D, 2)
    with torch.no_grad():
        p = model.predictive(x, ROUGH)
        share = model.epistemic_share(x, ROUGH, p)
        for rows in ([1], [1, 0]):
            some = model.predictive(x[rows], ROUGH)
            torch.testing.assert_close(some.mean, p.mean[rows], rtol=1e-9, atol=0)
            torch.testing.assert_close(some.log_prob(y[rows]), p.log_prob(y)[rows], rtol=1e-7, atol=1e-7)
            torch.testing.assert_close(
                model.epistemic_share(x[rows], ROUGH, some), share[rows], rtol=1e-7, atol=1e-9
            )


@pytest.mark.parametrize("kind", [EnergyModel, ResidualModel])
def test_the_last_member_in_training_is_validated_as_it_was_before(kind):
    (x, y), model = data(1, B), model_of(kind)
    name = {EnergyModel: "joint-nce", ResidualModel: "residual-nce"}[kind]
    method = METHODS[name](model)
    before = method.validation_nll(x.repeat(E, 1), y.repeat(E, 1)).view(E, B)
    keep_members(method, torch.tensor([1]))
    torch.testing.assert_close(method.validation_nll(x, y), before[1], rtol=1e-12, atol=1e-12)


@KIND
def test_no_rows(kind):
    model = model_of(kind, 2)
    x = torch.empty(0, 2)
    assert model.predictive(x, VALIDATION).mean.shape == (0, 2)
    assert model.member_means(x).shape == (E, 0, 2)
    assert model.epistemic_share(x).shape == (0, 2)


# The share of the variance that the members disagree about


def gaussians(means: list[list[float]], scale: float, unit: float = 1.0) -> MixtureModel:
    """One Gaussian for each member, whatever x is; targets in a unit of their own."""
    n, D = len(means), len(means[0])
    model = MixtureModel.of(networks.table(2, D, 1, 4, n_members=n), member_models.units(D)).double()
    model.y_units = Standardizer(torch.zeros(D), torch.full((D,), unit, dtype=torch.float64))
    head = model.head
    with torch.no_grad():
        head.outputs.weight.zero_()
        head.outputs.bias[:, 0, :D] = torch.tensor(means)
        head.outputs.bias[:, 0, D : 2 * D] = 2 * math.log(scale)
    head.min_scale = 0.0
    return model


@pytest.mark.parametrize("unit", [1.0, 1e-290, 1e-150, 1e150, 1e290])
def test_epistemic_share_of_gaussians_is_a_closed_form_in_any_unit(unit):
    model = gaussians([[0.0, 1.0], [1.0, 1.0], [5.0, 1.0]], scale=2.0, unit=unit)
    x, w = data(2, B)[0], torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    model.calibration = Calibration(w, torch.zeros(2), torch.ones(2))
    variance = (w * torch.tensor([0.0, 1.0, 25.0])).sum() - (0.3 + 1.0) ** 2
    expected = torch.stack([variance / (variance + 4), torch.zeros(())]).expand(B, 2)
    torch.testing.assert_close(model.epistemic_share(x), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        model.member_means(x)[:, 0] / unit, torch.tensor([[0.0, 1.0], [1.0, 1.0], [5.0, 1.0]]).double()
    )


def test_a_background_is_no_disagreement():
    model, x = gaussians([[0.0], [2.0]], scale=1.0), data(1, B)[0]
    model.calibration = Calibration(
        torch.tensor([0.5, 0.5]), torch.ones(1), 3 * torch.ones(1), background_share=0.2
    )
    # All means are 1: variances add up.
    expected = 0.8 * 1 / (0.8 * (1 + 1) + 0.2 * 9)
    torch.testing.assert_close(
        model.epistemic_share(x), torch.full((B, 1), expected, dtype=torch.float64), rtol=1e-9, atol=0
    )


@pytest.mark.parametrize(("kind", "D"), [(MixtureModel, 2), (EnergyModel, 1), (ResidualModel, 2)])
def test_members_that_agree_have_no_epistemic_share(kind, D):
    model, x = model_of(kind, D), data(D, 1)[0]
    with torch.no_grad():
        share, p = model.epistemic_share(x, ROUGH), model.predictive(x, ROUGH)
        assert torch.equal(model.epistemic_share(x, ROUGH, p), share)
        assert (share > 1e-4).all()
        assert (share < 1).all()
        for weights in model.parameters():
            weights.copy_(weights[:1].expand_as(weights))
        assert model.epistemic_share(x, ROUGH).max() < 1e-12
        single = alone(model, 0)
        assert torch.equal(single.epistemic_share(x, ROUGH), torch.zeros(1, D, dtype=torch.float64))
        assert torch.equal(single.member_means(x, ROUGH)[0], single.predictive(x, ROUGH).mean) or (
            kind is ResidualModel
        )


@TARGETS
@KIND
def test_means_of_members_are_those_of_separate_models(kind, D):
    model, x = model_of(kind, D), data(D, 2)[0]
    with torch.enable_grad():  # in double precision, as the separate models are
        means, p = model.member_means(x, FINER), model.predictive(x, FINER)
        separately = torch.stack([alone(model, e).predictive(x, FINER).mean for e in range(E)])
        # In standard deviations; of a residual model they come from few points of q.
        error = {MixtureModel: 1e-9, EnergyModel: 1e-3, ResidualModel: 0.05}[kind]
        assert ((means - separately) / p.stddev).abs().max() < error
        share = model.epistemic_share(x, FINER, p)
        expected = separately.var(dim=0, correction=0) / p.variance
        error = 0.005 if kind is ResidualModel else {1: 1e-3, 2: 0.01}[D]
        torch.testing.assert_close(share, expected, rtol=0, atol=error)


# Rows of members


def test_rows_held_out_are_different_ones_as_far_as_they_go():
    index = HeldOut.at_random(4, 100, 20, seed=0).index
    assert len(index.flatten().unique()) == 80
    index = HeldOut.at_random(6, 100, 20, seed=0, n_equal=2).index
    assert torch.equal(index[::2], index[1::2])
    assert len(index.flatten().unique()) == 60
    around = HeldOut.at_random(8, 50, 20, seed=0).index
    assert all(len(rows.unique()) == 20 for rows in around)
    assert around.flatten().bincount(minlength=50).sub(8 * 20 / 50).abs().max() < 1
    assert not torch.equal(index, HeldOut.at_random(6, 100, 20, seed=1, n_equal=2).index)
