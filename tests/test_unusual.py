"""Inputs unlike those of the training: how often usual rows are flagged, and which others are."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

import ebreg
from benchmarks import unusual as benchmark
from benchmarks.tabular.tables import bundled_tables
from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.estimators.grouping import Grouping
from ebreg.estimators.seen import SHARE, SeenInputs
from ebreg.estimators.seen.row_groups import groups_of_neighbours, nearest_rows
from ebreg.estimators.seen.tail_quantile import tail_quantile

QUICK = {"max_iter": 2, "width": 8, "n_components": 2, "random_state": 0, "verbose": False}


def normal(n: int, C: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(n, C))


def mixed(n: int, C: int, rng: np.random.Generator) -> np.ndarray:
    """Binary, constant, duplicate, collinear and heavy-tailed columns, integers, and all sorts of scales."""
    z = rng.normal(size=(n, 4))
    columns = [
        z[:, 0],
        rng.integers(0, 2, n),
        np.full(n, 7.3),
        z[:, 0],
        z[:, 1] + z[:, 2],
        z[:, 1],
        z[:, 2],
        rng.standard_t(3, n),
        rng.poisson(3, n),
        1e12 * rng.uniform(1, 2, n),
        1e-12 * rng.normal(size=n),
        (rng.uniform(size=n) < 0.05),
    ]
    return np.column_stack(columns[:C]).astype(float)


def learned(X: np.ndarray, seed: int = 0) -> SeenInputs:
    return SeenInputs.of(torch.from_numpy(X), seed)


def score(seen: SeenInputs, X: np.ndarray) -> np.ndarray:
    return seen.score(torch.from_numpy(np.asarray(X, dtype=float))).numpy()


# How often a score exceeds 1: the mean over tables varies about SHARE, more so for small tables.
@pytest.mark.parametrize(
    ("make", "n", "C", "n_tables", "most"),
    [
        (normal, 30, 1, 20, 5 * SHARE),
        (normal, 30, 5, 20, 5 * SHARE),
        (normal, 30, 20, 20, 5 * SHARE),
        (normal, 300, 1, 8, 2.5 * SHARE),
        (normal, 300, 5, 8, 2.5 * SHARE),
        (normal, 300, 20, 5, 2.5 * SHARE),
        (normal, 3000, 5, 1, 2 * SHARE),
        (normal, 3000, 20, 1, 2 * SHARE),
        (mixed, 30, 12, 20, 6 * SHARE),
        (mixed, 300, 12, 8, 3 * SHARE),
        (mixed, 3000, 12, 1, 2 * SHARE),
    ],
)
def test_about_one_usual_row_in_a_hundred_is_flagged(make, n, C, n_tables, most):
    rng = np.random.default_rng(n + C)
    rates = [(score(learned(make(n, C, rng)), make(1000, C, rng)) > 1).mean() for _ in range(n_tables)]
    assert 0.1 * SHARE <= np.mean(rates) <= most


@pytest.mark.parametrize("n", [300, 3000])
def test_every_column_is_looked_at(n):
    rng = np.random.default_rng(0)
    X, new = mixed(n, 12, rng), mixed(50, 12, rng)
    seen = learned(X)
    for column in range(12):
        step = max(X[:, column].std(), 1e-3 if column == 2 else 0)
        for sign in (-1, 1):
            moved = new.copy()
            moved[:, column] += sign * 40 * step
            assert (score(seen, moved) > 1).mean() >= 0.95, column


def test_combinations_that_do_not_occur():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 500)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(500, 2))
    assert (score(learned(ring), [[0, 0], [0.5, 0], [0, -0.6]]) > 1).all()
    assert (score(learned(ring), [[1, 0], [0, -1], [0.7, 0.7]]) < 1).all()
    z = rng.normal(size=(300, 12))
    z[:, 1] = z[:, 0] + 0.02 * rng.normal(size=300)
    broken = rng.normal(size=(200, 12))
    broken[:, 1] = -broken[:, 0]
    assert (score(learned(z), broken) > 1).mean() > 0.8


@pytest.mark.parametrize("make", [normal, mixed])
def test_a_row_is_scored_by_itself(make):
    rng = np.random.default_rng(0)
    seen, new = learned(make(200, 8, rng)), make(70, 8, rng)
    together = score(seen, new)
    np.testing.assert_array_equal(together, np.concatenate([score(seen, new[i : i + 1]) for i in range(70)]))
    np.testing.assert_array_equal(together[::-1], score(seen, new[::-1].copy()))


def test_the_order_of_the_training_rows_matters_little():
    rng = np.random.default_rng(0)
    X, new = normal(400, 5, rng), 2 * normal(500, 5, rng)
    first, second = (score(learned(rows), new) for rows in (X, X[::-1].copy()))
    assert np.corrcoef(first, second)[0, 1] > 0.95
    assert ((first > 1) == (second > 1)).mean() > 0.9


def test_extremes_are_flagged_and_never_nan():
    X = mixed(200, 12, np.random.default_rng(0))
    for seen in (learned(X), learned(1e300 * X[:, :2]), learned(X[:2]), learned(X[:1])):
        for value in (1e303, -1e308, 1.7e308):
            rows = np.full((2, len(seen.shift)), value)
            rows[1, 1:] = 0
            scores = score(seen, rows)
            assert not np.isnan(scores).any()
            assert (scores > 1).all()


@pytest.mark.parametrize("n_repeats", [1, 2, 6])
def test_repeated_rows_count_once(n_repeats):
    rng = np.random.default_rng(0)
    flagged = [
        (score(learned(np.repeat(normal(40, 3, rng), n_repeats, axis=0)), normal(500, 3, rng)) > 1).mean()
        for _ in range(10)
    ]
    assert np.mean(flagged) < 0.06


def test_units_and_constants_do_not_matter():
    rng = np.random.default_rng(0)
    X, new = normal(150, 4, rng), 2 * normal(80, 4, rng)
    scale = np.array([1e-12, 1.0, 1e6, 1e12])
    np.testing.assert_allclose(score(learned(X), new), score(learned(X * scale), new * scale), rtol=1e-5)
    constant = np.column_stack([X, np.full(150, 5.0), np.zeros(150)])
    same, other = (np.column_stack([new, np.full(80, a), np.full(80, b)]) for a, b in ((5, 0), (5.01, 1e-9)))
    assert (score(learned(constant), same) > 1).mean() < 1
    assert (score(learned(constant), other) > 1).all()


def test_new_groups_are_usual_where_the_fit_knows_the_groups():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), 10)
    marks = rng.normal(size=(260, 6))
    X = np.column_stack([rng.normal(size=600), marks[labels]])
    new = np.column_stack([rng.normal(size=200), marks[60:]])
    known, unknown = (
        SeenInputs.of(torch.from_numpy(X), 0, grouping)
        for grouping in (Grouping.of(labels, None, 600), Grouping.of(None, None, 600))
    )
    assert (score(known, new) > 1).mean() < 0.15 < (score(unknown, new) > 1).mean()


def test_wide_tables_are_reduced():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(5, 200))

    def make(n: int) -> np.ndarray:
        return rng.normal(size=(n, 5)) @ mixing + 0.1 * rng.normal(size=(n, 200))

    seen = learned(make(400))
    assert seen.centres.shape[1] == 33
    assert (score(seen, make(500)) > 1).mean() < 3 * SHARE
    assert (score(seen, make(100) + rng.normal(size=(100, 200))) > 1).all()  # off the subspace


def test_many_constant_features():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(200, 100)), np.zeros((200, 1200))])
    seen = learned(X)
    assert (score(seen, X + 1) > 1).all()
    assert torch.isfinite(seen.axes).all()
    assert learned(np.zeros((50, 70))).centres.shape[1] == 33


def test_groups_are_disjoint_and_large_enough():
    for n, size in ((1, 2), (2, 2), (7, 2), (50, 2), (101, 2)):
        values = torch.randn(n, 2, generator=torch.Generator().manual_seed(n))
        group = groups_of_neighbours(nearest_rows(values), torch.arange(n), size)
        assert group.bincount().min() >= min(n, size)
        assert len(group.unique()) > n / 4


def test_tail_quantiles():
    rng = torch.Generator().manual_seed(0)
    values = torch.empty(400, 500, dtype=torch.float64).exponential_(generator=rng)
    beyond = (-tail_quantile(values, 0.001)).exp()
    assert 0.0005 < beyond.mean() < 0.003
    assert tail_quantile(torch.arange(10_000.0)[:, None], 0.01).item() == 9899
    assert torch.equal(tail_quantile(torch.ones(5, 3), 0.01), torch.ones(3))


def test_damaged_records_are_refused():
    tensors = learned(normal(20, 3, np.random.default_rng(0))).tensors()
    for name, value in (("centres", torch.zeros(4, 2)), ("limits", torch.zeros(2)), ("scale", torch.ones(2))):
        with pytest.raises(ValueError, match=name):
            SeenInputs.from_tensors(tensors | {name: value})


@pytest.mark.filterwarnings("ignore::ebreg.errors.TrustWarning")  # of models that hardly learned
class TestRegressor:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), rng.integers(0, 4, 60)])
    y = X[:, 0] + rng.normal(size=60)
    NEW = np.array([[0.0, 1], [50, 1], [0, 2], [0, 9]])

    def test_flags_scores_and_tables(self):
        p = MixtureDensityRegressor(**QUICK).fit(self.X, self.y).predict_distribution(self.NEW)
        assert p.unusual.tolist() == [False, True, False, True]
        assert p.unusual_score.shape == (4,)
        assert p[[1, 0]].unusual.tolist() == [True, False]
        assert p[:0].unusual.shape == (0,)
        frame = p.to_frame()
        assert list(frame)[-2:] == ["unreliable", "unusual"]
        assert frame["unusual"].tolist() == p.unusual.tolist()
        assert frame["unreliable"].tolist() == p.unreliable.tolist()
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(p)).unusual_score, p.unusual_score)

    def test_saved_and_pickled(self, tmp_path):
        reg = EnergyRegressor(**QUICK).fit(self.X, self.y)
        expected = reg.predict_distribution(self.NEW).unusual_score
        reg.save(tmp_path / "model")
        for again in (ebreg.load(tmp_path / "model"), pickle.loads(pickle.dumps(reg))):
            np.testing.assert_array_equal(again.predict_distribution(self.NEW).unusual_score, expected)
        del reg.seen_  # as of an older file
        p = reg.predict_distribution(self.NEW)
        assert "unusual" not in p.to_frame()
        with pytest.raises(ValueError, match="not known: the model was saved before"):
            _ = p.unusual

    def test_rows_of_weight_0_are_unknown_and_integers_are_numbers(self):
        weights = np.r_[np.ones(60), 0, 0]
        X, y = np.vstack([self.X, [[50, 1], [50, 1]]]), np.r_[self.y, 0, 0]
        reg = MixtureDensityRegressor(**QUICK).fit(X, y, sample_weight=weights)
        assert reg.predict_distribution(self.NEW).unusual.tolist() == [False, True, False, True]
        whole = MixtureDensityRegressor(**QUICK).fit(self.X.round().astype(int), self.y)
        assert whole.predict_distribution(self.NEW.astype(int)).unusual.tolist() == [False, True, False, True]

    def test_a_new_fit_and_a_warm_start_forget(self):
        reg = EnergyRegressor(**QUICK, warm_start=True).fit(self.X, self.y)
        reg.fit(self.X + 50, self.y)
        assert reg.predict_distribution([[0.0, 1], [50, 51]]).unusual.tolist() == [True, False]

    @pytest.mark.parametrize("n_members", [1, 2])
    def test_features_of_an_own_backbone(self, n_members):
        torch.manual_seed(0)
        images = torch.rand(80, 1, 4, 4)
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 70))
        reg = MixtureDensityRegressor(**QUICK, backbone=backbone, n_members=n_members)
        reg.fit(images, images.mean((1, 2, 3)))
        p = reg.predict_distribution(torch.cat([images[:20], 20 * images[:20]]))
        assert p.unusual[:20].mean() <= 0.1
        assert p.unusual[20:].all()
        one = reg.predict_distribution(images[3:4]).unusual_score
        np.testing.assert_allclose(one, p.unusual_score[3:4], atol=1e-4)


def test_the_benchmark_runs():
    table = bundled_tables()["diabetes"]
    run = benchmark.measure(table, "ebreg", 0, inner=True)
    assert run.fresh <= 0.1
    assert run.moved_by_column.mean() > 0.9
    assert "diabetes" in benchmark.report([run], inner=True)
