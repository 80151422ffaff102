"""``python -m benchmarks.tabular.comparison``: ranks, the choice of splits, the page and its pictures."""

import math
import re
from itertools import product

import numpy as np
import pytest

from benchmarks.tabular import published, registry
from benchmarks.tabular.comparison.descriptions import DESCRIPTIONS, TREES
from benchmarks.tabular.comparison.nemenyi import critical_difference, groups
from benchmarks.tabular.comparison.pairs import Pair, lowest, where_lower
from benchmarks.tabular.comparison.ranking import Ranking
from benchmarks.tabular.comparison.selection import TABLES, Selection
from benchmarks.tabular.comparison.statements import lower_on
from benchmarks.tabular.comparison.wording import listing, mean_text, number, seconds_range, wrapped
from benchmarks.tabular.report import METRICS
from benchmarks.tabular.runs import COLUMNS, Key, Run, Store, write_rows
from benchmarks.tabular.scores import Scores
from benchmarks.tabular.summary import Mean

NLL, CRPS = METRICS["nll"].value, METRICS["crps"].value
PROTEIN = "protein-tertiary-structure"


# The Nemenyi test


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
@pytest.mark.parametrize("n_tables", [6, 30])
def test_critical_difference_is_that_of_the_tabulated_quantiles(k, q, n_tables):
    # Demšar (2006), Table 5a.
    expected = q * math.sqrt(k * (k + 1) / (6 * n_tables))
    assert critical_difference(k, n_tables) == pytest.approx(expected, rel=5e-4)


def test_critical_difference_falls_with_alpha():
    # Table 5a for 10 %: 2.920 for ten methods.
    assert critical_difference(10, 6, alpha=0.1) == pytest.approx(2.920 * math.sqrt(110 / 36), rel=5e-4)


@pytest.mark.parametrize(
    ("average", "expected"),
    [
        ({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, [["a", "b", "c"], ["b", "c", "d"]]),
        ({"d": 4.0, "b": 1.5, "a": 1.0, "c": 1.8}, [["a", "b", "c"]]),  # b and c are in the set of a
        ({"a": 1.0, "b": 4.0, "c": 7.0}, []),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, [["a", "b", "c"]]),
        ({"a": 1.0, "b": 3.0, "c": 5.5, "d": 7.0}, [["a", "b"], ["c", "d"]]),
        ({"a": 2.0, "b": 2.0, "c": 2.0}, [["a", "b", "c"]]),
    ],
)
def test_groups_are_the_largest_sets_within_the_critical_difference(average, expected):
    assert groups(average, 2.0) == expected


def test_groups_by_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(50):
        average = dict(zip("abcdefg", rng.uniform(1, 7, size=7).tolist(), strict=True))
        sets = []
        for low, high in product(average.values(), repeat=2):
            inside = {name for name, rank in average.items() if low <= rank <= high}
            if 0 <= high - low <= 2.0 and len(inside) > 1:
                sets.append(inside)
        largest = {frozenset(each) for each in sets if not any(each < other for other in sets)}
        found = groups(average, 2.0)
        assert {frozenset(each) for each in found} == largest
        assert len(found) == len(largest)


# Runs made by hand


def made(table: str, split: int, method: str, nll: float, crps: float, **other: float) -> Run:
    scores = Scores(
        nll, crps, rmse=2 * crps, coverage=0.88, width=2, calibration_error=0, worst_nll=9, worst_crps=9
    )
    version = "ebreg 9.9" if "Regressor" in method else "package 1.0"
    times = other.get("fit_seconds", 1.0), 0.5
    key = Key(table, split, method, int(other.get("seed", 0)))
    return Run(key, 900, 100, scores, *times, version, "a=1")


def store(folder, runs: list[Run]):
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "runs.csv", COLUMNS, (run.as_row() for run in runs))
    return folder


