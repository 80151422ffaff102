"""Table 1 and the figures: settings as data, runs that can be killed, reports of all runs."""

import contextlib
import csv
import errno
import io
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ebreg.cli import main
from ebreg.datasets import TASKS, ToyTask, gustafsson
from ebreg.distributions import GaussianMixture
from ebreg.errors import EbregError, TrainingError
from ebreg.experiments import records, report
from ebreg.experiments.experiment import Result
from ebreg.experiments.mean_std import MeanStd
from ebreg.experiments.runner import Workers, run_missing
from ebreg.experiments.summaries import summarize
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.toy import ToyExperiment, ToySource, source
from ebreg.experiments.toy.evaluation import evaluate
from ebreg.experiments.toy.recipes import RECIPES
from ebreg.experiments.toy.tracking import measure
from ebreg.models import EnergyModel, MixtureModel
from ebreg.training import fit
from ebreg.training.config import PAPER
from fragile import Fragile

ALONE = Workers(progress=False)
VERSIONS = {"ebreg": "0.1.0"}


@pytest.fixture(autouse=True)
def _small_data_sets(monkeypatch):
    monkeypatch.setattr(
        source, "TASKS", {name: lambda make=make: small(make()) for name, make in TASKS.items()}
    )
    source._load.cache_clear()
    yield
    source._load.cache_clear()


def small(task: ToyTask) -> ToyTask:
    test = {} if task.x_test is None else {"x_test": task.x_test[:8], "y_test": task.y_test[:8]}
    return replace(task, x_train=task.x_train[:32], y_train=task.y_train[:32], n_x=8, n_y=256, **test)


def experiment(name: str = "mdn-1", dataset: str = "gustafsson", seed: int = 0, epochs: int | None = 1):
    return ToyExperiment(TABLE1.settings[name], ToySource(dataset), seed, epochs)


def values(record: dict) -> dict:
    return {name: value for name, value in record.items() if not name.endswith("seconds")}


