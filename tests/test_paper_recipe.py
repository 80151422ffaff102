"""The image recipe `paper`, trained end to end on tiny images from a checkpoint in torchvision's format."""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import ebreg
from ebreg import cli, plots
from ebreg.cli import image_options
from ebreg.datasets.images import IMAGE_TASKS, load, write_hdf5
from ebreg.experiments.images import IMAGE_RECIPES, ImageExperiment, ImageSource
from ebreg.experiments.settings import Setting
from ebreg.methods import Method
from ebreg.models import EnergyModel
from ebreg.saving import checkpoints
from ebreg.training import fit
from support import KilledError, kill_after, rng

PAPER = IMAGE_RECIPES["paper"]
SIDE, N_TRAIN = 32, 8
# Shorter than the paper's in the following, and in nothing else.
SHORT = {"epochs": 4, "frozen_epochs": 2, "batch_size": 4}
N_DRAWS = 16
STEPS = N_TRAIN // SHORT["batch_size"]  # in an epoch


def imagenet_state_dict() -> dict[str, Tensor]:
    """Random weights of a ResNet18 by torchvision's names and shapes, its classifier included."""
    generator, tensors = rng(), {}

    def norm(name: str, n: int) -> None:
        tensors[f"{name}.weight"] = 0.5 + torch.rand(n, generator=generator)
        tensors[f"{name}.bias"] = 0.1 * torch.randn(n, generator=generator)
        tensors[f"{name}.running_mean"] = 0.1 * torch.randn(n, generator=generator)
        tensors[f"{name}.running_var"] = 0.5 + torch.rand(n, generator=generator)
        tensors[f"{name}.num_batches_tracked"] = torch.tensor(1000)

    def convolution(name: str, n_out: int, n_in: int, side: int) -> None:
        scale = (2 / (n_in * side**2)) ** 0.5
        tensors[f"{name}.weight"] = scale * torch.randn(n_out, n_in, side, side, generator=generator)

    convolution("conv1", 64, 3, 7)
    norm("bn1", 64)
    n_in = 64
    for stage, n in enumerate((64, 128, 256, 512), start=1):
        for block in (f"layer{stage}.0", f"layer{stage}.1"):
            convolution(f"{block}.conv1", n, n_in, 3)
            norm(f"{block}.bn1", n)
            convolution(f"{block}.conv2", n, n, 3)
            norm(f"{block}.bn2", n)
            if n_in != n:
                convolution(f"{block}.downsample.0", n, n_in, 1)
                norm(f"{block}.downsample.1", n)
            n_in = n
    tensors["fc.weight"] = 0.05 * torch.randn(1000, 512, generator=generator)
    tensors["fc.bias"] = torch.zeros(1000)
    return tensors


CHECKPOINT = imagenet_state_dict()


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(CHECKPOINT, path)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> dict[str, Path]:
    """Files of tiny images in the formats of two tasks: one target, and three with an augmentation."""
    folder, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    images = random.integers(0, 256, (10, 3, SIDE, SIDE), dtype=np.uint8)
    angles = images.mean(axis=(1, 2, 3)) - 127 + random.normal(0, 5, 10)
    write_hdf5(folder / "SteeringAngle_64x64.h5", images, angles, IMAGE_TASKS["steering"])
    for name, n in (("train", N_TRAIN), ("test", 2)):
        # A few degrees: NCE learns nothing from targets that an untrained mixture rules out.
        poses = random.uniform(-4, 4, (n, 3))
        np.savez(folder / f"BIWI_{name}.npz", image=images[:n].transpose(0, 2, 3, 1), pose=poses)
    return {"steering": folder / "SteeringAngle_64x64.h5", "head-pose": folder}


@pytest.fixture(scope="module")
def experiment_of(weights: Path, data) -> Callable[..., ImageExperiment]:
    """The recipe with fewer epochs, smaller batches and fewer draws; the rest is as it stands."""

    def build(task: str, method: str = "joint-nce", **loop) -> ImageExperiment:
        config = replace(PAPER.config, **{**SHORT, **loop})
        recipe = replace(PAPER, config=config, weights=str(weights), n_draws=N_DRAWS)
        return ImageExperiment(
            Setting("short", "", method, n_components=2), ImageSource(task, data[task]), 0, recipe
        )

    return build


