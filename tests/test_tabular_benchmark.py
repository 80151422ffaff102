"""``python -m benchmarks.tabular``: its tables, scores, store and report."""

import ast
import csv
import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from benchmarks.tabular import __main__ as command
from benchmarks.tabular import registry, runs, scores, tables
from benchmarks.tabular.ours import Ours
from benchmarks.tabular.predicted import Gaussian, QuantileFunction
from benchmarks.tabular.report import markdown, summary_rows
from benchmarks.tabular.rivals.boosted_quantiles import BoostedQuantiles
from benchmarks.tabular.rivals.catboost_normal import CatBoostNormal
from benchmarks.tabular.rivals.deep_ensemble import DeepEnsemble, MixturePredicted
from benchmarks.tabular.rivals.forest import QuantileForest
from benchmarks.tabular.rivals.ngboost_normal import NGBoostNormal, NGBoostStopped
from benchmarks.tabular.rivals.spline_flow import SplineFlow
from benchmarks.tabular.rivals.training import Training
from benchmarks.tabular.runs import Key, Run
from benchmarks.tabular.scores import Answers, Scores
from benchmarks.tabular.summary import Mean, RankTable, ranks
from ebreg import metrics

STEPS = Training(learning_rates=(0.001, 0.01), max_steps=150, patience=100)
# Every rival, as small as it can be and still learn the data below.
SMALL = {
    NGBoostStopped: NGBoostStopped(n_estimators=60, learning_rate=0.1),
    NGBoostNormal: NGBoostNormal(n_estimators=40, learning_rate=0.1),
    CatBoostNormal: CatBoostNormal(iterations=100, learning_rates=(0.1,)),
    DeepEnsemble: DeepEnsemble(n_members=2, width=16, training=STEPS),
    SplineFlow: SplineFlow(transforms=1, width=16, training=STEPS),
    BoostedQuantiles: BoostedQuantiles(levels=(0.05, 0.25, 0.5, 0.75, 0.95), max_iter=50),
    QuantileForest: QuantileForest(n_estimators=20),
}