class TestSettings:
    def test_the_paper_s_table_is_there(self):
        paper = TABLE1.select(["paper"])
        assert len(paper) == 8
        published = {name: [setting.published[name].mean for setting in paper] for name in TASKS}
        assert published["gustafsson"] == [0.042, 0.036, 0.040, 0.042, 0.042, 0.038, 0.032, 0.035]
        assert published["brando"] == [2.30, 1.98, 1.72, 1.67, 1.70, 1.69, 1.67, 1.65]
        assert all(setting.n_runs == 20 and setting.recipe == "paper" for setting in paper)

    def test_names_and_groups(self):
        assert TABLE1.select(["all"]) == list(TABLE1.settings.values())
        assert TABLE1.select(["modern", "nce-0.1", "modern"]) == [
            TABLE1.settings["nce-0.1"],
            TABLE1.settings["modern"],
        ]
        assert set(TABLE1.groups["paper"]) | set(TABLE1.groups["beyond"]) == set(TABLE1.settings)
        with pytest.raises(ValueError, match=r"a setting must be one of 'all'.*got 'mine'"):
            TABLE1.select(["mine"])

    def test_an_experiment_is_found_by_its_key(self):
        make = lambda setting, dataset, seed: ToyExperiment(setting, ToySource(dataset), seed)  # noqa: E731
        for each in TABLE1.experiments(make, n_runs=1):
            assert TABLE1.find(make, each.key, list(TASKS)) == each
        for key in (
            "gustafsson.mine.00",
            "mine.ours-4.00",
            "brando.ours-4.x",
            "ours-4",
            "",
            "brando.ours-4.0",
        ):
            assert TABLE1.find(make, key, list(TASKS)) is None
        assert TABLE1.find(make, "brando.ours-4.00", ["gustafsson"]) is None

    def test_experiments_are_ordered_by_seed_and_as_many_as_asked_for(self):
        make = lambda *key: key  # noqa: E731
        names = ["ours-4", "mdn-4"]
        keys = TABLE1.experiments(make, names, ["gustafsson", "brando"])
        assert len(keys) == len({(s.name, *rest) for s, *rest in keys}) == 2 * (20 + 5)
        assert [seed for *_, seed in keys] == sorted(seed for *_, seed in keys)
        assert len(TABLE1.experiments(make, names, ["brando", "brando"], 3)) == 6

    @pytest.mark.parametrize("name", TABLE1.settings)
    def test_every_setting_is_a_method_that_trains(self, name):
        setting, task = TABLE1.settings[name], gustafsson(n=8)
        method = RECIPES[setting.recipe].build(setting, task)
        assert method.name == setting.method
        losses = method(task.x_train, task.y_train, method.points(8))
        sum(loss.sum() for loss in losses.values()).backward()
        gradients = [p.grad for p in method.parameters()]
        assert all(g is not None and torch.isfinite(g).all() for g in gradients)
        mixture = method.model.q(method.model.features(task.x_train))
        assert mixture.logits.shape == (8, setting.n_components)

    def test_the_paper_s_recipe(self):
        recipe = RECIPES["paper"]
        assert (set(recipe.n_draws.values()), recipe.draws) == ({1024}, "independent")
        assert recipe.configs == {"gustafsson": PAPER, "brando": PAPER}
        method = recipe.build(TABLE1.settings["ours-4"], gustafsson())
        assert method.model.tail is None
        # 1-10-10, then 1-10-10, (20)-10, 10-10, 10-1; and three branches 10-10-4.
        sizes = {
            "backbone": 2 * 10 + 11 * 10,
            "energy": 2 * 10 + 11 * 10 + 21 * 10 + 11 * 10 + 11,
            "proposal": 3 * (11 * 10 + 11 * 4),
        }
        for part, size in sizes.items():
            assert sum(p.numel() for p in getattr(method.model, part).parameters()) == size
        noise = recipe.build(TABLE1.settings["nce-0.1"], gustafsson()).noise
        assert noise.sigmas == pytest.approx((0.1, 0.8))


class TestSource:
    def test_the_authors_points_replace_ours(self, tmp_path: Path):
        (tmp_path / "gustafsson_train.csv").write_text("x,y\n0.5,-0.25\n-1,2\n")
        points = ToySource("gustafsson", tmp_path)
        assert points.load().x_train.tolist() == [[0.5], [-1.0]]
        assert points.load().y_train.tolist() == [[-0.25], [2.0]]
        assert points.description == "2 points of a file that is not the authors'"
        brando = ToySource("brando", tmp_path).load()
        assert torch.equal(brando.x_train, ToySource("brando").load().x_train)

    def test_the_authors_points_are_recognised(self, monkeypatch):
        monkeypatch.setattr(source, "_AUTHORS_POINTS", ToySource("gustafsson").fingerprint)
        assert "the authors' points" in ToySource("gustafsson").description

    @pytest.mark.parametrize(
        "content", ["a,b\n1,2\n", "x,y\n1,two\n", "x,y\n", "x,y\n1,inf\n", "x,y\n1\n", "x,y\n100,1\n"]
    )
    def test_a_table_of_something_else_is_refused(self, tmp_path: Path, content: str):
        (tmp_path / "gustafsson_train.csv").write_text(content)
        with pytest.raises(ValueError, match=r"points|columns x and y|must have x from -3 to 3"):
            ToySource("gustafsson", tmp_path).load()

    def test_a_folder_without_the_points_is_refused(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError, match=r"gustafsson_train\.csv is not there"):
            ToySource("gustafsson", tmp_path).load()


