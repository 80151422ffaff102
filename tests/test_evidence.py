"""The page of evidence, and the benchmark of trained models."""

from pathlib import Path

import pytest

from benchmarks.csv_store import CsvStore
from benchmarks.evidence import coverage_tables, hidden_mode_tables
from benchmarks.evidence.page import page
from benchmarks.tabular.tables import bundled_tables
from benchmarks.trained import runs as trained
from benchmarks.trained.report import report
from benchmarks.trust.cases import CASES

ROOT = Path(__file__).parents[1]


def test_the_page_is_that_of_the_results():
    assert (ROOT / "docs" / "trust.md").read_text(encoding="utf-8") == page(ROOT / "results"), (
        "run python -m benchmarks.evidence"
    )


def test_every_case_has_a_family():
    for case in CASES:
        assert any(case.name.startswith(family) for family in hidden_mode_tables.FAMILIES)


def test_missing_results_are_named(tmp_path):
    for label in ("before", "now"):
        (tmp_path / label).mkdir()
    with pytest.raises(ValueError, match="has no results of two modes, 1-D"):
        hidden_mode_tables.seen(tmp_path)


def test_coverage_of_no_runs_is_an_empty_table():
    assert coverage_tables.coverage([]).count("\n") == 1


@pytest.mark.parametrize("n_targets", [1, 2])
def test_trained_models_are_measured(n_targets, monkeypatch, tmp_path):
    monkeypatch.setitem(trained.METHODS, "quick", {"method": "joint-nce", "max_iter": 2})
    monkeypatch.setitem(trained.MOST_TEST_ROWS, n_targets, 8)
    run = trained.measure(bundled_tables()["friedman1"], n_targets, "quick")
    assert run.n_test == 8
    assert 0 < run.median_error < 0.1
    assert run.fooled == 0
    store = CsvStore(tmp_path / "runs.csv", trained.Run)
    store.add(run)
    assert list(store.read()) == [("friedman1", n_targets, "quick")]
    assert "| friedman1 |" in report([run])


def test_a_file_of_runs_that_was_cut_off_is_continued(tmp_path):
    run = trained.Run("a", 1, "m", 8, *[0.5] * 9)
    store = CsvStore(tmp_path / "runs.csv", trained.Run)
    assert store.read() == {}
    store.add(run)
    whole = store.path.read_text(encoding="utf-8")
    for text in (whole[:-30], whole[:-1], whole[:20], ""):
        store.path.write_text(text, encoding="utf-8")
        assert store.read() == {}
        store.add(run)
        assert store.path.read_text(encoding="utf-8") == whole
    other = whole.replace("n_test", "n_rows")
    store.path.write_text(other, encoding="utf-8")
    with pytest.raises(ValueError, match="has other columns than this benchmark"):
        store.read()