def words(task: str, epochs: int = SHORT["epochs"]) -> list[str]:
    """The command of such a training, without paths."""
    loop = {**SHORT, "epochs": epochs, "n_draws": N_DRAWS}
    options = [word for name, value in loop.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["train", task, "--components", "2", *options, "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def command(weights: Path, data) -> Callable[..., list[str]]:
    def build(out: Path, task: str, **settings) -> list[str]:
        paths = ["--data", str(data[task]), "--weights", str(weights), "--out", str(out)]
        return [*words(task, **settings), *paths]

    return build


def statistics_in(names: Iterable[str]) -> set[str]:
    return {name for name in names if "running_" in name or name.endswith("num_batches_tracked")}


class TestNumbers:
    """Appendix B of the paper, and what its authors' code adds."""

    def test_of_the_training_loop(self):
        config = PAPER.config
        assert (config.epochs, config.batch_size) == (75, 32)
        assert (config.learning_rate, config.schedule, config.weight_decay) == (1e-3, "constant", 0.0)
        assert (config.clip_norm, config.averaging, config.patience) == (None, None, None)
        assert (config.frozen_epochs, config.frozen_norm) == (20, "training")
        assert (PAPER.backbone, PAPER.units, PAPER.augments, PAPER.neck) == ("resnet18", "raw", True, None)

    @pytest.mark.parametrize("name", ["joint-nce", "mdn-teacher"])
    def test_of_independent_draws(self, name: str, weights: Path):
        method = replace(PAPER, weights=str(weights)).build(Setting("", "", name), torch.zeros(5, 3))
        u = method.points(2, rng())
        assert u.shape == (1024, 2, 3)
        # 1,024 independent draws leave about 1/e of as many strata empty; stratified draws leave none.
        filled = (u[:, 0, 0] * 1024).long().unique().numel() / 1024
        assert filled == pytest.approx(1 - math.exp(-1), abs=0.05)

    @pytest.mark.parametrize(("task", "alone"), [("steering", 0), ("head-pose", 1)])
    def test_of_epochs_of_the_mixture_alone(self, task: str, alone: int, experiment_of):
        assert experiment_of(task).config.mixture_epochs == alone

    def test_the_command_line_has_the_same(self):
        parser = argparse.ArgumentParser()
        image_options.add_recipe(parser)
        assert image_options.recipe_of(parser.parse_args([])) == PAPER


@dataclass(frozen=True)
class Run:
    """A training, with all of its tensors at the start and after each epoch."""

    task: str
    method: Method
    states: list[dict[str, Tensor]]
    history: list[dict[str, float]]

    @property
    def of_backbones(self) -> dict[str, str]:
        """Names of the backbones' tensors in the method, with their names in the checkpoint."""
        prefixes = ("model.backbone.", "teacher.backbone.")
        return {
            name: name.removeprefix(prefix)
            for name in self.states[0]
            for prefix in prefixes
            if name.startswith(prefix)
        }

    def moved(self, epoch: int, names: Iterable[str]) -> set[str]:
        """Which of the tensors an epoch, counted from 0, has changed."""
        before, after = self.states[epoch : epoch + 2]
        return {name for name in names if not torch.equal(before[name], after[name])}


@pytest.fixture(
    scope="module",
    params=[("steering", "joint-nce"), ("head-pose", "joint-nce"), ("head-pose", "mdn-teacher")],
    ids=" ".join,
)
def run(request, experiment_of) -> Run:
    task, name = request.param
    experiment = experiment_of(task, name)
    method = experiment.method()

    def tensors() -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in method.state_dict().items()}

    states = [tensors()]
    training = fit(
        method,
        experiment.data()[0],
        config=experiment.config,
        progress=False,
        after_epoch=lambda epoch: states.append(tensors()),
    )
    return Run(task, method, states, training.history)


class TestStages:
    def test_the_start_is_the_checkpoint(self, run: Run):
        own = run.of_backbones
        assert set(own.values()) == {name for name in CHECKPOINT if not name.startswith("fc.")}
        for name, there in own.items():
            assert torch.equal(run.states[0][name], CHECKPOINT[there]), name

    def test_frozen_parameters_stay_the_checkpoint_s_bits(self, run: Run):
        parameters = {name for name in run.of_backbones if name not in statistics_in(run.of_backbones)}
        assert len(parameters) == 60 * (2 if run.method.name == "mdn-teacher" else 1)
        for epoch in range(SHORT["frozen_epochs"]):
            assert not run.moved(epoch, parameters)
        assert run.moved(SHORT["frozen_epochs"], parameters) == parameters

    def test_batch_norm_is_in_training_mode_all_the_time(self, run: Run):
        statistics = statistics_in(run.of_backbones)
        counters = {name for name in statistics if name.endswith("num_batches_tracked")}
        for epoch in range(SHORT["epochs"]):
            assert run.moved(epoch, statistics) == statistics
            for name in counters:
                assert run.states[epoch + 1][name] == 1000 + STEPS * (epoch + 1)

    def test_heads_learn_from_the_start(self, run: Run):
        heads = {name for name, _ in run.method.named_parameters() if name not in run.of_backbones}
        # With several targets, the first epoch of the joint method trains the mixture alone.
        waiting = run.task == "head-pose" and run.method.name == "joint-nce"
        assert run.moved(0, heads) == {name for name in heads if not waiting or ".proposal." in name}
        assert run.moved(1, heads) == heads

    def test_losses(self, run: Run):
        joint = run.method.name == "joint-nce"
        names = {"nce", "log_z"} if joint else {"nce", "mdn"}
        first = ({"nll"} if joint else {"nce", "nll"}) if run.task == "head-pose" else names
        assert [set(entry) for entry in run.history] == [first, names, names, names]
        assert all(math.isfinite(value) for entry in run.history for value in entry.values())

    def test_raw_units_without_a_tail(self, run: Run):
        units = run.method.model.y_units
        assert torch.equal(units.shift, torch.zeros_like(units.shift))
        assert torch.equal(units.scale, torch.ones_like(units.scale))
        energy = run.method.model if isinstance(run.method.model, EnergyModel) else run.method.teacher
        assert energy.tail is None

    def test_stored_targets_are_not_augmented(self, run: Run, data):
        used, stored = ImageSource(run.task, data[run.task]).load(), load(run.task, data[run.task])
        assert torch.equal(used.train.y, stored.train.y)


def reference_training(experiment: ImageExperiment) -> Method:
    """The loop of the paper's Appendix G from its formulas: plain torch, one Adam, densities of components.

    The backbone's features are detached in the frozen epochs. Networks and random numbers are the library's.
    """
    config, method = experiment.config, experiment.method().double()
    model, noise = method.model, rng(config.seed)
    data = experiment.source.load().train
    optimizer = torch.optim.Adam(method.parameters(), lr=1e-3)
    method.train()
    for epoch in range(config.epochs):
        order = torch.randperm(len(data), generator=rng(config.seed * 1_000_003 + epoch))
        for index in order.split(config.batch_size):
            x, y = data.__getitems__(index)
            h = model.backbone(model.x_units(x))
            h = h.detach() if epoch < config.frozen_epochs else h
            q = model.proposal(h.detach())
            draws = q.from_uniform(method.points(len(y), noise)).detach()

            def density(at: Tensor, q=q) -> Tensor:
                components = torch.distributions.Normal(q.means, q.scales).log_prob(at[..., None, :]).sum(-1)
                return (torch.softmax(q.logits, dim=-1) * components.exp()).sum(dim=-1)

            f_y, f = model.energy(h, y[None])[0], model.energy(h, draws)
            ratios = torch.cat([f_y[None] - density(y).log().detach(), f - density(draws).log().detach()])
            loss_f = -(ratios[0] - ratios.exp().sum(dim=0).log()).mean()
            loss_q = (f.detach().exp() / density(draws)).mean(dim=0).log().mean()
            optimizer.zero_grad()
            (loss_f + loss_q).backward()
            optimizer.step()
    return method


def test_it_is_the_loop_of_the_paper(experiment_of):
    experiment = experiment_of("steering", epochs=2, frozen_epochs=1)
    method = experiment.method().double()
    fit(method, experiment.data()[0], config=experiment.config, progress=False)
    expected, start = reference_training(experiment), experiment.method().double()
    for name, value in method.named_parameters():
        way = (expected.get_parameter(name) - start.get_parameter(name)).norm()
        # Adam turns a gradient that is zero but for rounding into a small step.
        assert (value - expected.get_parameter(name)).norm() < 1e-5 * way + 1e-8, name
        assert way > 1e-3 or name == "model.energy.output_layer.bias"  # which no loss depends on


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory) -> dict[str, Path]:
    """Folders of trainings that were not stopped."""
    folders = {task: tmp_path_factory.mktemp("whole") / task for task in ("steering", "head-pose")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "available", lambda: False)
        for task, folder in folders.items():
            assert cli.main(command(folder, task)) == 0
    return folders