class TestEvaluation:
    def test_both_metrics_agree_with_a_closed_form(self):
        # For x < 0 the truth is a mixture; at scales s and t of the same means, where the branches are apart,
        # KL = log(t / s) + s^2 / (2 t^2) - 1/2.
        task = replace(gustafsson(), x_range=(-2.2, -0.9), n_x=256)
        model = MixtureModel(nn.Identity(), Branches(0.1))
        kl = math.log(0.1 / 0.075) + 0.075**2 / (2 * 0.1**2) - 0.5
        found = evaluate(task, model.double())
        assert found["on_grid"] == pytest.approx(kl, abs=1e-4)
        assert found["predictive"] == pytest.approx(kl, abs=1e-4)

    def test_an_energy_may_be_off_by_any_constant(self):
        task = replace(gustafsson(), x_range=(-2.2, -0.9), n_x=256)
        model = EnergyModel(nn.Identity(), Shifted(Branches(0.075), 700.0), Branches(0.1), n_targets=1)
        found = evaluate(task, model.double())
        assert abs(found["on_grid"]) < 1e-5
        assert abs(found["predictive"]) < 2e-3

    def test_the_truth_has_the_nll_that_no_model_can_beat(self):
        task = TASKS["brando"]()
        assert -task.log_density(task.x_test, task.y_test).mean() == pytest.approx(1.239, abs=1e-3)