def data(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, 50 + 20 * X[:, 0] + rng.normal(size=n)


def write_table(folder: Path, n_splits: int = 2, n: int = 60) -> Path:
    """A table in files: two features, a column that is not used, and the target in the third column."""
    X, y = data(n)
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", np.column_stack([X[:, 0], X[:, 1], y, np.full(n, 7.0)]))
    np.savetxt(folder / "index_features.txt", [0, 1], fmt="%d")
    np.savetxt(folder / "index_target.txt", [2], fmt="%d")
    for i in range(n_splits):
        order = np.random.default_rng(i).permutation(n)
        np.savetxt(folder / f"index_train_{i}.txt", order[:50], fmt="%d")
        np.savetxt(folder / f"index_test_{i}.txt", order[50:], fmt="%d")
    return folder


# Tables


def test_a_folder_of_tables_is_read(tmp_path):
    write_table(tmp_path / "larger", n=80)
    write_table(tmp_path / "small")
    found = tables.read_tables(tmp_path)
    assert list(found) == ["small", "larger"]
    train, test = found["small"].split(1)
    X, y = data(60)
    order = np.random.default_rng(1).permutation(60)
    np.testing.assert_allclose(train.X, X[order[:50]])
    np.testing.assert_allclose(test.y, y[order[50:]])
    assert sorted(found["small"].splits) == [0, 1]


def damage(name: str, text: str | None):
    def apply(folder: Path) -> None:
        if text is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(text)

    return apply


@pytest.mark.parametrize(
    ("apply", "sentence"),
    [
        (damage("index_target.txt", None), "index_target.txt cannot be read"),
        (damage("index_target.txt", "1 2"), "names 2 columns; it must name one"),
        (damage("index_features.txt", "0\n9"), "whole numbers from 0 to 3"),
        (damage("index_test_0.txt", "1.5"), "whole numbers from 0 to 59"),
        (damage("index_test_1.txt", None), "index_test_1.txt cannot be read"),
        (damage("data.txt", "1 2 3 4\n1 2 x 4"), "data.txt must hold numbers"),
        (damage("data.txt", "1 2 nan 4\n1 2 3 4"), "values that are not finite"),
        (
            lambda folder: damage("index_test_0.txt", (folder / "index_train_0.txt").read_text())(folder),
            "test rows among",
        ),
    ],
)
def test_a_bad_folder_is_an_error_in_one_sentence(tmp_path, capsys, apply, sentence):
    apply(write_table(tmp_path / "data" / "toy"))
    assert command.main(["--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error


def test_bad_options_are_errors_in_one_sentence(tmp_path, capsys):
    write_table(tmp_path / "data" / "toy")

    def error(*arguments: str) -> str:
        assert command.main(["--data", str(tmp_path / "data"), "--out", str(tmp_path), *arguments]) == 2
        return capsys.readouterr().err

    assert "--tables has 'you'; choose from 'toy'" in error("--tables", "you")
    assert "--methods has 'me'; choose from 'EnergyRegressor'" in error("--methods", "me")
    assert "--splits has 5, but the table toy has the splits 0, 1" in error("--splits", "0", "5")
    assert command.main(["--data", str(tmp_path / "out"), "--out", str(tmp_path)]) == 2
    assert "has no table" in capsys.readouterr().err


def test_bundled_tables_have_the_same_splits_every_time():
    first, second = tables.bundled_tables(), tables.bundled_tables()
    assert list(first) == ["diabetes", "friedman1", "friedman2", "friedman3"]
    for name, table in first.items():
        train, test = table.split(3)
        np.testing.assert_array_equal(train.X, second[name].split(3)[0].X)
        assert len(train.y) + len(test.y) == len(table.rows.y)
        assert not np.array_equal(train.y, table.split(4)[0].y)


# Scores


def test_crps_meets_the_closed_form_of_a_normal_distribution():
    z = np.linspace(-4, 4, 81)
    normal = Gaussian(np.full(81, 3.0), np.full(81, 2.0))
    ours = scores.crps_of(normal.quantile(scores.CRPS_LEVELS), 3 + 2 * z)
    exact = 2 * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))
    np.testing.assert_allclose(ours, exact, rtol=3e-3)
    # The mean over targets that follow the distribution, 2 / sqrt(pi), is closer.
    weights = norm.pdf(z) / norm.pdf(z).sum()
    assert (weights * ours).sum() == pytest.approx(2 / math.sqrt(math.pi), rel=1e-3)


def test_scores_agree_with_the_metrics_of_the_library():
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    mixture = MixturePredicted(means, torch.full_like(means, 0.5))
    y = torch.randn(50, generator=generator, dtype=torch.float64).numpy()
    dist = mixture._mixture
    found = Scores.of(Answers.of(mixture, y), y)
    y = torch.from_numpy(y)[:, None]
    assert found.nll == pytest.approx(metrics.nll(dist, y).mean().item())
    assert found.worst_nll == pytest.approx(metrics.nll(dist, y).max().item())
    assert found.crps == pytest.approx(metrics.crps(dist, y).mean().item(), rel=2e-3)
    assert found.coverage == pytest.approx(metrics.coverage(dist, y))
    assert found.calibration_error == pytest.approx(metrics.calibration_error(dist, y))
    assert found.rmse == pytest.approx((dist.mean - y).square().mean().sqrt().item())


def test_quantiles_are_sorted_interpolated_and_constant_beyond_their_ends():
    crossing = np.array([[0.0], [3.0], [2.0]])
    given = QuantileFunction(np.array([0.1, 0.5, 0.9]), crossing, mean=np.array([2.0]))
    at = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.95])
    np.testing.assert_allclose(given.quantile(at)[:, 0], [0, 0, 1, 2, 2.5, 3])


def test_a_method_without_a_density_has_no_nll():
    _, y = data(30)
    given = QuantileFunction(np.array([0.1, 0.9]), np.stack([y - 1, y + 1]), mean=y)
    found = Scores.of(Answers.of(given, y), y)
    assert math.isnan(found.nll)
    assert math.isnan(found.worst_nll)
    assert (found.coverage, found.width, found.rmse) == (1.0, pytest.approx(2.0), 0.0)


# Methods


def test_every_rival_has_a_small_one_here():
    assert set(SMALL) == {type(rival) for rival in registry.RIVALS}


@pytest.mark.parametrize("rival", SMALL.values(), ids=lambda rival: rival.name)
def test_a_rival_learns_and_answers_in_the_units_of_y(rival):
    for package in rival.packages:
        name = {"scikit-learn": "sklearn"}.get(package, package.replace("-", "_"))
        pytest.importorskip(name, reason=f"{rival.name} needs {package}, of the extra 'bench'")
    X, y = data()
    X_test, y_test = data(seed=1)
    found = Scores.of(Answers.of(rival.fit(X, y, 0)(X_test), y_test), y_test)
    # The noise has standard deviation 1, the targets 11.6: an answer in standard units fails.
    assert found.rmse < 4
    assert found.crps < 2.5
    assert 0.5 < found.coverage <= 1
    if not math.isnan(found.nll):
        assert 1.3 < found.nll < 3.0  # the noise alone has 1.42, the targets by themselves 3.9


def test_the_quantiles_and_the_density_of_a_flow_agree():
    pytest.importorskip("zuko", reason="spline flow needs zuko, of the extra 'bench'")
    X, y = data(120)
    at = np.linspace(0, 100, 4001)
    flow = SMALL[SplineFlow].fit(X, y, 0)(np.repeat(X[:1], len(at), axis=0))
    cdf = np.exp(flow.log_prob(at)).cumsum() * (at[1] - at[0])
    levels = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(np.interp(flow.quantile(levels)[:, 0], at, cdf), levels, atol=0.01)


