"""The image tables: reports in the paper's layout, and one command for all of them."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ebreg import cli, plots
from ebreg.cli import image_options
from ebreg.datasets.images import IMAGE_TASKS, write_hdf5
from ebreg.experiments import report, runner
from ebreg.experiments.experiment import Result
from ebreg.experiments.images import ImageExperiment, ImageSource, runs_figure
from ebreg.experiments.mean_std import MeanStd
from ebreg.experiments.settings import Setting
from ebreg.experiments.summaries import summarize
from ebreg.experiments.tables import IMAGE_TABLES, TABLES, Table
from image_commands import SMALL, parsed


@dataclass(frozen=True)
class Images:
    name: str
    is_published: bool
    description: str = "some images"


@dataclass(frozen=True)
class Run:
    setting: Setting
    source: Images
    seed: int

    @property
    def key(self) -> str:
        return f"{self.source.name}.{self.setting.name}.{self.seed:02d}"


def runs(
    table: Table, name: str, values: Sequence[float | None], task: str, published: bool = False
) -> list[Result]:
    """Finished runs with these values on the paper's grid; None for a failed one."""
    facts: dict[str, Any] = {"versions": {"ebreg": "0"}, "seconds": 2.0, "cpu_seconds": 1.0}
    results = []
    for seed, value in enumerate(values):
        metrics = {"failure": "it broke"} if value is None else {"on_grid": value, "predictive": value}
        run = Run(table.settings[name], Images(task, published), seed)
        results.append(Result(run, facts | metrics))
    return results


def paper_table(text: str) -> list[list[str]]:
    """The cells of the first table of a report, its header first."""
    lines = [line for line in text.split("\n* ")[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]]


def report_of(table: Table, results: Sequence[Result], folder: Path) -> str:
    return report.write_report(folder, table, results, "ebreg reproduce images")[1]


FIVE, TWENTY = (1.0, 2.0, 3.0, 4.0, 5.0), tuple(float(value) for value in range(20, 0, -1))


def shifted(values: Sequence[float], shift: float) -> list[float]:
    return [value + shift for value in values]


class TestMeanStd:
    def test_it_is_the_sample_standard_deviation(self):
        values = np.random.default_rng(0).normal(size=7)
        found = MeanStd.of(values.tolist())
        assert found.mean == pytest.approx(values.mean())
        assert found.std == pytest.approx(values.std(ddof=1))
        assert MeanStd.of([2.0]) == MeanStd(2.0)

    def test_it_is_written_as_in_the_paper(self):
        assert MeanStd(1.0, 0.031).text(2) == "1.00 ± 0.03"
        assert MeanStd(1.0, 0.031).text(2, bold=True) == "**1.00** ± 0.03"
        assert MeanStd(0.04).text(3) == "0.040"


