"""Members are trained side by side: each on its own rows, to its own best epoch, as if it were alone."""

import copy
import pickle
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn

import ebreg
from ebreg import EnergyRegressor, MixtureDensityRegressor, methods, networks
from ebreg.methods import Method
from ebreg.models import MixtureModel, Model, ResidualModel
from ebreg.training import HeldOut, TrainingConfig, fit, loop
from ebreg.training.batches import TensorData
from ebreg.training.member_rows import MemberRows
from ebreg.units import Units
from support import KilledError, kill_after, normal

E, N = 3, 40
CONFIG = TrainingConfig(epochs=4, batch_size=8, learning_rate=1e-2, seed=5)
# Few rows and a high rate: members overfit, and stop, at different times.
STOPPING = replace(CONFIG, epochs=30, learning_rate=3e-2, patience=3)
IMPATIENT = replace(STOPPING, patience=1)
KINDS = {"mdn-nll": MixtureModel, "residual-nce": ResidualModel}


def data(n: int = N, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = normal(n, 2, seed=seed, dtype=torch.float32)
    return x, x[:, :1] + 0.5 * normal(n, 1, seed=seed + 1, dtype=torch.float32)


def held_out(n: int = N, n_validation: int = 10) -> HeldOut:
    return HeldOut.at_random(E, n, n_validation, seed=3)  # the first members stop first


def build(name: str = "mdn-nll", dropout: tuple[float, ...] = (), n_members: int = E) -> Method:
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        parts = networks.table(2, 1, 2, 8, n_members=n_members, dropout=dropout)
        energy = networks.residual_energy(8, 1, 8, n_members)
        model: Model = KINDS[name].of(replace(parts, energy=energy), Units.of(*data()))
        return methods.METHODS[name](model)


def tensors(method: Method) -> dict[str, Tensor]:
    """Weights of all members, (E, ...) each."""
    return {key: p.detach().clone() for key, p in method.named_parameters()}


def assert_same(here: dict[str, Tensor], there: dict[str, Tensor], members: list[int] | None = None) -> None:
    for key, value in here.items():
        index = list(range(len(value))) if members is None else members
        assert torch.equal(value[index], there[key][index]), key


# Members do not mix


@pytest.mark.parametrize("dropout", [(), (0.0, 0.2, 0.5)])
@pytest.mark.parametrize("name", KINDS)
def test_a_member_is_trained_alike_beside_any_others(name, dropout):
    plain, other = build(name, dropout), build(name, dropout)
    with torch.no_grad():
        for p in other.parameters():
            p[0] += 0.3
    for method in (plain, other):
        fit(method, data(), held_out(), CONFIG, progress=False)
    assert_same(tensors(plain), tensors(other), [1, 2])
    assert not torch.equal(plain.model.backbone.layers[0].weight[0], other.model.backbone.layers[0].weight[0])


def test_members_learn_as_they_would_alone():
    """Only without draws and dropout, which come from one stream for all members in training.

    All rows are one batch: an order belongs to the number of a member.
    """
    config = replace(STOPPING, batch_size=N, epochs=60, learning_rate=5e-2)
    together, index = build(), held_out().index
    found = fit(together, data(), HeldOut(index), config, progress=False)
    assert len({block_count(entry) for entry in found.history}) > 1  # some were left out
    for e in range(E):
        alone = build()
        networks.keep_members(alone, torch.tensor([e]))
        result = fit(alone, data(), HeldOut(index[e : e + 1]), config, progress=False)
        assert result.best_epoch == found.best_epoch[e]
        for key, p in alone.named_parameters():
            torch.testing.assert_close(p[0], dict(together.named_parameters())[key][e], rtol=1e-3, atol=1e-4)


def block_count(entry: dict[str, float]) -> int:
    return sum(f"validation_nll_{e}" in entry for e in range(E))


def test_a_steep_member_is_clipped_alone():
    method, config = build(), replace(CONFIG, epochs=1, clip_norm=1e-3)
    steep = build()
    with torch.no_grad():
        for member in (method, steep):
            member.model.head.outputs.bias[1] += 0.1
        steep.model.head.outputs.bias[0, 0, 0] += 50.0  # a gradient some thousand times as long
    for each in (method, steep):
        fit(each, data(), held_out(), config, progress=False)
    assert_same(tensors(method), tensors(steep), [1, 2])


# Rows


class Recording:
    """A data set that remembers which rows were read, and whether for training."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y, self.method = x, y, None
        self.read: dict[bool, list[list[int]]] = {True: [], False: []}

    def __len__(self) -> int:
        return len(self.x)

    def __getitems__(self, index: list[int]) -> tuple[Tensor, Tensor]:
        self.read[self.method.training].append(list(index))
        return self.x[index], self.y[index]


def test_rows_that_a_member_holds_out_train_the_others_and_never_itself():
    method, rows, index = build(), Recording(*data()), held_out().index
    rows.method = method
    fit(method, rows, HeldOut(index), replace(CONFIG, averaging=None), progress=False)
    trained = torch.cat([torch.tensor(some).view(E, -1) for some in rows.read[True]], dim=1)
    validated = torch.cat([torch.tensor(some).view(E, -1) for some in rows.read[False]], dim=1)
    for e in range(E):
        counts = trained[e].bincount(minlength=N)
        assert (counts[index[e]] == 0).all()
        others = torch.ones(N, dtype=torch.bool).index_fill(0, index[e], False)
        assert (counts[others] == CONFIG.epochs).all()
        assert set(validated[e].tolist()) == set(index[e].tolist())
    assert not torch.equal(trained[0], trained[1])  # each in an order of its own


def test_targets_held_out_do_not_reach_the_weights():
    x, y = data()
    index = held_out()
    bad = y.clone()
    bad[index.index[0]] += 1.0
    config = replace(CONFIG, averaging=None)
    one, two = build(), build()
    for method, targets in ((one, y), (two, bad)):
        # Every epoch is better than the one before: the last weights are kept whatever the targets are.
        fit(method, TensorData(x, targets), index, replace(config, validation_every=4), progress=False)
    assert_same(tensors(one), tensors(two), [0])
    assert not torch.equal(one.model.backbone.layers[0].weight[1], two.model.backbone.layers[0].weight[1])


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.zeros(2, 1, dtype=torch.long), "holds out rows for 2 members, and the model has 3"),
        (torch.full((3, 1), 40), r"row numbers in 0 \.\.\. 39"),
        (torch.full((3, 1), -1), r"row numbers in 0 \.\.\. 39"),
        (torch.zeros(3, 2, dtype=torch.long), "hold out different rows, and leave some to train on"),
        (torch.arange(40).expand(3, -1), "hold out different rows, and leave some to train on"),
    ],
)
def test_bad_rows_are_refused(index: Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        fit(build(), data(), HeldOut(index), CONFIG, progress=False)


def test_orders_belong_to_blocks():
    rows = MemberRows.of(build().model, TensorData(*data()), held_out())
    whole = rows.order(7, torch.arange(E))
    some = torch.tensor([0, 2])
    assert torch.equal(rows.take(some).order(7, some), whole[some])
    assert torch.equal(whole.sort(dim=1).values, rows.train)
    same = MemberRows.of(build().model, TensorData(*data()), TensorData(*data())).order(7, torch.arange(E))
    assert not any(torch.equal(same[i], same[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


# Every member has its own best epoch


@pytest.fixture
def candidates(monkeypatch) -> list[dict[str, Tensor]]:
    """The weights that could be kept, epoch by epoch."""
    seen: list[dict[str, Tensor]] = []
    original = loop.validation_nll

    def recording(method: Method, *arguments) -> Tensor:
        seen.append(tensors(method))
        return original(method, *arguments)

    monkeypatch.setattr(loop, "validation_nll", recording)
    return seen


def block_of(history: list[dict[str, float]], epoch: int, member: int) -> int:
    """The place of a member among those that were trained in an epoch."""
    return [e for e in range(E) if f"validation_nll_{e}" in history[epoch]].index(member)


@pytest.mark.parametrize("name", KINDS)
def test_members_keep_the_weights_of_their_best_epochs(name, candidates):
    method = build(name)
    result = fit(method, data(), held_out(), STOPPING, progress=False)
    ends = []
    for e in range(E):
        nlls = [entry[f"validation_nll_{e}"] for entry in result.history if f"validation_nll_{e}" in entry]
        best = result.best_epoch[e]
        assert best == int(np.argmin(nlls))
        assert len(nlls) == min(len(result.history), best + STOPPING.patience + 1)
        kept = block_of(result.history, best, e)
        for key, p in method.named_parameters():
            assert torch.equal(p[e], candidates[best][key][kept]), key
        ends.append(len(nlls))
    assert min(ends) < max(ends) == len(result.history)  # some were dropped, or this shows nothing
    assert method.model.n_members == E
    assert method.model.calibration.weights.tolist() == pytest.approx([1 / E] * E)


def test_the_mean_of_all_members_counts_finished_ones_as_kept():
    result = fit(build(), data(), held_out(), STOPPING, progress=False)
    for epoch, entry in enumerate(result.history):
        expected = []
        for e in range(E):
            name = f"validation_nll_{e}"
            expected.append(entry.get(name, result.history[result.best_epoch[e]][name]))
        assert entry["validation_nll"] == pytest.approx(np.mean(expected)), epoch


def test_finished_members_take_no_more_rows():
    method = build()
    rows = Recording(*data())
    rows.method = method
    result = fit(method, rows, held_out(), replace(STOPPING, validation_rows=1000), progress=False)
    # What is trained is a copy, once some are left out: reads of an epoch are steps and one validation.
    reads = [some for kind in (True, False) for some in rows.read[kind]]
    per_epoch = [block_count(entry) * N for entry in result.history]
    assert sum(map(len, reads)) == sum(per_epoch)
    assert per_epoch[-1] < per_epoch[0]


def test_losses_are_means_over_the_members_in_training():
    method, index = build(), held_out()
    result = fit(
        method, data(), index, replace(CONFIG, epochs=1, learning_rate=1e-12, averaging=None), progress=False
    )
    rows = MemberRows.of(method.model, TensorData(*data()), index)
    x, y = data()
    with torch.no_grad():
        nll = method(x[rows.train.flatten()], y[rows.train.flatten()], torch.empty(0, 3 * 30, 1))["nll"]
    assert result.history[0]["nll"] == pytest.approx(nll.mean().item(), rel=1e-5)


def test_patience_grows_with_the_best_epoch():
    config = replace(STOPPING, patience=1, patience_growth=1.0)
    result = fit(build(), data(), held_out(), config, progress=False)
    for e in range(E):
        n = sum(f"validation_nll_{e}" in entry for entry in result.history)
        best = result.best_epoch[e]
        assert n == min(config.epochs, best + max(1, best) + 1)


# Checkpoints and interrupts


@pytest.fixture(scope="module")
def whole():
    """A training with dropout and draws that is not stopped, and when members were left out."""
    method = build("residual-nce", (0.0, 0.2, 0.2))
    result = fit(method, data(), held_out(), IMPATIENT, progress=False)
    counts = [block_count(entry) for entry in result.history]
    assert counts[-1] < E
    return tensors(method), result, counts


def resumed(path: Path) -> tuple[dict[str, Tensor], loop.Training]:
    method = build("residual-nce", (0.0, 0.2, 0.2))
    result = fit(method, data(), held_out(), IMPATIENT, path, resume=True, progress=False)
    return tensors(method), result


@pytest.mark.parametrize("later", [0, 1])
def test_a_run_killed_after_members_were_left_out_resumes_to_the_same_bits(tmp_path, whole, later):
    weights, expected, counts = whole
    epoch = counts.index(counts[-1]) + later

    def die(n_epochs: int) -> None:
        if n_epochs == epoch:
            raise KilledError

    path, method = tmp_path / "run.safetensors", build("residual-nce", (0.0, 0.2, 0.2))
    with pytest.raises(KilledError):
        fit(method, data(), held_out(), IMPATIENT, path, progress=False, after_epoch=die)
    found, result = resumed(path)
    assert_same(found, weights)
    assert result.history == expected.history
    assert result.best_epoch == expected.best_epoch


def test_a_run_killed_in_the_middle_of_an_epoch_resumes_to_the_same_bits(tmp_path, whole, monkeypatch):
    weights, expected, counts = whole
    path, method = tmp_path / "run.safetensors", build("residual-nce", (0.0, 0.2, 0.2))
    config = replace(IMPATIENT, checkpoint_every=3)
    kill_after(monkeypatch, 4 * (len(counts) - 1) + 3)
    with pytest.raises(KilledError):
        fit(method, data(), held_out(), config, path, progress=False)
    monkeypatch.undo()
    found, result = resumed(path)
    assert_same(found, weights)
    assert result.history == expected.history


def test_a_finished_run_resumes_to_itself(tmp_path, whole):
    weights, expected, _ = whole
    path, method = tmp_path / "run.safetensors", build("residual-nce", (0.0, 0.2, 0.2))
    fit(method, data(), held_out(), IMPATIENT, path, progress=False)
    found, result = resumed(path)
    assert_same(found, weights)
    assert result.history == expected.history


def test_other_rows_or_members_are_another_run(tmp_path):
    path = tmp_path / "run.safetensors"
    fit(build(), data(), held_out(), CONFIG, path, progress=False)
    fewer = build(n_members=2)
    with pytest.raises(ebreg.errors.CheckpointError, match="made with members = 3, and this training has 2"):
        fit(fewer, data(), HeldOut(held_out().index[:2]), CONFIG, path, resume=True, progress=False)


def test_ctrl_c_keeps_the_best_weights_of_every_member(candidates):
    def interrupt(n_epochs: int) -> None:
        if n_epochs == 4:
            signal.raise_signal(signal.SIGINT)

    method = build()
    result = fit(method, data(), held_out(), IMPATIENT, progress=False, after_epoch=interrupt)
    assert result.interrupted
    assert len(result.history) == 4
    for e in range(E):
        best = result.best_epoch[e]
        kept = block_of(result.history, best, e)
        for key, p in method.named_parameters():
            assert torch.equal(p[e], candidates[best][key][kept]), key


# Members that share a backbone


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.float()))


def sharing() -> methods.ResidualNCE:
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        heads = networks.smooth_heads(6, 1, 2, 8, n_members=E)
        energy = networks.residual_energy(6, 1, 8, E)
        units = replace(Units.of(*data()), x=None)
        return methods.ResidualNCE(
            ResidualModel.of(replace(heads, backbone=Features(), energy=energy), units), n_draws=3
        )


def test_members_on_one_backbone_see_the_same_rows_and_all_train_it():
    method, (x, y) = sharing(), data(6)
    model = method.model
    assert model.shares_backbone
    h = model.features(x)
    assert h.shape == (E * 6, 6)
    assert torch.equal(h[:6], h[6:12])
    losses = method(x, y.repeat(E, 1), method.points(E * 6, torch.Generator().manual_seed(0)))
    loss = sum(values.view(E, 6).sum(dim=1) for values in losses.values())
    weight = model.backbone.layer.weight
    parts = [torch.autograd.grad(loss[e], weight, retain_graph=True)[0] for e in range(E)]
    assert all(part.norm() > 1e-6 for part in parts)
    (whole,) = torch.autograd.grad(loss.sum(), weight)
    torch.testing.assert_close(sum(parts), whole)


def test_members_on_one_backbone_have_one_best_epoch_of_their_mean_density():
    method, validation = sharing(), data(12, seed=3)
    result = fit(method, data(), validation, CONFIG, progress=False)
    nlls = [entry["validation_nll"] for entry in result.history]
    assert result.best_epoch == int(np.argmin(nlls))
    assert not any(key.startswith("validation_nll_") for key in result.history[0])
    expected = -method.model.log_prob(*validation).mean().item()
    assert min(nlls) == pytest.approx(expected, abs=0.01)
    with pytest.raises(ValueError, match="holds out rows for 3 members, and the model has 1"):
        fit(sharing(), data(), held_out(), CONFIG, progress=False)


def test_a_frozen_backbone_of_members_computes_its_features_once():
    """Both ways to freeze a backbone without batch-norm train the heads alike."""
    config, trained = replace(CONFIG, frozen_epochs=CONFIG.epochs), []
    for norm in ("evaluation", "training"):
        method = sharing()
        before = method.model.backbone.layer.weight.clone()
        fit(method, data(), data(12, seed=3), replace(config, frozen_norm=norm), progress=False)
        assert torch.equal(method.model.backbone.layer.weight, before)
        trained.append(tensors(method))
    for key, value in trained[0].items():
        torch.testing.assert_close(value, trained[1][key], rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="frozen_epochs needs a backbone that all members share"):
        fit(build(), data(), held_out(), config, progress=False)


def test_the_mixtures_of_members_are_trained_first():
    method = methods.ResidualNCE(build("residual-nce").model, proposal_loss="mdn")
    history = fit(method, data(), held_out(), replace(CONFIG, mixture_epochs=2), progress=False).history
    assert [("nll" in entry, "mdn" in entry) for entry in history] == [(True, False)] * 2 + [
        (False, True)
    ] * 2


def test_a_regressor_with_members_on_a_backbone(tmp_path):
    X, y = (values.numpy() for values in data())
    backbone = Features()
    regressor = EnergyRegressor(
        backbone=backbone, method="residual-nce", n_members=3, max_iter=3, width=8, random_state=0
    )
    regressor.fit(X, y[:, 0])
    assert isinstance(regressor.best_epoch_, int)
    assert regressor.model_.shares_backbone
    assert not torch.equal(regressor.model_.backbone.layer.weight, backbone.layer.weight)
    p = regressor.predict_distribution(X)
    assert (p.epistemic_share > 0).all()
    regressor.save(tmp_path / "model")
    loaded = ebreg.load(tmp_path / "model", backbone=Features())
    np.testing.assert_array_equal(loaded.log_prob(X, y[:, 0]), p.log_prob(y[:, 0]))


# Regressors


QUICK = {"max_iter": 3, "width": 8, "n_components": 2, "n_members": 4, "random_state": 0, "verbose": False}


def table(n: int = 60) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"], index=np.arange(n) + 100)
    y = np.abs(X[["a"]].to_numpy() + rng.normal(size=(n, 2)))
    return X, pd.DataFrame(y, columns=["u", "v"], index=X.index), rng.uniform(0.1, 3, n)


@pytest.fixture(scope="module", params=[EnergyRegressor, MixtureDensityRegressor])
def fitted(request):
    """With sample weights, bounds, two targets and data frames."""
    X, y, weights = table()
    regressor = request.param(bounds=[(0, None), (None, None)], **QUICK).fit(X, y, sample_weight=weights)
    # As if calibrated to something else than its members alone.
    regressor.model_.calibration.temperature.fill_(1.1)
    regressor.model_.calibration.background_share.fill_(0.05)
    return regressor


def test_copies_and_files_hold_the_members(fitted, tmp_path):
    X, y, _ = table()
    X, y = X[:3], y[:3]
    expected = fitted.log_prob(X, y)
    assert np.isfinite(expected).all()
    fitted.save(tmp_path / "model")
    others = [ebreg.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)]
    for other in others:
        np.testing.assert_array_equal(other.log_prob(X, y), expected)
        assert other.model_.n_members == 4
        assert other.best_epoch_ == fitted.best_epoch_
        assert other.history_ == fitted.history_
        np.testing.assert_array_equal(
            other.predict_distribution(X).epistemic_share, fitted.predict_distribution(X).epistemic_share
        )
    assert clone(fitted).get_params()["n_members"] == 4


def test_a_row_answers_alone_as_among_others(fitted):
    X, y, _ = table()
    some = slice(3, 6)
    p, one = fitted.predict_distribution(X[some]), fitted.predict_distribution(X[4:5])
    for name in ("mean", "stddev", "epistemic_share"):
        np.testing.assert_allclose(getattr(one, name)[0], getattr(p, name)[1], rtol=1e-7)
    np.testing.assert_allclose(one.log_prob(y[4:5]), p.log_prob(y[some])[1:2], rtol=0, atol=1e-7)
    np.testing.assert_allclose(p[1].epistemic_share, p.epistemic_share[1:2], rtol=1e-12)
    np.testing.assert_allclose(
        fitted.predict_distribution(X[some], chunk=1).epistemic_share, p.epistemic_share, rtol=1e-7
    )


def test_the_epistemic_share_is_a_column(fitted):
    X, _, _ = table()
    p = fitted.predict_distribution(X[:3])
    frame = p.to_frame()
    assert list(frame.index) == [100, 101, 102]
    np.testing.assert_array_equal(frame[["u epistemic_share", "v epistemic_share"]], p.epistemic_share)
    assert ((p.epistemic_share > 0) & (p.epistemic_share < 1)).all()


def test_weights_of_rows_reach_the_members():
    X, y, _ = table()
    weights = np.where(np.arange(len(X)) < 30, 1.0, 0.0)
    settings = {**QUICK, "early_stopping": False}
    weighted = MixtureDensityRegressor(**settings).fit(X, y, sample_weight=weights)
    fewer = MixtureDensityRegressor(**settings).fit(X[:30], y[:30])
    np.testing.assert_array_equal(weighted.predict(X), fewer.predict(X))


def test_one_member_has_no_epistemic_share():
    X, y, _ = table(30)
    p = MixtureDensityRegressor(**{**QUICK, "n_members": 1}).fit(X, y["u"]).predict_distribution(X[:4])
    np.testing.assert_array_equal(p.epistemic_share, np.zeros(4))
    assert (p.to_frame()["u epistemic_share"] == 0).all()


@pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_the_unit_of_the_targets_does_not_change_the_epistemic_share(kind, unit):
    X, y, _ = table(30)
    y = y["u"].to_numpy()
    plain, scaled = (kind(**QUICK).fit(X, factor * y).predict_distribution(X[:4]) for factor in (1, unit))
    np.testing.assert_allclose(scaled.epistemic_share, plain.epistemic_share, rtol=1e-3)
    assert ((plain.epistemic_share > 0) & (plain.epistemic_share < 1)).all()


def test_members_disagree_more_where_there_are_no_data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 1))
    y = X[:, 0] + 0.1 * rng.normal(size=200)
    regressor = MixtureDensityRegressor(
        max_iter=40, width=16, n_components=2, n_members=4, random_state=0
    ).fit(X, y)
    near, far = (regressor.predict_distribution(np.array([[x]])).epistemic_share[0] for x in (0.0, 4.0))
    assert near < 0.1
    assert far > 3 * near


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_members": 0}, "n_members must be at least 1, got 0"),
        ({"n_members": 2.5}, "n_members must be"),
        ({"dropout": [0.1, 0.2]}, "dropout must be a rate, or one for each of 4 members; got 2 rates"),
        ({"dropout": 1.0}, r"dropout must be a rate in \[0, 1\), got 1.0"),
        ({"dropout": [0, 0, 0, 1.5]}, r"dropout must be a rate in \[0, 1\), got 1.5"),
        ({"dropout": -0.1}, "dropout must be"),
        ({"dropout": "much"}, "dropout must be"),
        ({"preset": "slow"}, "preset must be one of .*'fast'.*got 'slow'"),
        ({"proposal": "full-mixture"}, "n_members must be 1 with a proposal of your choice"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    X, y, _ = table(30)
    for kind in (EnergyRegressor, MixtureDensityRegressor):
        with pytest.raises((ValueError, TypeError), match=message):
            kind(**{**QUICK, **settings}).fit(X, y)
