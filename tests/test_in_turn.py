"""A correction that is trained after its proposal, which is that of a mixture regressor."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ebreg import EnergyRegressor, MixtureDensityRegressor, methods, networks
from ebreg.corrections import in_turn
from ebreg.estimators.pilot import kept_nlls
from ebreg.models import ResidualModel
from ebreg.training import Training, correction
from ebreg.training.correction import frozen, has_gained
from support import normal

QUICK = {
    "n_members": 2,
    "dropout": (0.0, 0.2),
    "width": 8,
    "n_components": 2,
    "max_iter": 6,
    "verbose": False,
}


def table(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    x, noise = normal(n, 2).numpy(), normal(n, 1, seed=1).numpy()[:, 0]
    return x, x[:, 0] + 0.3 * noise**2


@pytest.fixture(scope="module", params=[True, False], ids=["refit", "stopped"])
def both(request) -> tuple[EnergyRegressor, MixtureDensityRegressor]:
    settings = {**QUICK, "refit": request.param, "random_state": 0}
    return EnergyRegressor(**settings).fit(*table()), MixtureDensityRegressor(**settings).fit(*table())


def test_the_proposal_is_that_of_a_mixture_regressor(both):
    energy, mixture = (each.model_ for each in both)
    expected = {f"proposal.{name}": value for name, value in mixture.head.state_dict().items()}
    expected |= {f"backbone.{name}": value for name, value in mixture.backbone.state_dict().items()}
    found = energy.state_dict()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def test_the_record_has_the_first_training_and_then_the_correction(both):
    energy, mixture = both
    assert energy.best_epoch_ == mixture.best_epoch_
    assert energy.n_iter_ == mixture.n_iter_
    kinds = ["nce" in entry for entry in energy.history_]
    assert kinds.index(True) == energy.n_iter_
    plain = [entry for entry in energy.history_ if "nce" not in entry]
    for found, expected in zip(plain, mixture.history_, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


def test_a_correction_that_does_not_help_is_left_out(monkeypatch):
    monkeypatch.setattr(correction, "has_gained", lambda *_, **__: torch.tensor([True, False]))
    model = EnergyRegressor(**QUICK, random_state=0).fit(*table()).model_
    weight = model.energy.coefficients.weight
    assert (weight[0] != 0).any()
    assert (weight[1] == 0).all()
    h = model.features(torch.from_numpy(np.tile(table()[0][:5], (2, 1))))
    g = model.g(h, torch.zeros(10, 1, dtype=torch.float64))
    assert (g[:5] != 0).all()
    assert (g[5:] == 0).all()


def test_which_members_a_correction_helps():
    before, rows, weights = (
        torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 3),
        torch.arange(12).view(3, 4),
        torch.ones(12),
    )
    clear = before - torch.tensor([[0.5], [0.2], [-0.1]]) + 0.01 * normal(3, 4)
    assert has_gained(before, clear, rows, weights).tolist() == [True, True, False]
    chance = before - torch.tensor([[2.0, -0.5, -0.5, -0.9], [0.0] * 4, [0.0] * 4])
    assert has_gained(before, chance, rows, weights).tolist() == [False] * 3  # one row alone
    assert has_gained(before, before * torch.nan, rows, weights).tolist() == [False] * 3
    infinite = torch.cat([torch.full((3, 1), torch.inf), clear[:, 1:]], dim=1)
    before = torch.cat([torch.full((3, 1), torch.inf), before[:, 1:]], dim=1)
    assert has_gained(before, infinite, rows, weights).tolist() == [True, True, False]


def test_rows_that_members_share_count_once():
    before, gain = torch.zeros(1, 4), torch.tensor([[1.0, 1.0, -0.5, -0.9]])
    rows, weights = torch.arange(4)[None], torch.ones(4)
    assert not has_gained(before, -gain, rows, weights).any()
    eight = [each.expand(8, -1) for each in (before, -gain, rows)]
    assert not has_gained(*eight, weights).any()
    assert has_gained(before, -gain, rows, torch.tensor([3.0, 3.0, 1.0, 0.0])).all()


def test_noise_is_as_narrow_as_the_sharpness_of_the_members_says():
    x, y = (torch.from_numpy(values) for values in table(8))
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        model = ResidualModel.for_table(x, y[:, None], width=8, n_components=2, n_members=2)
    _, second = in_turn(methods.ResidualNCE(model))
    second.sharpness.copy_(torch.tensor([0.5, 0.25]))
    h = model.features(x)  # four rows of each member
    seen, points, q = [], second.points(8), model.q(h)
    sampler = second.sampler
    second.sampler = lambda q, y, u: seen.append(q) or sampler(q, y, u)
    second(x, y[:, None], points)
    torch.testing.assert_close(seen[0].scales[:4], 0.5 * q.scales[:4])
    torch.testing.assert_close(seen[0].scales[4:], 0.25 * q.scales[4:])
    networks.keep_members(second, torch.tensor([1]))
    second(x[4:], y[4:, None], points[:, 4:])
    torch.testing.assert_close(seen[1].scales, seen[0].scales[4:])


def test_a_method_on_another_device_has_its_correction_there():
    x, y = (torch.from_numpy(values) for values in table(8))
    method = methods.ResidualNCE(ResidualModel.for_table(x, y[:, None], n_members=2)).to("meta")
    assert in_turn(method)[1].sharpness.device.type == "meta"


def test_without_validation_rows_there_is_no_correction():
    model = EnergyRegressor(**QUICK, early_stopping=False, random_state=0).fit(*table())
    assert model.model_.energy.is_zero.all()
    assert not any("nce" in entry for entry in model.history_)


def test_a_correction_that_was_never_validated_is_left_out(monkeypatch):
    real = correction.fit

    def interrupted(*arguments, **settings):
        return replace(real(*arguments, **settings), row_nlls=(), interrupted=True)

    monkeypatch.setattr(correction, "fit", interrupted)
    with pytest.warns(UserWarning, match="interrupted while its energy was trained"):
        model = EnergyRegressor(**QUICK, random_state=0).fit(*table())
    assert model.model_.energy.is_zero.all()


def test_the_second_training_moves_the_correction_alone():
    x, y = (torch.from_numpy(values) for values in table())
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        model = ResidualModel.for_table(x, y[:, None], width=8, n_components=2)
    base, second = in_turn(methods.ResidualNCE(model))
    points = second.points(len(y), torch.Generator().manual_seed(0))
    sum(values.sum() for values in second(x, y[:, None], points).values()).backward()
    assert {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None} == {"energy"}
    model.zero_grad()
    base(x, y[:, None], base.points(len(y)))["nll"].sum().backward()
    learned = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None}
    assert learned == {"backbone", "proposal"}
    torch.testing.assert_close(
        base.validation_nll(x, y[:, None]).double(), -model.log_prob(x, y[:, None]), rtol=0, atol=1e-3
    )  # g is 0
    second.train()
    assert not model.backbone.training
    assert model.energy.training


def test_methods_that_learn_at_once_have_one_training():
    model = ResidualModel.for_table(*(torch.from_numpy(v).reshape(len(v), -1) for v in table()))
    method = methods.ResidualNCE(model, proposal_loss="mdn")
    assert in_turn(method) == (method, None)


def test_frozen_modules_learn_again_afterwards():
    layer = torch.nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    with frozen(layer):
        assert not layer.weight.requires_grad
    assert layer.weight.requires_grad
    assert not layer.bias.requires_grad


def test_kept_nlls_are_those_of_the_kept_epochs():
    history = [{"validation_nll_0": 3.0, "validation_nll_1": 2.0}, {"validation_nll_0": 1.0}]
    assert kept_nlls(Training(history, [1, 0], interrupted=False, seconds=0.0)) == [1.0, 2.0]
    single = [{"validation_nll": 2.0}, {"validation_nll": 5.0}]
    assert kept_nlls(Training(single, 0, interrupted=False, seconds=0.0)) == [2.0]