def test_rows_of_ours_are_named_as_they_are_called():
    plain, labelled = registry.methods(), registry.methods("0.1")
    assert "MixtureDensityRegressor(teacher=None)" in plain
    assert "EnergyRegressor 0.1" in labelled
    assert "NGBoost" in labelled  # rivals carry no label
    assert "learning_rate=0.01" in registry.settings(NGBoostNormal())


def test_an_estimator_of_ours_is_fitted_with_its_arguments():
    X, y = data(60)
    method = Ours("MixtureDensityRegressor", {"teacher": None, "max_iter": 3})
    predicted = method.fit(X, y, 0)(X)
    found = Scores.of(Answers.of(predicted, y), y)
    assert all(math.isfinite(getattr(found, each.name)) for each in fields(found))


# Runs


@dataclass(frozen=True)
class Constant:
    """A method that says the same of every row, and counts its fits."""

    shift: float = 0.0
    name = "constant"
    packages = ("numpy",)

    def fit(self, X, y, seed):
        FITS.append(seed)
        if seed == 13:
            raise FloatingPointError("unlucky")
        mean, std = y.mean() + self.shift, y.std()
        return lambda X: Gaussian(np.full(len(X), mean), np.full(len(X), std))


FITS: list[int] = []


@pytest.fixture
def tabular(tmp_path, monkeypatch):
    """The command with a method that costs nothing; returns its exit status."""
    write_table(tmp_path / "data" / "toy")
    FITS.clear()
    monkeypatch.setattr(registry, "methods", lambda label="": {"constant": Constant()})
    common = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    n_threads = torch.get_num_threads()
    yield lambda *arguments: command.main([*common, *arguments])
    torch.set_num_threads(n_threads)


def test_finished_runs_are_not_repeated(tabular, tmp_path):
    assert tabular("--splits", "0") == 0
    assert len(FITS) == 1
    first = (tmp_path / "out" / "runs.csv").read_text()
    assert tabular("--splits", "0", "1", "--seeds", "0", "5") == 0
    assert FITS == [0, 5, 0, 5]
    again = (tmp_path / "out" / "runs.csv").read_text()
    assert again.startswith(first)
    assert tabular("--splits", "0", "1", "--seeds", "0", "5") == 0
    assert len(FITS) == 4
    assert (tmp_path / "out" / "runs.csv").read_text() == again


def test_a_failed_run_is_reported_and_tried_again(tabular, tmp_path, capsys):
    assert tabular("--splits", "0", "--seeds", "13", "1") == 1
    assert "unlucky" in capsys.readouterr().err
    assert [key.seed for key in runs.Store(tmp_path / "out").read()] == [1]
    assert tabular("--splits", "0", "--seeds", "13", "1") == 1
    assert FITS == [13, 1, 13]


def test_a_killed_run_leaves_the_finished_ones(tabular, tmp_path, monkeypatch):
    assert tabular("--splits", "0") == 0
    stored = (tmp_path / "out" / "runs.csv").read_text()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        tabular("--splits", "1")
    assert (tmp_path / "out" / "runs.csv").read_text() == stored
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"runs.csv", "tabular.md", "summary.csv"}


def test_runs_with_other_settings_are_not_mixed(tabular, monkeypatch, capsys):
    assert tabular("--splits", "0") == 0
    monkeypatch.setattr(registry, "methods", lambda label="": {"constant": Constant(shift=1.0)})
    assert tabular("--splits", "1") == 2
    assert "other settings (shift=0) than now (shift=1)" in capsys.readouterr().err


def test_a_file_of_other_columns_is_refused(tabular, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "runs.csv").write_text("a,b\n1,2\n")
    assert tabular("--splits", "0") == 2
    assert "has other columns" in capsys.readouterr().err


def test_a_run_survives_the_file():
    run = made("toy", 1, "me", nll=-1.25, crps=0.5)
    assert Run.from_row(run.as_row()) == run
    assert math.isnan(Run.from_row(made("toy", 1, "me", nll=math.nan, crps=1).as_row()).scores.nll)


def test_the_report_alone_needs_no_data(tabular, tmp_path):
    assert tabular("--splits", "0", "1") == 0
    (tmp_path / "out" / "tabular.md").unlink()
    assert command.main(["--report-only", "--out", str(tmp_path / "out")]) == 0
    assert "## toy: 50 training and 10 test rows" in (tmp_path / "out" / "tabular.md").read_text()
    assert len(FITS) == 2


# Report