def assert_same_model(one: Path, other: Path) -> None:
    models = [ebreg.load(folder / "model").state_dict() for folder in (one, other)]
    assert models[0].keys() == models[1].keys()
    for name, value in models[0].items():
        assert torch.equal(value, models[1][name]), name


@pytest.mark.parametrize(("task", "n_targets"), [("steering", 1), ("head-pose", 3)])
def test_the_result_is_a_model_in_raw_units_with_a_tail(task: str, n_targets: int, whole, data):
    result = json.loads((whole[task] / "result.json").read_text())
    settings = result["settings"]
    assert [settings[name] for name in ("backbone", "units", "draws")] == ["resnet18", "raw", "independent"]
    assert [settings[name] for name in SHORT] == list(SHORT.values())
    assert len(result["history"]) == SHORT["epochs"]
    model = ebreg.load(whole[task] / "model")
    assert torch.equal(model.y_units.scale, torch.ones(n_targets, dtype=torch.float64))
    assert torch.equal(model.y_units.shift, torch.zeros(n_targets, dtype=torch.float64))
    x, y = ImageSource(task, data[task]).load().test.__getitems__([0, 1])
    assert model.tail.contains(y).all()
    p = model.predictive(x)
    assert p.mean.shape == (2, n_targets)
    assert torch.isfinite(p.mean).all()
    nll = -p.log_prob(y).mean().item()
    assert nll == pytest.approx(result["predictive"], rel=1e-3)