def hand_made(n_splits: int = 4) -> list[Run]:
    """Ours, a flow that is worse, a forest without a density that is better by CRPS on two tables, others."""
    runs = []
    for i, (table, split) in enumerate(product(TABLES, range(n_splits))):
        noise = 0.01 * (i % 3)
        better = table in (PROTEIN, "power-plant")
        cells = {
            "EnergyRegressor": (1.0 + noise, 2.0 + noise, 40.0),
            "MixtureDensityRegressor": (1.1 + noise, 2.1 + noise, 20.0),
            "spline flow": (1.2 + 0.5 * noise, 2.2, 90.0),
            "quantile-forest": (math.nan, 1.5 if better else 2.5 + 0.5 * noise, 2.0),
        }
        runs += [
            made(table, split, name, nll, crps, fit_seconds=time) for name, (nll, crps, time) in cells.items()
        ]
        runs.append(made(table, split, "EnergyRegressor 0.1", 0.0, 0.0))
        runs.append(made(table, split, "EnergyRegressor", -9.0, -9.0, seed=1))
        if table != PROTEIN or split == 0:  # as slow as NGBoost
            runs.append(made(table, split, "NGBoost", 1.3, 2.6, fit_seconds=500))
    return [*runs, made("yacht", 0, "CatBoost", 0.0, 0.0), made("diabetes", 0, "CatBoost", 0.0, 0.0)]


@pytest.fixture(scope="module")
def selection() -> Selection:
    return Selection.of(hand_made())


# Selection


def test_the_methods_are_those_of_all_tables_without_the_old_version(selection):
    shown = ["EnergyRegressor", "MixtureDensityRegressor", "NGBoost", "spline flow", "quantile-forest"]
    assert selection.methods == shown
    assert selection.ours == {"EnergyRegressor", "MixtureDensityRegressor"}
    assert selection.left_out == ["CatBoost"]
    assert selection.mean("yacht", "EnergyRegressor", NLL).mean > 0  # no other seed
    assert selection.with_value(NLL) == shown[:-1]


def test_a_method_with_few_splits_does_not_shrink_those_of_the_others(selection):
    assert selection.most_splits(PROTEIN) == 4
    assert selection.shared_splits(PROTEIN) == {0, 1, 2, 3}
    assert selection.ranked_splits(PROTEIN, "NGBoost") == {0}
    assert selection.ranked_splits("yacht", "NGBoost") == {0, 1, 2, 3}
    assert selection.mean(PROTEIN, "NGBoost", NLL).n_splits == 1


def test_a_method_with_three_splits_does():
    runs = [run for run in hand_made(5) if (run.key.table, run.key.method) != (PROTEIN, "NGBoost")]
    runs += [made(PROTEIN, split, "NGBoost", 1.3, 2.6) for split in (1, 2, 4)]
    runs = [
        run if run.key != Key(PROTEIN, 0, "spline flow", 0) else made(PROTEIN, 0, "spline flow", -99, -99)
        for run in runs
    ]
    chosen = Selection.of(runs)
    assert chosen.shared_splits(PROTEIN) == {1, 2, 4}
    assert chosen.ranked_mean(PROTEIN, "spline flow", NLL) > 1  # without split 0
    assert chosen.mean(PROTEIN, "spline flow", NLL).mean < -1