class Branches(nn.Module):
    """The true means and weights of the first set at x < 0, with another scale."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale, dtype=torch.float64))
        self.n_targets = 1

    def forward(self, x: Tensor) -> GaussianMixture:
        means = torch.stack([x.sin(), -x.sin()], dim=1)
        logits = torch.tensor([0.8, 0.2], dtype=x.dtype).log().expand(len(x), 2)
        return GaussianMixture(logits, means, self.scale.expand_as(means))


class Shifted(nn.Module):
    def __init__(self, head: nn.Module, constant: float):
        super().__init__()
        self.head, self.constant = head, constant

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return self.head(h).log_prob(y) + self.constant


class TestRecords:
    RECORD = {  # noqa: RUF012
        "settings": {},
        "versions": VERSIONS,
        "on_grid": 1.0,
        "predictive": None,
        "seconds": 1,
        "cpu_seconds": 1,
    }

    def test_what_is_written_is_read_and_overwritten_only_if_asked(self, tmp_path: Path):
        path = tmp_path / "new" / "folder" / "a.json"
        assert records.read(path) is None
        records.write(path, self.RECORD)
        records.write(path, self.RECORD | {"on_grid": 2.0})
        assert records.read(path) == self.RECORD
        records.write(path, self.RECORD | {"on_grid": 2.0}, overwrite=True)
        assert records.read(path) == self.RECORD | {"on_grid": 2.0}
        assert [each.name for each in path.parent.iterdir()] == ["a.json"]

    def test_partial_files_of_a_killed_process_are_removed_later(self, tmp_path: Path):
        old, fresh, other = (tmp_path / f".{name}.partial" for name in ("a.json.1", "a.json.2", "b.json.1"))
        for path in (old, fresh, other):
            path.write_text("half")
        for path in (old, other):
            os.utime(path, (time.time() - 3600,) * 2)
        records.write(tmp_path / "a.json", self.RECORD)
        assert sorted(path.name for path in tmp_path.iterdir()) == [fresh.name, other.name, "a.json"]

    def test_without_links_nothing_is_overwritten_either(self, tmp_path: Path, monkeypatch):
        def refuse(*paths: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
        for value in (1.0, 2.0):
            records.write(tmp_path / "a.json", self.RECORD | {"on_grid": value})
        assert records.read(tmp_path / "a.json") == self.RECORD
        assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

    @pytest.mark.parametrize("content", ["", '{"value": 1', "[1]", "[" * 10**5])
    def test_a_file_that_is_no_record_is_refused(self, tmp_path: Path, content: str):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(EbregError, match=r"a\.json .*delete it to repeat its run"):
            records.read(tmp_path / "a.json")

    @pytest.mark.parametrize(
        "damage",
        [
            {"settings": None},
            {"settings": [1]},
            {"predictive": "x"},
            {"cpu_seconds": None},
            {"on_grid": [1]},
            {"on_grid": None},
            {"on_grid": math.nan},
            {"versions": None},
            {"failure": ["it broke"], "on_grid": None},
            {"failure": "it broke"},
        ],
    )
    def test_a_damaged_record_is_refused(self, tmp_path: Path, damage: dict):
        records.write(tmp_path / "a.json", self.RECORD | damage)
        with pytest.raises(EbregError, match="is damaged, or not a record; delete it"):
            records.read(tmp_path / "a.json")


class TestExperiment:
    def test_a_run_depends_on_its_seed_alone(self, tmp_path: Path):
        each = experiment("modern", seed=3)
        torch.manual_seed(0)
        first = each.run(tmp_path / "a")
        torch.manual_seed(1)
        assert values(each.run(tmp_path / "b")) == values(first)
        assert experiment("modern", seed=4).run(tmp_path / "a")["on_grid"] != first["on_grid"]

    def test_a_finished_run_is_not_repeated(self, tmp_path: Path):
        each = experiment(dataset="brando")
        record = TestRecords.RECORD | {"settings": each.settings, "on_grid": 7.0}
        records.write(each.record_path(tmp_path), record)
        assert each.run(tmp_path) == record
        assert not each.weights_path(tmp_path).exists()

    def test_an_interrupted_training_is_no_run(self, tmp_path: Path, monkeypatch):
        def interrupted(*args, **settings):
            return fit(*args, **settings | {"after_epoch": lambda epoch: signal.raise_signal(signal.SIGINT)})

        monkeypatch.setattr("ebreg.experiments.experiment.fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            experiment(epochs=5).run(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_model_that_cannot_be_evaluated_is_a_failure(self, tmp_path: Path, monkeypatch):
        def broken(task, model):
            for parameter in model.parameters():
                nn.init.constant_(parameter, math.nan)
            return evaluate(task, model)

        monkeypatch.setattr("ebreg.experiments.toy.experiment.evaluate", broken)
        assert "features are not finite" in experiment().run(tmp_path)["failure"]

    def test_an_infinite_value_is_a_failure_with_a_reason(self, tmp_path: Path, monkeypatch):
        metrics = {"on_grid": math.inf, "predictive": 1.0}
        monkeypatch.setattr("ebreg.experiments.toy.experiment.evaluate", lambda task, model: metrics)
        record = experiment().run(tmp_path)
        assert (record["on_grid"], record["predictive"]) == (None, 1.0)
        assert "not finite" in record["failure"]
        assert experiment().read(tmp_path) == record

    def test_any_other_error_names_the_run(self, tmp_path: Path, monkeypatch):
        monkeypatch.setattr("ebreg.experiments.toy.experiment.evaluate", lambda task, model: {}["no such"])
        with pytest.raises(TrainingError, match=r"the run gustafsson\.mdn-1\.00 failed: KeyError"):
            run_missing([experiment()], tmp_path, ALONE)

    def test_weights_are_evaluated_again(self, tmp_path: Path, monkeypatch):
        record = experiment().run(tmp_path)
        assert experiment().re_evaluate(tmp_path) == record
        monkeypatch.setattr("ebreg.experiments.toy.experiment.evaluate", seven)
        assert experiment().re_evaluate(tmp_path) == record | {"predictive": 7.0}
        assert experiment().read(tmp_path) == record | {"predictive": 7.0}

    def test_weights_of_another_run_are_not_evaluated(self, tmp_path: Path):
        each, other = experiment(), experiment(seed=1)
        before = [each.run(tmp_path), other.run(tmp_path)]
        shutil.copy(other.weights_path(tmp_path), each.weights_path(tmp_path))
        with pytest.raises(EbregError, match=r"mdn-1\.00\.safetensors is of other settings"):
            each.re_evaluate(tmp_path)
        each.weights_path(tmp_path).unlink()
        with pytest.raises(EbregError, match=r"mdn-1\.00\.safetensors does not exist"):
            each.re_evaluate(tmp_path)
        with pytest.raises(EbregError, match="holds no record of the run"):
            experiment(seed=2).re_evaluate(tmp_path)
        assert [each.read(tmp_path), other.read(tmp_path)] == before

    def test_a_failed_training_is_a_record_too(self, tmp_path: Path, monkeypatch):
        config = replace(PAPER, learning_rate=1e30, epochs=3)
        broken = replace(RECIPES["paper"], configs={"gustafsson": config})
        monkeypatch.setitem(RECIPES, "paper", broken)
        each = experiment(epochs=None)
        record = each.run(tmp_path)
        assert "Lower learning_rate" in record["failure"]
        assert each.re_evaluate(tmp_path) == record
        (summary,) = summarize(TABLE1, [Result(each, record)])
        assert (summary.n_runs, summary.n_failures, summary.median("on_grid")) == (1, 1, None)


def seven(task, model) -> dict:
    return evaluate(task, model) | {"predictive": 7.0}


def check_that_a_killed_worker_loses_no_run(tmp_path: Path, backend: str) -> None:
    # Workers have the data sets of full size, and this process must have the same points.
    (tmp_path / "gustafsson_train.csv").write_text("x,y\n0.5,-0.25\n-1,2\n")
    points = ToySource("gustafsson", tmp_path)
    experiments = [Fragile(TABLE1.settings["mdn-1"], points, seed, 1) for seed in range(3)]
    results = run_missing(experiments, tmp_path / "records", Workers(2, backend, progress=False))
    assert (tmp_path / "killed").exists()
    for each in experiments:
        assert results[each.key].record == each.read(tmp_path / "records")
        assert values(each.run(tmp_path / "alone")) == values(results[each.key].record)


class TestRunner:
    def test_a_second_call_does_only_what_is_missing(self, tmp_path: Path):
        experiments = [experiment(seed=seed) for seed in range(3)]
        run_missing(experiments[:2], tmp_path, ALONE)
        times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        assert len(times) == 4
        assert list(run_missing(experiments, tmp_path, ALONE)) == [experiments[2].key]
        assert sorted(path.stem for path in tmp_path.glob("*.json")) == [each.key for each in experiments]
        assert all((tmp_path / name).stat().st_mtime_ns == time for name, time in times.items())

    def test_a_killed_worker_loses_no_run(self, tmp_path: Path):
        check_that_a_killed_worker_loses_no_run(tmp_path, "loky")

    def test_workers_that_always_die_end_the_command(self, tmp_path: Path, monkeypatch):
        calls = []

        def lost(self, function, experiments):
            calls.append(len(experiments))
            if len(calls) == 1:  # one run was finished before
                yield Result(experiments[0], {})
            raise OSError("a worker died")

        monkeypatch.setattr(Workers, "map", lost)
        with pytest.raises(TrainingError, match="workers end before any run: OSError: a worker died"):
            run_missing([experiment(), experiment(seed=1)], tmp_path, ALONE)
        assert calls == [2, 1, 1]

    def test_an_unknown_backend_and_no_jobs_are_refused(self, monkeypatch):
        with pytest.raises(ValueError, match="the backend must be one of 'loky', 'ray', 'dask'"):
            Workers(backend="mine")
        with pytest.raises(ValueError, match="jobs must be at least 1"):
            Workers(0)
        for backend, module in (("ray", "ray.util.joblib"), ("dask", "distributed")):
            monkeypatch.setitem(sys.modules, module, None)
            with pytest.raises(ImportError, match=rf"pip install ebreg\[{backend}\]"):
                Workers(backend=backend)


# A command whose two workers report that they run, and then would run for ten minutes.
AT_WORK = """
import sys, time
from pathlib import Path
from ebreg.experiments.mean_std import MeanStd
from ebreg.experiments.runner import Workers, run_missing
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.toy import ToyExperiment, ToySource