@pytest.mark.parametrize(("task", "step"), [("steering", 3), ("head-pose", 7)])
def test_a_stopped_training_resumes_to_the_same_bits(
    task: str, step: int, whole, command, tmp_path, monkeypatch
):
    # In a frozen epoch, and in an epoch with all parameters.
    monkeypatch.setattr(plots, "available", lambda: False)
    with monkeypatch.context() as patch:
        kill_after(patch, step)
        with pytest.raises(KilledError):
            cli.main(command(tmp_path / "run", task))
    assert not (tmp_path / "run" / "result.json").exists()
    assert cli.main([*command(tmp_path / "run", task), "--resume"]) == 0
    assert_same_model(tmp_path / "run", whole[task])


@pytest.mark.slow
@pytest.mark.parametrize("task", ["steering", "head-pose"])
def test_sigkill_and_resume_end_with_the_same_weights(task: str, command, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    killed, n_epochs = tmp_path / "killed", 12
    process = subprocess.Popen(
        [sys.executable, "-m", "ebreg", *command(killed, task, epochs=n_epochs)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    path, seen = killed / "checkpoint.safetensors", set()
    while len(seen) < 4:
        assert process.poll() is None, process.communicate()
        if path.exists():
            seen.add(path.stat().st_mtime_ns)
        time.sleep(0.001)  # leave the processor to the process
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert 3 <= checkpoints.read(path)[1]["progress"]["epoch"] < n_epochs
    assert not (killed / "model").exists()
    assert cli.main([*command(killed, task, epochs=n_epochs), "--resume"]) == 0
    assert cli.main(command(tmp_path / "whole", task, epochs=n_epochs)) == 0
    assert_same_model(killed, tmp_path / "whole")
