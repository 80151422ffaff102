"""``python -m benchmarks.growth``: every factor is measured once, and drawn."""

import csv
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks.growth import __main__ as command
from benchmarks.growth.case import FULL, METHODS, QUICK, Case
from benchmarks.growth.store import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("growth")
    command.main(["--quick", "--out", str(folder)])
    return folder


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "runs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("factor", QUICK.values)
def test_every_factor_has_its_rows(folder, factor):
    names = [name for name in METHODS if factor != "n_draws" or "Energy" in name]
    for name in names:
        values = {row[factor] for row in rows(folder) if row["method"] == name}
        assert values >= {str(value) for value in QUICK.values[factor]}
    assert all(float(row["fit"]) > 0 and float(row["predict_interval"]) > 0 for row in rows(folder))
    assert f"## {factor}\n" in (folder / "growth.md").read_text()


def test_a_finished_measurement_is_not_repeated(folder, monkeypatch):
    before, last = (folder / "runs.csv").read_text(), rows(folder)[-1]
    lines = before.splitlines(keepends=True)
    (folder / "runs.csv").write_text("".join(lines[:-1]))
    measured, measure = [], Case.measure
    monkeypatch.setattr(command, "METHODS", ())  # whose first calls are not kept
    monkeypatch.setattr(Case, "measure", lambda case: measured.append(case) or measure(case))
    command.main(["--quick", "--out", str(folder)])
    assert [case.method for case in measured] == [last["method"]]
    assert (folder / "runs.csv").read_text().splitlines()[:-1] == before.splitlines()[:-1]
    assert len(rows(folder)) == len(lines) - 1


def test_the_picture_is_drawn(folder):
    assert (folder / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert "(growth.png)" in (folder / "growth.md").read_text()


def test_one_factor_varies():
    cases = list(FULL)
    assert len(cases) == len(set(cases))
    for factor in FULL.values:
        for case in FULL.cases(factor, "EnergyRegressor()").values():
            others = {name: value for name, value in vars(case).items() if name not in (factor, "method")}
            assert others.items() <= vars(FULL.base).items()


def test_a_file_with_other_columns_is_refused(tmp_path):
    (tmp_path / "runs.csv").write_text("method,seconds\n")
    with pytest.raises(ValueError, match="other columns"):
        Store(tmp_path)