class Slow(ToyExperiment):
    def run(self, folder):
        Path(sys.argv[1], self.key).touch()
        time.sleep(600)

slow = [Slow(TABLE1.settings["mdn-1"], ToySource("gustafsson"), seed) for seed in (0, 1)]
run_missing(slow, Path(sys.argv[1], "records"), Workers(2, progress=False))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.slow  # three processes import torch
def test_workers_end_when_their_command_is_killed(tmp_path: Path):
    # The pipe is closed when the last process that writes to it has ended.
    command = subprocess.Popen(
        [sys.executable, "-c", AT_WORK, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob("gustafsson.*"))) == 2 or command.poll() is not None)
        command.kill()
        command.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
    assert command.returncode == -signal.SIGKILL


def wait_for(what: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


class TestReport:
    def results(self) -> list[Result]:
        # The value of seed s is 20 - s; one run failed, one is not finished, one is infinite.
        found: dict[str, Result] = {}
        for dataset in TASKS:
            for name in ("nce-0.1", "mdn-4"):
                for seed in range(20):
                    each = experiment(name, dataset, seed)
                    value = 20.0 - seed
                    times = {"seconds": 4.0, "cpu_seconds": 2.0, "versions": VERSIONS}
                    found[each.key] = Result(each, {"on_grid": value, "predictive": value + 0.5, **times})
        broken = found["brando.nce-0.1.19"]
        found[broken.experiment.key] = broken._replace(record={"failure": "it broke", "versions": VERSIONS})
        del found["brando.mdn-4.19"]
        found["gustafsson.mdn-4.19"].record["predictive"] = None
        return list(found.values())

    def test_summaries(self):
        summaries = summarize(TABLE1, self.results())
        assert [(s.dataset, s.setting.name) for s in summaries] == [
            ("gustafsson", "nce-0.1"),
            ("gustafsson", "mdn-4"),
            ("brando", "nce-0.1"),
            ("brando", "mdn-4"),
        ]
        whole, infinite, failed, unfinished = summaries
        assert whole.paper == MeanStd(0.036)
        # Of 1, 2, 3, 4 and 5.
        assert whole.best_5 == whole.reported == MeanStd(3.0, math.sqrt(2.5))
        assert whole.reported_runs == "the best 5 of 20"
        assert (whole.median("on_grid"), whole.worst("on_grid")) == (10.5, 20.0)
        assert (whole.median("predictive"), whole.worst("predictive")) == (11.0, 20.5)
        assert (whole.seconds, whole.cpu_seconds) == (4.0, 2.0)
        assert (infinite.worst("predictive"), infinite.n_failures) == (math.inf, 0)
        assert (failed.n_runs, failed.n_failures, failed.best_5.mean) == (20, 1, 4.0)
        assert failed.median("on_grid") == 11.0
        # The best 5 of fewer runs are not comparable.
        assert (unfinished.n_runs, unfinished.n_failures, unfinished.best_5) == (19, 0, None)
        assert unfinished.reported == MeanStd.of([20.0 - seed for seed in range(19)])
        assert unfinished.reported_runs == "19 runs"

    def test_more_runs_than_20_do_not_change_the_best_5_of_20(self):
        record = {"on_grid": 0.0, "predictive": 0.0, "seconds": 1.0, "cpu_seconds": 1.0}
        more = Result(experiment("nce-0.1", seed=20), record)
        summary = summarize(TABLE1, [*self.results(), more])[0]
        assert (summary.n_runs, summary.best_5.mean, summary.values["on_grid"][0]) == (21, 3.0, 0.0)

    def test_other_data_than_the_paper_s_have_no_published_values(self, tmp_path: Path, monkeypatch):
        monkeypatch.setattr(ToySource, "is_published", False)
        summaries, text = report.write_report(tmp_path, TABLE1, self.results(), "ebreg reproduce table1")
        assert all(summary.paper is None for summary in summaries)
        assert "paper: mean" not in text

    def test_files(self, tmp_path: Path):
        results = self.results()
        _, text = report.write_report(tmp_path, TABLE1, results, "ebreg reproduce table1")
        assert "| 1 of 20 |" in text
        assert "0.036" in text
        assert (tmp_path / "table1.md").read_text() == text
        lines = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
        assert len(lines) == 2 * 2 * 20 - 1
        assert [line["failure"] for line in lines].count("it broke") == 1
        lines = list(csv.DictReader(io.StringIO((tmp_path / "table1.csv").read_text())))
        assert [float(line["on_grid_median"]) for line in lines] == [10.5, 10.5, 11.0, 11.0]


def test_the_proposal_is_followed_after_every_epoch():
    task = gustafsson(n=64)
    history = []
    experiment("ours-4", epochs=3).train(after_epoch=lambda m, epoch: history.append(measure(task, m, epoch)))
    assert [each.epoch for each in history] == [1, 2, 3]
    for each in history:
        assert 0 < each.ess <= 1
        assert min(each.gap, each.kl_energy, each.kl_proposal) > 0


class TestCommand:
    def test_table1(self, tmp_path: Path, capsys):
        words = ["reproduce", "table1", "--epochs", "1", "--quiet", "--out", str(tmp_path)]
        asked = ["--settings", "mdn-1", "modern", "nce-0.1", "--runs", "1", "--datasets", "gustafsson"]
        assert main([*words, *asked]) == 0
        text = capsys.readouterr().out
        folder = tmp_path / "table1"
        assert (folder / "table1.md").read_text() in text
        assert "Made by `ebreg reproduce table1 --epochs 1`" in text
        assert len((folder / "runs.csv").read_text().splitlines()) == 4
        assert "versions*: ebreg" in text
        assert (folder / "sensitivity.png").stat().st_size > 10_000
        record = records.read(folder / "records" / "gustafsson.modern.00.json")
        assert record["settings"]["epochs"] == 1
        for more in ("--report-only", "--re-evaluate"):
            assert main([*words, *asked, more]) == 0
            assert capsys.readouterr().out == text
        # A smaller call leaves nothing out of the report.
        assert main([*words, "--settings", "mdn-1", "--report-only"]) == 0
        assert capsys.readouterr().out == text
        # A copy of a record under another name does not count.
        shutil.copy(
            folder / "records" / "gustafsson.mdn-1.00.json", folder / "records" / "gustafsson.mdn-1.0.json"
        )
        assert main([*words, "--report-only"]) == 0
        assert capsys.readouterr().out == text
        (folder / "records" / "gustafsson.mdn-1.0.json").unlink()
        # Records of other settings are refused before any training.
        for more in ([], ["--report-only"]):
            assert main([*words, "--epochs", "2", "--settings", "mdn-4", *more]) == 2
            assert "was made with epochs = 1, and now it is 2" in capsys.readouterr().err
        assert len(list((folder / "records").glob("*.json"))) == 3

    def test_only_what_was_asked_for_is_evaluated_again(self, tmp_path: Path, monkeypatch):
        words = ["reproduce", "table1", "--epochs", "1", "--datasets", "gustafsson", "--quiet"]
        words += ["--out", str(tmp_path)]
        assert main([*words, "--settings", "mdn-1", "mdn-4", "--runs", "2"]) == 0
        monkeypatch.setattr("ebreg.experiments.toy.experiment.evaluate", seven)
        evaluated = []
        for asked in (["--settings", "mdn-1", "--runs", "1"], ["--settings", "mdn-1"]):
            assert main([*words, *asked, "--re-evaluate"]) == 0
            paths = sorted((tmp_path / "table1" / "records").glob("*.json"))
            evaluated.append([path.stem for path in paths if records.read(path)["predictive"] == 7.0])
        assert evaluated == [["gustafsson.mdn-1.00"], ["gustafsson.mdn-1.00", "gustafsson.mdn-1.01"]]

    @pytest.mark.parametrize("name", ["out", "out/table1", "out/table1/records"])
    def test_a_file_in_place_of_a_folder_is_found_before_any_training(
        self, tmp_path: Path, name: str, capsys
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        small = ["--settings", "mdn-1", "--runs", "1", "--epochs", "1", "--datasets", "gustafsson"]
        assert main(["reproduce", "table1", *small, "--quiet", "--out", str(tmp_path / "out")]) == 2
        assert "cannot be written to" in capsys.readouterr().err
        assert path.read_text() == "mine"

    def test_figures(self, tmp_path: Path, capsys):
        words = ["reproduce", "figures", "--epochs", "1", "--quiet", "--out", str(tmp_path)]
        assert main(words) == 0
        pictures = [Path(line) for line in capsys.readouterr().out.splitlines()]
        assert len(pictures) == 9
        assert all(picture.stat().st_size > 10_000 for picture in pictures)
        assert len((tmp_path / "figures" / "tracking.csv").read_text().splitlines()) == 3
        assert main(words) == 2
        assert "holds figure2-brando.png already; give another folder" in capsys.readouterr().err

    def test_interrupted_figures_are_not_drawn(self, tmp_path: Path, monkeypatch):
        def interrupted(*args, **settings):
            return fit(*args, **settings | {"after_epoch": lambda epoch: signal.raise_signal(signal.SIGINT)})

        monkeypatch.setattr("ebreg.experiments.experiment.fit", interrupted)
        assert main(["reproduce", "figures", "--epochs", "2", "--quiet", "--out", str(tmp_path)]) == 130
        assert [path.name for path in (tmp_path / "figures").iterdir()] == ["training-set-gustafsson.png"]

    def test_the_points_of_a_set_that_is_not_asked_for_are_not_read(self, tmp_path: Path, capsys):
        asked = ["--datasets", "brando", "--settings", "mdn-1", "--runs", "1", "--epochs", "1", "--quiet"]
        assert main(["reproduce", "table1", *asked, "--points", "nowhere", "--out", str(tmp_path)]) == 0
        text = capsys.readouterr().out
        assert "gustafsson" not in text
        assert "table1 --epochs 1 --points FOLDER`" in text

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--settings", "mine"], "a setting must be one of"),
            (["--datasets", "mine"], "a data set must be one of"),
            (["--report-only"], "holds no record"),
            (["--points", "nowhere"], "gustafsson_train.csv is not there"),
            (["--backend", "mine"], "the backend must be one of 'loky', 'ray', 'dask'"),
            (["--runs", "0"], "runs must be at least 1"),
            (["--epochs", "0"], "epochs must be at least 1"),
        ],
    )
    def test_a_mistake_ends_in_a_sentence(self, arguments: list[str], message: str, tmp_path: Path, capsys):
        assert main(["reproduce", "table1", "--quiet", "--out", str(tmp_path), *arguments]) == 2
        assert message in capsys.readouterr().err

    def test_a_failure_inside_has_another_exit_code(self, tmp_path: Path, monkeypatch, capsys):
        monkeypatch.setattr("ebreg.experiments.toy.experiment.evaluate", lambda task, model: {}["no such"])
        words = ["--settings", "mdn-1", "--runs", "1", "--epochs", "1", "--quiet", "--out", str(tmp_path)]
        assert main(["reproduce", "table1", "--datasets", "gustafsson", *words]) == 1
        assert "the run gustafsson.mdn-1.00 failed: KeyError" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_worker_of_ray_loses_no_run(tmp_path: Path, monkeypatch):
    ray = pytest.importorskip("ray", reason="pip install ebreg[ray]")
    # Workers are new processes, and must find this file.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        check_that_a_killed_worker_loses_no_run(tmp_path, "ray")
    finally:
        ray.shutdown()