def test_runs_that_do_not_suffice_are_an_error():
    with pytest.raises(ValueError, match="no method was run on all of the tables yacht"):
        Selection.of([made("yacht", 0, "a", 1.0, 1.0)])
    apart = [made(table, split, str(split // 3), 1.0, 1.0) for table in TABLES for split in range(6)]
    with pytest.raises(ValueError, match="share no split"):
        Selection.of(apart).shared_splits("yacht")
    with pytest.raises(ValueError, match="ranks need 3 methods on all tables, and there are 2"):
        Ranking.of(Selection.of(apart), NLL)


# Ranks


def test_ranks_have_ties_and_only_methods_with_the_score():
    runs = [
        made(table, split, name, nll, crps)
        for name, nll, crps in [("a", 1.0, 3.0), ("b", 2.0, 3.0), ("c", 2.0, 1.0), ("d", math.nan, 2.0)]
        for table, split in product(TABLES, range(3))
    ]
    by_nll, by_crps = (Ranking.of(Selection.of(runs), value) for value in (NLL, CRPS))
    assert by_nll.average == {"a": 1.0, "b": 2.5, "c": 2.5}
    assert by_crps.average == {"c": 1.0, "d": 2.0, "a": 3.5, "b": 3.5}
    assert by_nll.by_table["yacht"] == {"a": 1.0, "b": 2.5, "c": 2.5}
    assert by_nll.critical_difference == pytest.approx(2.343 * math.sqrt(12 / 36), rel=5e-4)
    assert by_nll.groups == [["b", "c"]]  # 1.5 is more than 1.35


def test_friedman_meets_its_closed_form():
    # Three methods in the same order on six tables: chi² = 12 with two degrees of freedom.
    ranking = Ranking({table: {"a": 1.0, "b": 2.0, "c": 3.0} for table in TABLES})
    assert ranking.p_value == pytest.approx(math.exp(-6))


# Other methods beside ours


def test_pairs_are_on_the_splits_of_both(selection):
    pair = Pair.of(selection, PROTEIN, "NGBoost", CRPS)
    assert pair.difference.n_splits == pair.ours.n_splits == 1
    assert pair.difference.mean == pytest.approx(pair.theirs.mean - pair.ours.mean)
    assert not pair.is_lower
    assert not pair.is_clear  # one split has no standard error
    forest = Pair.of(selection, PROTEIN, "quantile-forest", CRPS)
    assert forest.is_lower
    assert forest.is_clear
    assert (forest.their_seconds, forest.our_seconds) == (2.0, 40.0)


def test_pairs_without_a_common_split_have_no_value():
    runs = [run for run in hand_made() if (run.key.table, run.key.method) != (PROTEIN, "NGBoost")]
    pair = Pair.of(Selection.of([*runs, made(PROTEIN, 7, "NGBoost", 0.0, 0.0)]), PROTEIN, "NGBoost", CRPS)
    assert math.isnan(pair.difference.mean)
    assert not pair.is_lower


def test_an_nll_is_compared_in_nats_and_a_crps_in_percent():
    pair = Pair("yacht", "b", Mean(1.5, 0.1, 5), Mean(2.0, 0.1, 5), Mean(-0.5, 0.3, 5), 1.0, 2.0)
    assert "one of the six tables: yacht (`b`, by 0.500 nats)" in lower_on([pair], "NLL", in_nats=True)
    text = lower_on([pair], "CRPS")
    assert "yacht (`b`, by 25 %)" in text
    assert text.endswith("larger than two standard errors on none of them.")


def test_the_lowest_of_the_others_and_where_it_is_better(selection):
    assert {pair.table: pair.method for pair in lowest(selection, CRPS)} == {
        table: "quantile-forest" if table in (PROTEIN, "power-plant") else "spline flow" for table in TABLES
    }
    quick = lowest(selection, CRPS, share_of_time=0.1)
    assert {pair.method for pair in quick} == {"quantile-forest"}
    assert lowest(selection, CRPS, share_of_time=0.01) == []
    assert [pair.table for pair in where_lower(selection, "quantile-forest", CRPS)] == [
        "power-plant",
        PROTEIN,
    ]
    assert where_lower(selection, "spline flow", NLL) == []


# Wording


def test_numbers_and_lists_read_well():
    assert (number(3), number(14)) == ("three", "14")
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert (seconds_range([0.24, 12.4]), seconds_range([3.01, 3.02])) == ("0.2 to 12", "3.0")
    assert mean_text(Mean(1.23456, 0.1, 5), bold=True, most=5) == "**1.235** ± 0.100"
    assert mean_text(Mean(1.0, math.nan, 1), most=5) == "1.000 (1)"
    assert mean_text(Mean(math.nan, math.nan, 0)) == ""


def test_paragraphs_and_lists_are_filled_and_tables_are_not():
    long = "word " * 60
    table = f"| {long} |\n| --- |"
    text = wrapped(f"# Title\n\n{long}\n\n- {long}\n  more\n- short\n\n\n{table}\n")
    lines = text.splitlines()
    assert max(len(line) for line in lines if not line.startswith("|")) <= 136
    assert text.endswith(f"{table}\n")
    assert [line[:6] for line in lines if line.startswith("- ")] == ["- word", "- shor"]
    assert wrapped(text) == text


# The page


@pytest.fixture(scope="module")
def command():
    pytest.importorskip("matplotlib", reason="the pictures need matplotlib, of the extra 'plots'")
    from benchmarks.tabular.comparison import __main__

    return __main__


@pytest.fixture(scope="module")
def written(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    store(folder / "runs", hand_made())
    assert command.main(["--runs", str(folder / "runs"), "--out", str(folder / "docs")]) == 0
    return folder


def test_the_page_has_every_method_in_every_table(written, selection):
    text = (written / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert not re.search(r"\$\w|\bnan\b|\binf\b|\{|\}", text)
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE))
    for title in ("What was compared, and how", "CRPS", "Coverage of 90 % intervals", "CPU seconds of a fit"):
        for name in selection.methods:
            assert f"\n| `{name}` |" in sections[title], (title, name)
    assert all(f"\n| `{name}` |" in sections["NLL"] for name in selection.with_value(NLL))
    assert "\n| `quantile-forest` |" not in sections["NLL"]
    assert "0.1`" not in text
    for value, name in published.LOWEST_NLL.values():
        assert f"{value:.2f}, {name}" in sections["NLL"]


def test_the_page_says_what_the_runs_say(written):
    text = " ".join((written / "docs" / "comparison.md").read_text(encoding="utf-8").split())
    assert "On protein, fewer than 4 splits: `NGBoost` 1." in text
    assert "Ranked by the mean of fewer than three splits: `NGBoost` on protein." in text
    assert "Left out, as they were not run on all tables: `CatBoost`." in text
    assert "Without a density: `quantile-forest`." in text
    assert "2.600 (1) |" in text
    assert "By NLL, no other method is lower than ours on any of the six tables." in text
    assert "By CRPS, another method is lower than ours on two of the six tables: power" in text
    assert "**By CRPS** (five methods)" in text
    assert f"The critical difference is {critical_difference(5, 6):.2f} ranks." in text
    assert "`quantile-forest`: lower CRPS on power (by 25 %) and protein (by 25 %)." in text
    assert "| `quantile-forest` | **power**, **protein** | no density | 2.0 |" in text


def test_the_pictures_show_something(written):
    from matplotlib.image import imread

    for name in ("critical-difference", "cost-quality"):
        picture = imread(written / "docs" / "images" / f"{name}.png")[..., :3]
        assert min(picture.shape[:2]) > 400
        assert len(np.unique(picture @ np.array([1, 256, 65536]))) > 50  # colours
        ink = (picture < 0.9).any(axis=-1)
        assert 0.01 < ink.mean() < 0.5
        for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]):
            assert not edge.any()  # nothing is cut off


def test_the_same_runs_give_the_same_files(command, written):
    runs = Store(written / "runs").read()
    store(written / "again", list(runs.values())[::-1])
    assert command.main(["--runs", str(written / "again"), "--out", str(written / "docs-again")]) == 0
    for name in ("comparison.md", "images/critical-difference.png", "images/cost-quality.png"):
        assert (written / "docs" / name).read_bytes() == (written / "docs-again" / name).read_bytes(), name


def test_missing_runs_are_an_error_in_one_sentence(command, tmp_path, capsys):
    assert command.main(["--runs", str(tmp_path / "nothing"), "--out", str(tmp_path / "docs")]) == 2
    assert "has no runs.csv" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
    without = [run for run in hand_made() if run.key.method != "EnergyRegressor"]
    store(tmp_path / "runs", [*without, *(made(t, 0, "deep ensemble", 1.0, 1.0) for t in TABLES)])
    assert command.main(["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "docs")]) == 2
    assert "EnergyRegressor was not run on all tables" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()


def test_every_method_has_a_description():
    assert set(DESCRIPTIONS) == set(registry.methods())
    assert set(TREES) <= set(DESCRIPTIONS)
    assert set(published.LOWEST_NLL) == set(TABLES)
