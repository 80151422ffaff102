"""The paper's table as rows of data, a runner that loses nothing, and reports that hide nothing."""

import contextlib
import csv
import errno
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ebreg.cli import main
from ebreg.datasets import TASKS, gustafsson
from ebreg.distributions import GaussianMixture
from ebreg.errors import EbregError
from ebreg.experiments import report
from ebreg.experiments.cells import Run
from ebreg.experiments.recipes import RECIPES
from ebreg.experiments.records import Records
from ebreg.experiments.report import Finished
from ebreg.experiments.runner import complete, judge_again
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.tasks import Measured, has_authors_points, load, measure
from ebreg.experiments.toy import ToyJob, train
from ebreg.experiments.tracking import look
from ebreg.models import EnergyModel, MixtureModel
from ebreg.training import fit
from ebreg.training.config import PAPER

QUICK = ["mdn-1", "modern"]


def values(record: dict) -> dict:
    return {name: value for name, value in record.items() if not name.endswith("seconds")}


class TestCells:
    def test_the_paper_s_table_is_there(self):
        paper = TABLE1.select(["paper"])
        assert len(paper) == 8
        published = {name: [cell.published[name] for cell in paper] for name in TASKS}
        assert published["gustafsson"] == [0.042, 0.036, 0.040, 0.042, 0.042, 0.038, 0.032, 0.035]
        assert published["brando"] == [2.30, 1.98, 1.72, 1.67, 1.70, 1.69, 1.67, 1.65]
        assert all(cell.n_runs == 20 and cell.recipe == "paper" for cell in paper)

    def test_names_and_sets(self):
        assert TABLE1.select(["all"]) == list(TABLE1.cells.values())
        assert TABLE1.select(["modern", "nce-0.1", "modern"]) == [
            TABLE1.cells["nce-0.1"],
            TABLE1.cells["modern"],
        ]
        assert set(TABLE1.sets["paper"]) | set(TABLE1.sets["beyond"]) == set(TABLE1.cells)
        with pytest.raises(ValueError, match=r"a cell must be one of 'all'.*got 'mine'"):
            TABLE1.select(["mine"])

    def test_a_run_is_found_by_its_name(self):
        for run in TABLE1.runs(["all"], list(TASKS), 1):
            assert TABLE1.run(run.key) == run
        for key in ("gustafsson.mine.00", "mine.ours-4.00", "brando.ours-4.x", "ours-4", ""):
            assert TABLE1.run(key) is None

    def test_runs_are_even_and_as_many_as_asked_for(self):
        cells = ["ours-4", "mdn-4"]
        runs = TABLE1.runs(cells, ["gustafsson", "brando"])
        assert len(runs) == len({run.key for run in runs}) == 2 * (20 + 5)
        assert [run.seed for run in runs] == sorted(run.seed for run in runs)
        assert len(TABLE1.runs(cells, ["brando", "brando"], 3)) == 6

    @pytest.mark.parametrize("name", TABLE1.cells)
    def test_every_cell_is_a_method_that_trains(self, name):
        cell, task = TABLE1.cells[name], gustafsson(n=8)
        method = RECIPES[cell.recipe].method(cell, task)
        assert method.name == cell.method
        losses = method(task.x_train, task.y_train, method.points(8))
        sum(loss.sum() for loss in losses.values()).backward()
        gradients = [p.grad for p in method.parameters()]
        assert all(g is not None and torch.isfinite(g).all() for g in gradients)
        mixture = method.model.q(method.model.features(task.x_train))
        assert mixture.logits.shape == (8, cell.n_components)

    def test_the_paper_s_settings(self):
        recipe = RECIPES["paper"]
        assert (set(recipe.n_draws.values()), recipe.draws) == ({1024}, "independent")
        assert recipe.configs == {"gustafsson": PAPER, "brando": PAPER}
        method = recipe.method(TABLE1.cells["ours-4"], gustafsson())
        assert method.model.tail is None
        # 1-10-10, then 1-10-10, (20)-10, 10-10, 10-1; and three branches 10-10-4.
        sizes = {
            "backbone": 2 * 10 + 11 * 10,
            "energy": 2 * 10 + 11 * 10 + 21 * 10 + 11 * 10 + 11,
            "proposal": 3 * (11 * 10 + 11 * 4),
        }
        for part, size in sizes.items():
            assert sum(p.numel() for p in getattr(method.model, part).parameters()) == size
        noise = recipe.method(TABLE1.cells["nce-0.1"], gustafsson()).noise
        assert noise.sigmas == pytest.approx((0.1, 0.8))


