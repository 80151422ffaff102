"""``python -m benchmarks.speed``: its tables with tiny sizes, and the choice of the fit that predicts."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import __main__ as bench
from benchmarks.speed import __main__ as command
from benchmarks.speed import child, table
from benchmarks.speed.corrected import N_SEEDS, corrected, n_corrected
from benchmarks.speed.data import QUICK, Sizes
from benchmarks.speed.timing import threads


@pytest.fixture
def children(monkeypatch) -> list[tuple]:
    """The calls of child processes, which are answered in this one."""
    calls: list[tuple] = []

    def run(module, function, sizes, checkout=child.ROOT):
        calls.append((module, function, checkout))
        return getattr(importlib.import_module(f"benchmarks.speed.{module}"), function)(sizes)

    monkeypatch.setattr(child, "run", run)
    return calls


def fitted(*is_zero: bool) -> SimpleNamespace:
    return SimpleNamespace(model_=SimpleNamespace(energy=SimpleNamespace(is_zero=torch.tensor(is_zero))))


# Tables


def test_the_tables_are_printed_and_written(children, capsys, tmp_path):
    pytest.importorskip("ngboost")
    command.main(
        ["--quick", "--seeds", "1", "--before", str(child.ROOT), "--out", str(tmp_path / "speed.md")]
    )
    text = (tmp_path / "speed.md").read_text()
    assert capsys.readouterr().out.strip() == text.strip()
    assert children == [("predictions", "of_version", child.ROOT), ("memory", "one_pass", child.ROOT)]
    for words in (
        "The energy is that of seed 0.",
        "| EnergyRegressor, regions, milliseconds a row | ",
        "|  | now | before | times faster |",
        "99.9 % quantile over rows",
        "CPU seconds, one thread",
        "wall-clock seconds, threads: 1",
        '| EnergyRegressor(preset="fast") | ',
        "The same with 3 targets",
        "MB more",
    ):
        assert words in text, words


def test_a_folder_without_a_version_is_refused(tmp_path):
    with pytest.raises(SystemExit):
        command.main(["--quick", "--before", str(tmp_path)])


@pytest.mark.slow
def test_another_version_is_measured_in_a_process_of_its_own():
    seed, times = child.run("predictions", "of_version", QUICK, child.ROOT)
    assert seed == 0
    assert all(seconds > 0 for seconds in times.values())
    with pytest.raises(RuntimeError, match="no_such_module"):
        child.run("no_such_module", "of_version", QUICK)


def test_make_bench_ends_with_them(monkeypatch):
    seen = []
    for module in ("imports", "heads", "images", "predictions", "trainings"):
        monkeypatch.setattr(getattr(bench, module), "run", list)
    monkeypatch.setattr(bench.speed, "main", seen.append)
    bench.main()
    assert seen == [["--seeds", "2"]]


# The fit that predicts


def test_the_first_fit_with_a_correction_is_taken():
    model, seed = corrected(lambda seed: fitted(True, seed < 3))
    assert seed == 3
    assert n_corrected(model) == 1


def test_the_first_fit_of_a_version_without_corrections_is_taken():
    assert corrected(lambda seed: SimpleNamespace(model_=SimpleNamespace(energy=None)))[1] == 0


def test_without_any_it_gives_up():
    tried = []
    with pytest.raises(RuntimeError, match="correction"):
        corrected(lambda seed: tried.append(seed) or fitted(True, True))
    assert tried == list(range(N_SEEDS))
    assert corrected(lambda seed: fitted(True), required=False)[1] == 0


# Data and threads


@pytest.mark.parametrize("n_columns", [2, 4, 12, 64])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_shapes(n_columns, n_targets):
    X, y = table(20, n_targets, n_columns=n_columns)
    assert X.shape == (20, n_columns)
    assert y.shape == ((20,) if n_targets == 1 else (20, 3))
    np.testing.assert_array_equal(table(20, n_targets, n_columns=n_columns)[1], y)


def test_the_default_settings_are_left_to_the_regressors():
    assert Sizes().of_fits == {}  # version 0.1 has no max_iter=None


def test_the_number_of_threads_is_restored():
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