class TestLayout:
    @pytest.mark.parametrize(
        ("name", "noise", "paper"),
        [
            (
                "table2",
                ["0.1, 20", "1, 20", "2, 20", "1, 10", "1, 40"],
                "1.59 ± 0.08, 1.51 ± 0.05, 1.56 ± 0.04, 2.03 ± 0.14, **1.39** ± 0.02, 1.58 ± 0.13",
            ),
            (
                "table3",
                ["0.1, 40", "1, 40", "2, 40", "1, 20", "1, 80"],
                "2.71 ± 0.07, **2.64** ± 0.05, 2.65 ± 0.05, 3.12 ± 0.37, 2.70 ± 0.05, 2.66 ± 0.03",
            ),
            (
                "table4",
                ["0.01, 20", "0.1, 20", "1, 20", "0.1, 10", "0.1, 40"],
                "4.18 ± 0.30, **3.81** ± 0.18, 4.13 ± 0.48, 3.97 ± 0.21, 4.47 ± 0.25, 4.30 ± 0.30",
            ),
            (
                "table5",
                ["0.1, 20", "1, 20", "2, 20", "1, 10", "1, 40"],
                "13.68 ± 0.10, 10.99 ± 0.29, 10.85 ± 0.11, 10.73 ± 0.19, 11.20 ± 0.15, **9.51** ± 0.07",
            ),
        ],
    )
    def test_tables_of_one_task(self, name: str, noise: list[str], paper: str, tmp_path: Path):
        # The published row is there on the paper's images, complete although some settings have no run.
        table = TABLES[name]
        (task,) = table.datasets
        results = runs(table, "ours-4", TWENTY, task, published=True)
        results += runs(table, table.columns[1], shifted(TWENTY, 0.25), task, published=True)
        header, own, published = paper_table(report_of(table, results, tmp_path))
        assert header == ["", *(f"NCE, sigma = {sigmas}" for sigmas in noise), "Ours, K = 4"]
        # 1 to 5 are the best of 20.
        assert own == ["mean ± std of the best 5 of 20", "", "3.25 ± 1.58", "", "", "", "**3.00** ± 1.58"]
        assert published == ["paper: mean ± std of the best 5 of 20", *paper.split(", ")]

    def test_other_images_have_no_published_row(self, tmp_path: Path):
        table = TABLES["table2"]
        text = report_of(table, runs(table, "ours-4", TWENTY, "steering"), tmp_path)
        assert len(paper_table(text)) == 2
        assert "paper: mean" not in text
        assert "The paper does not say" not in text

    def test_table_6(self, tmp_path: Path):
        table = TABLES["table6"]
        results = [
            result
            for task in ("head-pose", "cells")
            for i, setting in enumerate(table.settings.values())
            if setting.applies_to(task)
            for result in runs(table, setting.name, shifted(FIVE, i / 4), task, published=task == "cells")
        ]
        header, *rows = paper_table(report_of(table, results, tmp_path))
        groups = ("MDN", "MDN + teacher", "MDN + shared teacher")
        assert header == ["data", "", *(f"{group}, K = {K}" for group in groups for K in (4, 8, 16))]
        assert [row[:2] for row in rows] == [
            ["cells", "mean ± std of 5 runs"],
            ["cells", "paper: mean ± std of the best 5 of 20"],
            ["head-pose", "mean ± std of 5 runs"],
        ]
        cells, paper, heads = (row[2:] for row in rows)
        assert [cell == "-" for cell in cells] == [False, False, True] * 3
        assert [cell == "-" for cell in paper[:6]] == [False, False, True] * 2
        assert paper[:2] == ["2.80 ± 0.09", "2.90 ± 0.06"]
        assert paper[4] == "**2.75** ± 0.06"
        assert paper[6:] == ["", "", "-"]
        assert heads == ["**3.00** ± 1.58", *(f"{3 + i / 4:.2f} ± 1.58" for i in range(1, 9))]

    def test_without_a_column_of_the_paper_there_is_a_sentence(self, tmp_path: Path):
        table = TABLES["table3"]
        text = report_of(table, runs(table, "mdn-4", FIVE, "cells"), tmp_path)
        assert "None of the columns of the paper's table has a result." in text
        assert "| MDN " in text


