"""The first epochs of a training: frozen backbones, the mixture alone; and data augmentation."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ebreg import methods, networks
from ebreg.models import EnergyModel, MixtureModel, ResidualModel
from ebreg.training import fit
from ebreg.training.batches import Augmented, TensorData
from ebreg.training.config import TrainingConfig
from ebreg.training.frozen_features import FrozenFeatures, backbones_of
from support import KilledError, kill_after

CONFIG = TrainingConfig(epochs=3, batch_size=16, learning_rate=1e-2, frozen_epochs=2)


def images(n: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, 4, 4, generator=generator, dtype=torch.float64)
    y = x.mean(dim=(1, 2, 3))[:, None] * torch.tensor([[2.0, -1.0]])
    return x, y + 0.05 * torch.randn(n, 2, generator=generator, dtype=torch.float64)


class Backbone(nn.Module):
    """A small network with batch-norm and dropout that counts the rows it has seen."""

    def __init__(self, dropout: float = 0.2):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout)
        )
        self.n_rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n_rows += len(x)
        return self.layers(x)


def method_of(name: str, seed: int = 0, dropout: float = 0.2) -> methods.Method:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        parts = replace(networks.image_heads(2, 2, n_features=12), backbone=Backbone(dropout))
        if name == "mdn-nll":
            return methods.MixtureNLL(MixtureModel.of(parts))
        if name.startswith("mdn-teacher"):
            own = None if name.endswith("shared") else Backbone(dropout)
            return methods.MixtureTeacher(MixtureModel.of(parts), parts.energy, own, n_draws=3)
        if name == "residual-nce":
            energy = networks.residual_energy(12, 2, width=8)
            return methods.ResidualNCE(ResidualModel.of(replace(parts, energy=energy)), n_draws=3)
        sampling = {"sigmas": (0.1, 0.8)} if name.startswith("fixed") else {}
        return methods.METHODS[name](EnergyModel.of(parts), n_draws=3, **sampling)


NAMES = [*methods.METHODS, "mdn-teacher shared"]


def changed(before: dict[str, Tensor], method: methods.Method) -> set[str]:
    after = method.state_dict()
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


def snapshot(method: methods.Method) -> dict[str, Tensor]:
    return copy.deepcopy(method.state_dict())


@pytest.mark.parametrize("name", NAMES)
class TestFrozen:
    def test_backbones_rest_and_heads_learn(self, name: str):
        method = method_of(name)
        before = snapshot(method)
        config = replace(CONFIG, epochs=2, averaging=None)
        fit(method, images(), config=config, progress=False)
        moved = changed(before, method)
        assert moved == {each for each in before if "backbone" not in each and "units" not in each} - {
            each for each in before if "bounds" in each
        }
        assert all(p.requires_grad for p in method.parameters())

    def test_then_all_learn(self, name: str):
        method = method_of(name)
        before = snapshot(method)
        fit(method, images(), config=replace(CONFIG, averaging=None), progress=False)
        parameters = {each for each, _ in method.named_parameters(remove_duplicate=False)}
        assert parameters <= changed(before, method)

    def test_features_are_computed_once(self, name: str):
        method = method_of(name)
        fit(method, images(40), images(3, seed=1), replace(CONFIG, epochs=2), progress=False)
        assert [backbone.n_rows for backbone in backbones_of(method)] == [43] * len(backbones_of(method))

    def test_it_is_the_training_of_heads_on_features(self, name: str):
        method, x_y, validation = method_of(name), images(20), images(3, seed=1)
        config = replace(CONFIG, epochs=2)
        frozen = FrozenFeatures(method, 7)
        features, same = frozen.of(TensorData(*x_y)), frozen.of(TensorData(*validation))
        heads = method_of(name)
        result = fit(method, x_y, validation, config, progress=False)
        with frozen.as_inputs(heads):
            alone = fit(heads, features, same, replace(config, frozen_epochs=0), progress=False)
        for one, other in zip(result.history, alone.history, strict=True):
            assert one == pytest.approx(other, rel=1e-5)

    def test_batch_norm_in_training_mode_is_a_setting(self, name: str):
        method = method_of(name)
        before = snapshot(method)
        config = replace(CONFIG, epochs=2, frozen_norm="training", averaging=None)
        fit(method, images(), config=config, progress=False)
        moved = {each for each in changed(before, method) if "backbone" in each}
        statistics = {each for each in before if "running" in each or "tracked" in each}
        assert moved == {each for each in statistics if "backbone" in each} != set()

    def test_a_training_that_fails_leaves_nothing_frozen(self, name: str):
        method = method_of(name)

        def fail(epoch: int) -> None:
            raise RuntimeError("on purpose")

        with pytest.raises(RuntimeError, match="on purpose"):
            fit(method, images(), config=CONFIG, progress=False, after_epoch=fail)
        assert all(p.requires_grad for p in method.parameters())


def test_features_are_known_by_what_they_are_of():
    # Else a training on features could not be resumed on a processor that rounds otherwise.
    data = TensorData(*images())
    one, other = (FrozenFeatures(method_of("joint-nce", seed), 7).of(data) for seed in (0, 1))
    assert not torch.equal(one.x, other.x)
    assert one.checksum == other.checksum == data.checksum


def test_what_was_frozen_before_stays_so():
    method = method_of("joint-nce")
    method.model.backbone.requires_grad_(False)
    fit(method, images(), config=CONFIG, progress=False)
    assert not any(p.requires_grad for p in method.model.backbone.parameters())


class TestFirstStage:
    config = replace(CONFIG, epochs=2, frozen_epochs=0, mixture_epochs=1, averaging=None)

    def first_epoch(self, method: methods.Method) -> tuple[set[str], dict[str, float]]:
        """What the first epoch changes, and its entry in the history."""
        start, moved = snapshot(method), []
        result = fit(
            method,
            images(),
            config=self.config,
            progress=False,
            after_epoch=lambda epoch: moved.append(changed(start, method)),
        )
        return moved[0] & {each for each, _ in method.named_parameters()}, result.history[0]

    def test_it_is_not_all_there_is(self):
        with pytest.raises(ValueError, match="for 2 of 2 epochs the energy is never trained"):
            replace(self.config, mixture_epochs=2)

    @pytest.mark.parametrize("name", ["joint-nce", "joint-mle"])
    def test_the_proposal_begins_alone(self, name: str):
        method = method_of(name)
        moved, entry = self.first_epoch(method)
        assert moved == {each for each, _ in method.named_parameters() if ".proposal." in each}
        assert set(entry) == {"nll"}

    @pytest.mark.parametrize("name", ["mdn-teacher", "mdn-teacher shared", "residual-nce"])
    def test_an_energy_that_q_does_not_learn_from_learns_from_the_beginning(self, name: str):
        method = method_of(name)
        moved, entry = self.first_epoch(method)
        assert moved == {each for each, _ in method.named_parameters()}
        assert {"nce", "nll"} <= set(entry) <= {"nce", "offset", "nll"}

    @pytest.mark.parametrize("name", ["fixed-nce", "fixed-mle", "mdn-nll"])
    def test_the_others_have_none(self, name: str):
        method = method_of(name)
        assert method.first_stage() is method

    @pytest.mark.parametrize("name", NAMES)
    def test_then_the_method_goes_on(self, name: str):
        method = method_of(name)
        result = fit(method, images(), config=self.config, progress=False)
        whole = fit(method_of(name), images(), config=replace(self.config, mixture_epochs=0), progress=False)
        assert set(result.history[1]) == set(whole.history[1])


class Shift:
    """Adds to inputs and targets what the points say."""

    n_points = 2

    def __init__(self):
        self.seen: list[Tensor] = []

    def __call__(self, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        self.seen.append(u)
        return x + u[:, :1, None, None].to(x), y + u[:, 1:].to(y)


class TestAugmentation:
    def test_every_example_gets_points_of_its_own(self):
        augmentation, method = Shift(), method_of("joint-nce")
        x, y = images()
        data = Augmented((x, y), augmentation)
        kept = x.clone(), y.clone()
        fit(method, data, images(10, seed=1), replace(CONFIG, epochs=2, frozen_epochs=0), progress=False)
        points = torch.cat(augmentation.seen)
        assert points.shape == (80, 2)
        assert len(points.unique()) == 160
        assert torch.equal(x, kept[0])
        assert torch.equal(y, kept[1])

    def test_changed_examples_have_no_features_to_keep(self):
        method = method_of("joint-nce")
        fit(method, Augmented(images(), Shift()), config=replace(CONFIG, epochs=2), progress=False)
        assert method.model.backbone.n_rows == 80


RESUMED = replace(CONFIG, epochs=4, mixture_epochs=1, checkpoint_every=1)


@pytest.fixture(scope="module")
def whole() -> dict[str, Tensor]:
    """The weights of a training that is not stopped."""
    method = method_of("mdn-teacher")
    fit(method, images(), config=RESUMED, progress=False)
    return method.state_dict()


@pytest.mark.parametrize("step", [1, 4, 7, 10])
def test_a_run_stopped_in_any_stage_resumes_to_the_same_bits(tmp_path: Path, monkeypatch, step: int, whole):
    path = tmp_path / "run.safetensors"
    kill_after(monkeypatch, step)
    with pytest.raises(KilledError):
        fit(method_of("mdn-teacher"), images(), config=RESUMED, checkpoint=path, progress=False)
    monkeypatch.undo()
    resumed = method_of("mdn-teacher", seed=9)
    fit(resumed, images(), config=RESUMED, checkpoint=path, resume=True, progress=False)
    for name, value in whole.items():
        assert torch.equal(value, resumed.state_dict()[name]), name