class TestTasks:
    def test_the_authors_points_take_the_place_of_ours(self, tmp_path: Path):
        (tmp_path / "gustafsson_train.csv").write_text("x,y\n0.5,-0.25\n-1,2\n")
        task = load("gustafsson", tmp_path)
        assert task.x_train.tolist() == [[0.5], [-1.0]]
        assert task.y_train.tolist() == [[-0.25], [2.0]]
        assert torch.equal(load("brando", tmp_path).x_train, TASKS["brando"]().x_train)
        assert not has_authors_points(task)

    @pytest.mark.parametrize(
        "content", ["a,b\n1,2\n", "x,y\n1,two\n", "x,y\n", "x,y\n1,inf\n", "x,y\n1\n", "x,y\n100,1\n"]
    )
    def test_a_table_of_something_else_is_refused(self, tmp_path: Path, content: str):
        (tmp_path / "gustafsson_train.csv").write_text(content)
        with pytest.raises(ValueError, match=r"points|columns x and y|must have x from -3 to 3"):
            load("gustafsson", tmp_path)

    def test_a_folder_without_the_points_is_refused(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError, match=r"gustafsson_train\.csv is not there"):
            load("gustafsson", tmp_path)

    def test_both_ways_of_judging_agree_with_a_closed_form(self):
        # For x < 0 the truth is a mixture; at scales s and t of the same means, where the branches are apart,
        # KL = log(t / s) + s^2 / (2 t^2) - 1/2.
        task = replace(gustafsson(), x_range=(-2.2, -0.9))
        model = MixtureModel(nn.Identity(), Branches(0.1))
        kl = math.log(0.1 / 0.075) + 0.075**2 / (2 * 0.1**2) - 0.5
        found = measure(task, model.double())
        assert found.on_grid == pytest.approx(kl, abs=1e-4)
        assert found.own == pytest.approx(kl, abs=1e-4)

    def test_an_energy_may_be_off_by_any_constant(self):
        task = replace(gustafsson(), x_range=(-2.2, -0.9))
        model = EnergyModel(nn.Identity(), Shifted(Branches(0.075), 700.0), Branches(0.1), n_targets=1)
        found = measure(task, model.double())
        assert abs(found.on_grid) < 1e-5
        assert abs(found.own) < 2e-3

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
    def test_what_is_written_is_read_and_never_replaced(self, tmp_path: Path):
        records = Records(tmp_path / "new" / "folder")
        assert records.read("a") is None
        assert not (tmp_path / "new").exists()
        assert records.write("a", {"value": 1})
        assert not records.write("a", {"value": 2})
        assert records.read("a") == {"value": 1}
        assert records.keys() == ["a"]
        assert [path.name for path in records.folder.iterdir()] == ["a.json"]
        assert "a" in records
        assert "b" not in records

    def test_a_half_written_one_does_not_count(self, tmp_path: Path):
        records = Records(tmp_path)
        (tmp_path / ".a.json.123.partial").write_text('{"val')
        assert "a" not in records
        assert records.read("a") is None

    def test_what_a_killed_process_left_is_removed_once_it_is_old(self, tmp_path: Path):
        records = Records(tmp_path)
        old, fresh, other = (tmp_path / f".{name}.partial" for name in ("a.json.1", "a.json.2", "b.json.1"))
        for path in (old, fresh, other):
            path.write_text("half")
        for path in (old, other):
            os.utime(path, (time.time() - 3600,) * 2)
        records.write("a", {"value": 1})
        assert sorted(path.name for path in tmp_path.iterdir()) == [fresh.name, other.name, "a.json"]

    def test_without_links_too_nothing_is_replaced(self, tmp_path: Path, monkeypatch):
        def refuse(*paths: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
        records = Records(tmp_path)
        assert records.write("a", {"value": 1})
        assert not records.write("a", {"value": 2})
        assert records.read("a") == {"value": 1}
        assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

    @pytest.mark.parametrize("content", ["", '{"value": 1', "[1]"])
    def test_a_damaged_one_is_refused(self, tmp_path: Path, content: str):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(EbregError, match=r"a\.json is not a record.*delete it"):
            Records(tmp_path).read("a")


class TestJob:
    def test_a_run_depends_on_its_seed_alone(self, tmp_path: Path):
        run = Run(TABLE1.cells["modern"], "gustafsson", 3)
        torch.manual_seed(0)
        first = ToyJob(tmp_path / "a", epochs=1)(run)
        torch.manual_seed(1)
        assert values(ToyJob(tmp_path / "b", epochs=1)(run)) == values(first)
        other = ToyJob(tmp_path / "a", epochs=1)(replace(run, seed=4))
        assert other["on_grid"] != first["on_grid"]

    def test_what_was_recorded_is_not_done_again(self, tmp_path: Path):
        run, job = Run(TABLE1.cells["mdn-1"], "brando", 0), ToyJob(tmp_path)
        record = {"settings": job.settings(run), "on_grid": 7.0, "own": None, "seconds": 1, "cpu_seconds": 1}
        Records(tmp_path).write(run.key, record)
        assert job(run) == record
        assert not job.weights(run).exists()

    @pytest.mark.parametrize(
        "damage",
        [
            {"settings": None},
            {"settings": [1]},
            {"own": "x"},
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
        run, job = Run(TABLE1.cells["mdn-1"], "brando", 0), ToyJob(tmp_path)
        record = {"settings": job.settings(run), "on_grid": 7.0, "own": 7.0, "seconds": 1, "cpu_seconds": 1}
        Records(tmp_path).write(run.key, record | damage)
        with pytest.raises(EbregError, match=r"the record brando\.mdn-1\.00 .* is damaged; delete it"):
            job(run)

    def test_half_a_training_is_no_run(self, tmp_path: Path, monkeypatch):
        def interrupted(*args, **settings):
            return fit(*args, **settings | {"after_epoch": lambda epoch: signal.raise_signal(signal.SIGINT)})

        monkeypatch.setattr("ebreg.experiments.toy.fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ToyJob(tmp_path, epochs=5)(Run(TABLE1.cells["mdn-1"], "gustafsson", 0))
        assert list(tmp_path.iterdir()) == []

    def test_a_model_that_cannot_be_judged_is_a_failure(self, tmp_path: Path, monkeypatch):
        def broken(task, model):
            for parameter in model.parameters():
                nn.init.constant_(parameter, math.nan)
            return measure(task, model)

        monkeypatch.setattr("ebreg.experiments.toy.measure", broken)
        run = Run(TABLE1.cells["mdn-1"], "gustafsson", 0)
        assert "features are not finite" in ToyJob(tmp_path, epochs=1)(run)["failure"]

    def test_an_infinite_value_is_a_failure_with_a_reason(self, tmp_path: Path, monkeypatch):
        monkeypatch.setattr("ebreg.experiments.toy.measure", lambda task, model: Measured(math.inf, 1.0))
        run, job = Run(TABLE1.cells["mdn-1"], "gustafsson", 0), ToyJob(tmp_path, epochs=1)
        record = job(run)
        assert (record["on_grid"], record["own"]) == (None, 1.0)
        assert "no finite number" in record["failure"]
        assert job.recorded(run) == record

    def test_any_other_error_names_the_run(self, tmp_path: Path, monkeypatch):
        monkeypatch.setattr("ebreg.experiments.toy.measure", lambda task, model: {}["no such thing"])
        runs = TABLE1.runs(["mdn-1"], ["gustafsson"], 1)
        with pytest.raises(EbregError, match=r"the run gustafsson\.mdn-1\.00 cannot be done: KeyError"):
            complete(runs, ToyJob(tmp_path, epochs=1), progress=False)

    def test_the_trained_networks_are_kept_and_judged_again(self, tmp_path: Path, monkeypatch):
        run, job = Run(TABLE1.cells["mdn-1"], "gustafsson", 0), ToyJob(tmp_path, epochs=1)
        record = job(run)
        job.judge_again(run)
        assert job.recorded(run) == record
        real = measure
        monkeypatch.setattr(
            "ebreg.experiments.toy.measure", lambda task, model: replace(real(task, model), own=7.0)
        )
        judge_again([run], job, progress=False)
        assert job.recorded(run) == record | {"own": 7.0}

    def test_only_what_was_asked_for_is_judged_again(self, tmp_path: Path, monkeypatch):
        words = ["reproduce", "table1", "--epochs", "1", "--datasets", "gustafsson", "--quiet"]
        words += ["--out", str(tmp_path)]
        both = ["--cells", "mdn-1", "mdn-4", "--runs", "2"]
        assert main([*words, *both]) == 0
        real = measure
        monkeypatch.setattr(
            "ebreg.experiments.toy.measure", lambda task, model: replace(real(task, model), own=7.0)
        )
        judged = []
        for asked in (["--cells", "mdn-1", "--runs", "1"], ["--cells", "mdn-1"]):
            assert main([*words, *asked, "--judge-again"]) == 0
            records = sorted((tmp_path / "table1" / "records").glob("*.json"))
            judged.append([path.stem for path in records if json.loads(path.read_text())["own"] == 7.0])
        assert judged == [["gustafsson.mdn-1.00"], ["gustafsson.mdn-1.00", "gustafsson.mdn-1.01"]]

    def test_networks_that_are_not_of_the_record_are_not_judged(self, tmp_path: Path):
        runs = TABLE1.runs(["mdn-1"], ["gustafsson"], 2)
        job = ToyJob(tmp_path, epochs=1)
        records = [job(run) for run in runs]
        shutil.copy(job.weights(runs[1]), job.weights(runs[0]))
        with pytest.raises(EbregError, match=r"mdn-1\.00\.safetensors is of other settings"):
            job.judge_again(runs[0])
        job.weights(runs[0]).unlink()
        with pytest.raises(EbregError, match=r"mdn-1\.00\.safetensors is not there"):
            job.judge_again(runs[0])
        assert [job.recorded(run) for run in runs] == records
        job.judge_again(Run(TABLE1.cells["mdn-1"], "gustafsson", 2))  # which was not done
        assert len(list(tmp_path.glob("*.json"))) == 2

    def test_a_failure_is_a_record_too(self, tmp_path: Path, monkeypatch):
        recipe = RECIPES["paper"]
        config = replace(PAPER, learning_rate=1e30, epochs=3)
        broken = replace(recipe, configs={"gustafsson": config})
        monkeypatch.setitem(RECIPES, "paper", broken)
        run = Run(TABLE1.cells["mdn-1"], "gustafsson", 0)
        record = ToyJob(tmp_path)(run)
        assert "Lower learning_rate" in record["failure"]
        (summary,) = report.summarize(TABLE1, [Finished(run, record)])
        assert (summary.n_runs, summary.n_failures, summary.median("on_grid")) == (1, 1, None)


@dataclass(frozen=True)
class Fragile(ToyJob):
    """Kills its own process at the first try of one run."""

    def __call__(self, run: Run) -> dict:
        mark = self.records.parent / "killed"
        if run.seed == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(run)


class TestRunner:
    def test_a_second_call_does_only_what_is_missing(self, tmp_path: Path):
        runs = TABLE1.runs(QUICK, ["gustafsson"], 2)
        job = ToyJob(tmp_path, epochs=1)
        complete(runs[:3], job, progress=False)
        times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        assert len(times) == 6
        complete(runs, job, progress=False)
        assert Records(tmp_path).keys() == sorted(run.key for run in runs)
        assert all((tmp_path / name).stat().st_mtime_ns == time for name, time in times.items())

    def test_a_worker_that_is_killed_costs_no_run(self, tmp_path: Path):
        runs = TABLE1.runs(QUICK, ["gustafsson"], 2)
        job = Fragile(tmp_path / "records", epochs=1)
        complete(runs, job, n_jobs=2, progress=False)
        assert (tmp_path / "killed").exists()
        alone = [values(ToyJob(tmp_path / "alone", epochs=1)(run)) for run in runs]
        assert [values(job.recorded(run)) for run in runs] == alone

    def test_records_of_other_settings_are_refused(self, tmp_path: Path):
        runs = TABLE1.runs(["mdn-1"], ["gustafsson"], 1)
        complete(runs, ToyJob(tmp_path, epochs=1), progress=False)
        with pytest.raises(
            EbregError,
            match="was made with epochs = 1, and now it is 75; give another folder, or the settings",
        ):
            complete(runs, ToyJob(tmp_path), progress=False)

    def test_an_unknown_backend_and_no_jobs_are_refused(self, tmp_path: Path):
        runs = TABLE1.runs(["mdn-1"], ["gustafsson"], 1)
        with pytest.raises(ValueError, match="backend"):
            complete(runs, ToyJob(tmp_path, epochs=1), backend="mine", progress=False)
        with pytest.raises(ValueError, match="jobs must be at least 1"):
            complete(runs, ToyJob(tmp_path, epochs=1), n_jobs=0, progress=False)


# A command whose two workers say that they are at work, and then would be for ten minutes.
AT_WORK = """
import sys, time
from pathlib import Path
from ebreg.experiments.runner import complete, judge_again
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.toy import ToyJob

class Slow(ToyJob):
    def __call__(self, run):
        Path(sys.argv[1], run.key).touch()
        time.sleep(600)

complete(TABLE1.runs(["mdn-1"], ["gustafsson"], 2), Slow(Path(sys.argv[1], "records")), 2, progress=False)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_command(tmp_path: Path, how: signal.Signals):
    # What all of them write to is closed when the last of them has ended.
    command = subprocess.Popen(
        [sys.executable, "-c", AT_WORK, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob("gustafsson.*"))) == 2 or command.poll() is not None)
        command.send_signal(how)
        command.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
    assert command.returncode == (-how if how == signal.SIGKILL else 128 + how)


def wait_for(what: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_worker_whose_command_is_gone_before_its_first_run_ends_too():
    late = "import time; from ebreg.experiments.endings import end_with; end_with(2**30); time.sleep(600)"
    assert subprocess.run([sys.executable, "-c", late], timeout=300, check=False).returncode == 1


class TestReport:
    runs = TABLE1.runs(["nce-0.1", "mdn-4"], ["brando", "gustafsson"], 20)

    def finished(self) -> list[Finished]:
        # The value of seed s is 20 - s; one run gave no number, one is not finished, one is infinite.
        found: dict[str, Finished] = {}
        for run in self.runs:
            value = 20.0 - run.seed
            times = {"seconds": 4.0, "cpu_seconds": 2.0, "versions": {"ebreg": "0.1.0"}}
            found[run.key] = Finished(run, {"on_grid": value, "own": value + 0.5, **times})
        broken = found["brando.nce-0.1.19"]
        found["brando.nce-0.1.19"] = broken._replace(record={"failure": "it broke"})
        del found["brando.mdn-4.19"]
        found["gustafsson.mdn-4.19"].record["own"] = None
        return list(found.values())

    def test_summaries(self):
        summaries = report.summarize(TABLE1, self.finished())
        assert [(s.dataset, s.cell.name) for s in summaries] == [
            ("gustafsson", "nce-0.1"),
            ("gustafsson", "mdn-4"),
            ("brando", "nce-0.1"),
            ("brando", "mdn-4"),
        ]
        whole, infinite, failed, unfinished = summaries
        assert (whole.paper, whole.best_5, whole.median("on_grid"), whole.worst("on_grid")) == (
            0.036,
            3.0,
            10.5,
            20.0,
        )
        assert (whole.median("own"), whole.worst("own")) == (11.0, 20.5)
        assert (whole.seconds, whole.cpu_seconds) == (4.0, 2.0)
        assert (infinite.worst("own"), infinite.n_failures) == (math.inf, 0)
        assert (failed.n_runs, failed.n_failures, failed.best_5) == (20, 1, 4.0)
        assert failed.median("on_grid") == 11.0
        # The best 5 of fewer are something else.
        assert (unfinished.n_runs, unfinished.n_failures, unfinished.best_5) == (19, 0, None)

    def test_more_runs_than_20_do_not_change_the_best_5_of_20(self):
        record = {"on_grid": 0.0, "own": 0.0, "seconds": 1.0, "cpu_seconds": 1.0}
        more = Finished(Run(TABLE1.cells["nce-0.1"], "gustafsson", 20), record)
        summary = report.summarize(TABLE1, [*self.finished(), more])[0]
        assert (summary.n_runs, summary.best_5, summary.first[0]) == (21, 3.0, 0.0)

    def test_other_data_than_the_paper_s_have_no_published_values(self):
        summaries = report.summarize(TABLE1, self.finished(), published=False)
        assert all(summary.paper is None for summary in summaries)
        assert "paper, best" not in report.markdown(TABLE1, summaries, "ebreg reproduce table1")

    def test_tables(self):
        finished = self.finished()
        summaries = report.summarize(TABLE1, finished)
        text = report.markdown(TABLE1, summaries, "ebreg reproduce table1")
        assert "| 1 of 20 |" in text
        assert "0.036" in text
        lines = list(csv.DictReader(io.StringIO(report.runs_csv(TABLE1, finished))))
        assert len(lines) == 2 * 2 * 20 - 1
        assert [line["failure"] for line in lines].count("it broke") == 1
        lines = list(csv.DictReader(io.StringIO(report.summaries_csv(summaries))))
        assert [float(line["on_grid_median"]) for line in lines] == [10.5, 10.5, 11.0, 11.0]


def test_the_proposal_is_followed_after_every_epoch():
    task = gustafsson(n=200)
    moments = []
    config = replace(PAPER, epochs=3)
    train(TABLE1.cells["ours-4"], task, config, lambda model, epoch: moments.append(look(task, model, epoch)))
    assert [moment.epoch for moment in moments] == [1, 2, 3]
    for moment in moments:
        assert 0 < moment.ess <= 1
        assert min(moment.gap, moment.kl_energy, moment.kl_proposal) > 0


class TestCommand:
    def test_table1(self, tmp_path: Path, capsys):
        arguments = ["reproduce", "table1", "--cells", *QUICK, "nce-0.1", "--runs", "1", "--epochs", "1"]
        arguments += ["--datasets", "gustafsson", "--quiet", "--out", str(tmp_path)]
        assert main(arguments) == 0
        text = capsys.readouterr().out
        folder = tmp_path / "table1"
        assert (folder / "table1.md").read_text() in text
        assert "Made by `ebreg reproduce table1 --epochs 1`" in text
        assert len((folder / "runs.csv").read_text().splitlines()) == 4
        assert "done with*: ebreg" in text
        assert (folder / "sensitivity.png").stat().st_size > 10_000
        record = json.loads((folder / "records" / "gustafsson.modern.00.json").read_text())
        assert record["settings"]["epochs"] == 1
        for more in ("--report-only", "--judge-again"):
            assert main([*arguments, more]) == 0
            assert capsys.readouterr().out == text
        # A smaller call leaves nothing out of the report.
        smaller = ["reproduce", "table1", "--cells", "mdn-1", "--epochs", "1", *arguments[-3:]]
        assert main([*smaller, "--report-only"]) == 0
        assert capsys.readouterr().out == text
        # Records of other settings are refused, and nothing is trained that could not stand beside them.
        others = [*smaller[:4], "--epochs", "2", *arguments[-3:]]
        for more in ([], ["--report-only"]):
            assert main([*others, "--cells", "mdn-4", *more]) == 1
            assert "was made with epochs = 1, and now it is 2" in capsys.readouterr().err
        assert len(list((folder / "records").glob("*.json"))) == 3

    def test_a_record_under_another_spelling_is_none(self, tmp_path: Path, capsys):
        arguments = ["reproduce", "table1", "--cells", "mdn-1", "--runs", "1", "--epochs", "1", "--quiet"]
        arguments += ["--datasets", "gustafsson", "--out", str(tmp_path)]
        assert main(arguments) == 0
        records = tmp_path / "table1" / "records"
        (records / "gustafsson.mdn-1.0.json").write_text((records / "gustafsson.mdn-1.00.json").read_text())
        text = capsys.readouterr().out
        assert main([*arguments, "--report-only"]) == 0
        assert capsys.readouterr().out == text

    @pytest.mark.parametrize("name", ["out", "out/table1", "out/table1/records"])
    def test_a_file_in_the_way_is_found_before_any_training(self, tmp_path: Path, name: str, capsys):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        small = ["--cells", "mdn-1", "--runs", "1", "--epochs", "1", "--datasets", "gustafsson"]
        assert main(["reproduce", "table1", *small, "--quiet", "--out", str(tmp_path / "out")]) == 1
        assert "cannot be written to" in capsys.readouterr().err
        assert path.read_text() == "mine"

    def test_figures(self, tmp_path: Path, capsys):
        assert main(["reproduce", "figures", "--epochs", "1", "--quiet", "--out", str(tmp_path)]) == 0
        pictures = [Path(line) for line in capsys.readouterr().out.splitlines()]
        assert len(pictures) == 9
        assert all(picture.stat().st_size > 10_000 for picture in pictures)
        assert len((tmp_path / "figures" / "tracking.csv").read_text().splitlines()) == 3
        assert main(["reproduce", "figures", "--out", str(tmp_path)]) == 1
        assert "holds figure2-brando.png already; give another folder" in capsys.readouterr().err

    def test_the_points_of_a_set_that_is_not_asked_for_are_not_read(self, tmp_path: Path, capsys):
        asked = ["--datasets", "brando", "--cells", "mdn-1", "--runs", "1", "--epochs", "1", "--quiet"]
        arguments = ["reproduce", "table1", *asked, "--points", "nowhere", "--out", str(tmp_path)]
        assert main(arguments) == 0
        assert "gustafsson" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--cells", "mine"], "a cell must be one of"),
            (["--datasets", "mine"], "a data set must be one of"),
            (["--report-only"], "holds no record"),
            (["--points", "nowhere"], "gustafsson_train.csv is not there"),
            (["--backend", "mine"], "the backend must be one of 'loky', 'ray', 'dask'"),
            (["--runs", "0"], "runs must be at least 1"),
            (["--epochs", "0"], "epochs must be at least 1"),
        ],
    )
    def test_a_mistake_ends_in_a_sentence(self, arguments: list[str], message: str, tmp_path: Path, capsys):
        assert main(["reproduce", "table1", "--quiet", "--out", str(tmp_path), *arguments]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_worker_of_ray_that_is_killed_costs_no_run(tmp_path: Path, monkeypatch):
    ray = pytest.importorskip("ray", reason="pip install ebreg[ray]")
    # Workers are processes of their own, and must find this file.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        runs = TABLE1.runs(QUICK, ["gustafsson"], 2)
        job = Fragile(tmp_path / "records", epochs=1)
        complete(runs, job, n_jobs=2, backend="ray", progress=False)
    finally:
        ray.shutdown()
    assert (tmp_path / "killed").exists()
    alone = [values(ToyJob(tmp_path / "alone", epochs=1)(run)) for run in runs]
    assert [values(job.recorded(run)) for run in runs] == alone