class TestKindsOfRuns:
    def test_five_runs_are_not_a_selection(self, tmp_path: Path):
        table = TABLES["table3"]
        text = report_of(table, runs(table, "ours-4", FIVE, "cells"), tmp_path)
        assert paper_table(text)[1] == ["mean ± std of 5 runs", *[""] * 5, "3.00 ± 1.58"]
        assert "| mean ± std of 5 runs |" in text.split("## cells")[1]
        assert "best 5 of 20" not in text
        assert "of all runs; none is selected" in text

    def test_twenty_and_five_runs_are_kept_apart(self, tmp_path: Path):
        table = TABLES["table3"]
        results = runs(table, "nce-1-40", FIVE, "cells") + runs(table, "ours-4", TWENTY, "cells")
        text = report_of(table, results, tmp_path)
        assert paper_table(text)[1:] == [
            ["mean ± std of 5 runs", "", "3.00 ± 1.58", "", "", "", ""],
            ["mean ± std of the best 5 of 20", *[""] * 5, "3.00 ± 1.58"],
        ]
        lines = [line for line in text.split("## cells")[1].splitlines() if line.startswith("|")]
        header, _, nce, ours = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
        assert header[2:4] == ["mean ± std of 5 runs", "mean ± std of the best 5 of 20"]
        assert nce[2:4] == ["3.000 ± 1.581", ""]
        assert ours[2:4] == ["", "3.000 ± 1.581"]

    def test_files_have_both(self, tmp_path: Path):
        table = TABLES["table3"]
        results = runs(table, "nce-1-40", FIVE, "cells", published=True)
        report_of(table, results + runs(table, "ours-4", TWENTY, "cells", published=True), tmp_path)
        with open(tmp_path / "table3.csv", newline="") as file:
            five, twenty = csv.DictReader(file)
        std = str(MeanStd.of(FIVE).std)
        assert (five["paper_mean"], five["paper_std"]) == ("2.64", "0.05")
        assert (five["best_5_of_20_mean"], five["best_5_of_20_std"]) == ("", "")
        assert (five["all_runs_mean"], five["all_runs_std"]) == ("3.0", std)
        assert (twenty["best_5_of_20_mean"], twenty["best_5_of_20_std"]) == ("3.0", std)
        assert twenty["all_runs_mean"] == "10.5"
        assert (five["runs"], twenty["runs"]) == ("5", "20")

    @pytest.mark.parametrize(
        ("values", "title", "text"),
        [
            ([1.0, None, 2.0], "the 2 of 3 runs that did not fail", "1.50 ± 0.71"),
            ([1.0], "1 run", "1.00"),
            # Four are not the best five of 20.
            ([1.0, 2.0, 3.0, 4.0, *[None] * 16], "the 4 of 20 runs that did not fail", "2.50 ± 1.29"),
            ([*FIVE, *[None] * 15], "the best 5 of 20", "3.00 ± 1.58"),
        ],
    )
    def test_what_a_mean_is_of(self, values: list[float | None], title: str, text: str):
        table = TABLES["table3"]
        (summary,) = summarize(table, runs(table, "ours-4", values, "cells"))
        assert summary.reported_runs == title
        assert summary.reported.text(2) == text

    def test_failures_alone_have_no_mean(self, tmp_path: Path):
        table = TABLES["table3"]
        text = report_of(table, runs(table, "ours-4", [None, None], "cells"), tmp_path)
        assert "| 2 of 2 |" in text
        assert "| mean" not in text


def test_a_metric_that_does_not_apply_has_no_panel():
    pytest.importorskip("matplotlib")
    table = TABLES["table6"]
    heads, cells = (runs(table, "mdn-4", FIVE, task) for task in ("head-pose", "cells"))
    for _, record in cells:  # counts are integers, and poses are not
        record["rounded_nll"] = record["on_grid"]
    figure = runs_figure.draw(summarize(table, heads + cells))
    assert [ax.axison for ax in figure.axes] == [True, True, True, True, True, False]
    assert figure.axes[2].get_xlabel() == "NLL of the rounding interval"
    plots.close(figure)