def made(table: str, split: int, method: str, nll: float, crps: float, seed: int = 0) -> Run:
    others = {"rmse": 1.0, "coverage": 0.9, "width": 2.0, "calibration_error": 0.1, "correction": 0.05}
    values = Scores(nll, crps, worst_nll=nll, worst_crps=3.0, **others)
    return Run(Key(table, split, method, seed), 90, 10, values, 1.0, 0.5, "package 1.0", "a=1")


HAND_MADE = [
    *(made("one", split, "a", 1.0 + split, 3.0) for split in (0, 1)),
    *(made("one", split, "b", 2.0 + split, 2.0) for split in (0, 1)),
    *(made("one", split, "no density", math.nan, 1.0) for split in (0, 1)),
    made("two", 0, "a", 5.0, 1.0),
    made("two", 1, "a", 100.0, 1.0),  # b lacks this split: it must not count
    made("two", 0, "b", 6.0, 1.0),
    made("two", 0, "no density", math.nan, 9.0),
    made("one", 0, "elsewhere", 0.0, 0.0),
]


def test_ranks_share_ties_and_skip_nan():
    assert ranks({"a": 3.0, "b": 1.0, "c": 3.0, "d": math.nan, "e": math.inf}) == {
        "a": 2.5,
        "b": 1.0,
        "c": 2.5,
        "e": 4.0,
    }


def test_ranks_are_those_of_shared_splits_and_of_methods_on_every_table():
    by_nll = RankTable.of(HAND_MADE, lambda run: run.scores.nll)
    assert by_nll.by_table == {"one": {"a": 1.0, "b": 2.0}, "two": {"a": 1.0, "b": 2.0}}
    assert by_nll.splits == {"one": [0, 1], "two": [0]}
    assert by_nll.left_out == ["elsewhere"]
    by_crps = RankTable.of(HAND_MADE, lambda run: run.scores.crps)
    assert by_crps.by_table["one"] == {"no density": 1.0, "b": 2.0, "a": 3.0}
    assert by_crps.by_table["two"] == {"no density": 3.0, "b": 1.5, "a": 1.5}
    assert by_crps.average == {"b": 1.75, "no density": 2.0, "a": 2.25}


def test_means_are_over_splits_and_seeds_within_them():
    several = [made("one", 0, "a", 1.0, 1.0, seed) for seed in range(3)] + [made("one", 1, "a", 4.0, 1.0)]
    mean = Mean.over_splits(several, lambda run: run.scores.nll)
    assert mean == Mean(2.5, pytest.approx(1.5), 2)  # standard deviation 3 / sqrt(2), over sqrt(2)
    single = Mean.over_splits(several[-1:], lambda run: run.scores.nll)
    assert single.mean == 4.0
    assert math.isnan(single.error)


def test_the_report_shows_means_ranks_settings_and_spread():
    extra = [made("yacht", split, "NGBoost", 0.25, 1.0) for split in (0, 1)]
    seeds = [made("one", 0, "a", 3.0, 3.0, seed=1)]
    text = markdown([*HAND_MADE, *extra, *seeds], "the command")
    assert "| a | 2 | 2.00 ± 0.00 |" in text  # means 2 and 2: the two seeds of split 0 are averaged
    assert "| no density | 2 |  | 1.00 ± 0.00 |" in text
    assert "| yacht | 2 | 0.25 ± 0.00 | 0.20 | +0.05 |" in text
    assert "| one | a | 0 | 2 | 2.000 ± 1.414 (1.000 to 3.000) |" in text
    assert "| a | package 1.0 | a=1 |" in text


def test_the_best_is_bold_and_the_summary_has_the_ranks():
    text = markdown(HAND_MADE, "the command")
    lines = [line for line in text.splitlines() if line.startswith("| b | 2 |")]
    assert lines[0].startswith("| b | 2 | 2.50 ± 0.50 | 2.00 ± 0.00 |")
    assert "| elsewhere | 1 | **0.00** | **0.00** |" in text
    assert "Without a rank by NLL, as they were not run on every table: elsewhere." in text
    rows = {(row["table"], row["method"]): row for row in summary_rows(HAND_MADE)}
    assert rows["two", "a"]["crps_rank"] == "1.5"
    assert rows["one", "no density"]["nll_rank"] == "nan"


def test_the_store_is_a_plain_csv_file(tmp_path):
    store = runs.Store(tmp_path)
    for run in HAND_MADE:
        store.add(run)
    store.add(replace(HAND_MADE[0], fit_seconds=7.0))
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(HAND_MADE)
    assert rows[0]["fit_seconds"] == "7"
    assert list(rows[0]) == runs.COLUMNS


def test_importing_the_command_needs_no_rival_and_no_version_of_ebreg():
    # So an older checkout of ebreg, or an environment without the extra, can be measured.
    folder = Path(command.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            packages = {name.split(".")[0] for name in names}
            assert not packages & {"catboost", "ebreg", "ngboost", "quantile_forest", "zuko"}, path