class TestSplits:
    def test_one_task_needs_no_name(self):
        for words in (["--split", "time"], ["--split", "age=time"]):
            (source,) = image_options.sources_of(parsed("--data", "a.h5", *words), ["age"])
            assert source == ImageSource("age", "a.h5", "time")
        # The only one of a table of several.
        (source,) = image_options.sources_of(
            parsed("--data", "age=a.h5", "--split", "time"), list(IMAGE_TASKS)
        )
        assert source.split == "time"

    def test_each_task_has_its_own(self):
        words = ["--data", "age=a.h5", "steering=b.h5", "cells=synthetic:8"]
        tasks = list(IMAGE_TASKS)
        options = parsed(*words, "--split", "steering=time", "age=halves")
        assert {source.name: source.split for source in image_options.sources_of(options, tasks)} == {
            "steering": "time",
            "cells": None,
            "age": "halves",
        }
        assert image_options.as_words(options)[-3:] == ["--split", "steering=time", "age=halves"]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["time"], r"^--split takes steering=NAME for each task of steering, age; got time$"),
            (["age=time", "age=random"], r"^--split takes .*; got age=time age=random$"),
            (["cells=time"], r"^--split cells=time is for another task than steering, age; leave it out"),
            (["age=mine"], r"^--split must be one of 'random', .*got 'mine'"),
        ],
    )
    def test_mistakes_are_sentences(self, words: list[str], message: str):
        options = parsed("--data", "age=a.h5", "steering=b.h5", "--split", *words)
        with pytest.raises(ValueError, match=message):
            image_options.sources_of(options, list(IMAGE_TASKS))

    def test_synthetic_images_are_split_already(self):
        with pytest.raises(ValueError, match="leave out the split"):
            image_options.sources_of(parsed("--data", "synthetic:8", "--split", "time"), ["cells"])


@pytest.fixture
def all_data(tmp_path: Path) -> list[str]:
    """--data of all four tasks: files with a few random images, and synthetic ones."""
    rng = np.random.default_rng(0)
    for name, y in (("steering", rng.uniform(-80, 80, 20)), ("age", rng.integers(1, 61, 20))):
        images = rng.integers(0, 256, (20, 3, 64, 64), dtype=np.uint8)
        write_hdf5(tmp_path / f"{name}.h5", images, y[:, None].astype(np.float64), IMAGE_TASKS[name])
    files = [f"{name}={tmp_path / name}.h5" for name in ("steering", "age")]
    return ["--data", *files, "cells=synthetic:8", "head-pose=synthetic:8", "--split", "steering=time"]


@pytest.fixture
def trained(monkeypatch) -> list[str]:
    """The keys of the experiments that are trained."""
    keys, train = [], ImageExperiment.train

    def counted(self, *arguments, **settings):
        keys.append(self.key)
        return train(self, *arguments, **settings)

    monkeypatch.setattr(ImageExperiment, "train", counted)
    monkeypatch.setattr(plots, "available", lambda: False)
    return keys


FEW = ["--settings", "ours-4", "mdn-4", "mdn-16", "--runs", "1", *SMALL]
FEW_KEYS = sorted(
    [f"{task}.{name}.00" for task in IMAGE_TASKS for name in ("ours-4", "mdn-4")] + ["head-pose.mdn-16.00"]
)


class TestImages:
    def test_five_reports_of_shared_records(self, all_data, trained, tmp_path: Path, capsys):
        words = ["reproduce", "images", *all_data, *FEW, "--out", str(tmp_path / "out")]
        assert cli.main(words) == 0
        out = tmp_path / "out"
        assert sorted(trained) == FEW_KEYS
        assert sorted(path.stem for path in (out / "records").glob("*.json")) == FEW_KEYS
        text = capsys.readouterr().out
        made_by = (
            "Made by `ebreg reproduce images --data steering=PATH cells=synthetic:8 age=PATH "
            "head-pose=synthetic:8 --recipe paper --split steering=time --backbone small-cnn"
        )
        for table in IMAGE_TABLES:
            written = (out / table.name / f"{table.name}.md").read_text()
            assert written in text
            assert made_by in written
            assert "| MDN " in written
        assert "20 training" not in text
        assert "16 training images and 4 test images, split: time;" in text
        header, *rows = paper_table((out / "table6" / "table6.md").read_text())
        assert [row[0] for row in rows] == list(IMAGE_TASKS)
        assert [row[header.index("MDN, K = 16")] == "-" for row in rows] == [True, True, True, False]
        # A table alone has the same records.
        assert (
            cli.main(["reproduce", "table3", "--data", "synthetic:8", *FEW[:3], *FEW[4:], "--out", str(out)])
            == 0
        )
        assert cli.main([*words, "--report-only"]) == 0
        assert len(trained) == len(FEW_KEYS)

    def test_an_interrupted_command_continues(self, all_data, trained, tmp_path: Path, monkeypatch, capsys):
        words = ["reproduce", "images", *all_data, *FEW, "--out", str(tmp_path / "out")]
        run = ImageExperiment.run

        def interrupted(self, folder):
            if len(trained) == 4:
                raise KeyboardInterrupt
            return run(self, folder)

        with monkeypatch.context() as patch:
            patch.setattr(ImageExperiment, "run", interrupted)
            assert cli.main(words) == 130
        records = tmp_path / "out" / "records"
        before = {path.name: path.stat().st_mtime_ns for path in records.iterdir()}
        assert len(before) == 8  # with their weights
        assert cli.main(words) == 0
        assert sorted(trained) == FEW_KEYS
        assert {name: (records / name).stat().st_mtime_ns for name in before} == before

    def test_what_is_trained_without_more_words(self, all_data, tmp_path: Path, monkeypatch, capsys):
        asked = []
        monkeypatch.setattr(runner, "run_missing", lambda experiments, *rest: asked.extend(experiments))
        words = ["reproduce", "images", *all_data, *SMALL, "--out", str(tmp_path / "out")]
        assert cli.main(words) == 0
        assert len({each.key for each in asked}) == len(asked)
        assert [each.seed for each in asked] == sorted(each.seed for each in asked)
        runs_of = {(e.source.name, e.setting.name): 0 for e in asked}
        for each in asked:
            runs_of[each.source.name, each.setting.name] += 1
        assert {name: n for (task, name), n in runs_of.items() if task == "age"} == {
            **dict.fromkeys(("nce-0.01-20", "nce-0.1-20", "nce-1-20", "nce-0.1-10", "nce-0.1-40"), 20),
            **dict.fromkeys(("ours-4", "mdn-4", "mdn-8", "mdn-teacher-4", "mdn-teacher-8"), 20),
            **dict.fromkeys(("mdn-shared-teacher-4", "mdn-shared-teacher-8"), 5),
        }
        assert len(runs_of) == 4 * 12 + 3
        assert (
            "Table 6: mixtures with and without an energy-based teacher: no results yet."
            in capsys.readouterr().out
        )

    def test_tasks_without_data_are_left_out(self, trained, tmp_path: Path, capsys):
        words = ["reproduce", "images", "--data", "cells=synthetic:8", *FEW, "--out", str(tmp_path)]
        assert cli.main(words) == 0
        assert sorted(trained) == ["cells.mdn-4.00", "cells.ours-4.00"]
        out = capsys.readouterr().out
        assert out.startswith(
            "Left out without their images: steering, age, head-pose; add steering=PATH age=PATH "
            "head-pose=PATH to --data to train them.\n"
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["records", "table3", "table6"]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--data", "synthetic:8"], "--data takes steering=PATH for each task of steering, cells, age"),
            (["--data", "cells=synthetic:8", "--settings", "mine"], "a setting must be one of 'all'"),
            (
                ["--data", "cells=synthetic:8", "--settings", "nce-0.01-20"],
                "no table of cells has the settings nce-0.01-20; choose others",
            ),
            (["--data", "cells=synthetic:8", "--settings", "mdn-16"], "mdn-16: trained on head-pose alone"),
            (["--data", "cells=synthetic:8", "--report-only"], "holds no record"),
            (["--data", "cells=synthetic:8", "--split", "time"], "synthetic images are split already"),
            (["--data", "cells=synthetic:8", "--runs", "0"], "runs must be at least 1"),
        ],
    )
    def test_mistakes_are_sentences(self, words: list[str], message: str, tmp_path: Path, capsys):
        assert cli.main(["reproduce", "images", *words, *SMALL, "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert re.match(f"ebreg: .*{re.escape(message)}", error)
        assert len(error.splitlines()) == 1
        assert not (tmp_path / "out").exists()
