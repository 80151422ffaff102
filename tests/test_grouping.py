"""Rows that belong together stay together: in splits, in folds, and in what every member holds out."""

import datetime
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from benchmarks.grouped_rows import GroupedTable
from ebreg import EnergyRegressor, MixtureDensityRegressor, metrics
from ebreg.errors import TrustWarning
from ebreg.estimators import base
from ebreg.estimators.grouping import Grouping
from ebreg.estimators.trainer import Trainer
from ebreg.training import HeldOut

QUICK = {"max_iter": 2, "width": 8, "n_components": 2, "n_draws": 4, "random_state": 0, "verbose": False}
MEMBERS = EnergyRegressor(**QUICK)
SINGLE = EnergyRegressor("joint-nce", **QUICK)


def table(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + 0.3 * rng.normal(size=n)


X, Y = table()
PATIENTS = np.random.default_rng(5).integers(0, 9, 60)
DAYS = np.random.default_rng(6).integers(0, 15, 60)


def random_labels(seed: int) -> np.ndarray:
    """Labels of 30 to 300 rows in 2 to 60 groups of unequal sizes."""
    rng = np.random.default_rng(seed)
    n_groups = int(rng.integers(2, 60))
    labels = rng.choice(n_groups, rng.integers(30, 300), p=rng.dirichlet(np.ones(n_groups)))
    labels[:2] = 0, 1
    return labels


def of(labels: np.ndarray, rows: torch.Tensor) -> np.ndarray:
    """Labels of some rows; numpy would take a tensor of one row for a number."""
    return labels[rows.numpy()]


SEEDS = range(20)


class TestSplits:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_of_groups_never_divide_one(self, seed):
        labels = random_labels(seed)
        n = len(labels)
        for train, validation in Grouping.of(labels, None, n).splits(n // 5, 4, seed):
            assert sorted([*train.tolist(), *validation.tolist()]) == list(range(n))
            assert min(len(train), len(validation)) >= 1
            assert not set(of(labels, train)) & set(of(labels, validation))

    @pytest.mark.parametrize("seed", SEEDS)
    def test_of_groups_have_about_the_number_of_rows_asked_for(self, seed):
        labels = random_labels(seed)
        sizes = np.bincount(labels)
        n_validation = len(labels) // 4
        _, validation = Grouping.of(labels, None, len(labels)).split(n_validation, seed)
        if len(validation) > 1.5 * n_validation:
            # Every single group is that large, and the largest are not held out.
            assert sizes[sizes > 0].min() >= 2 * n_validation
            assert len(validation) <= 2 * sizes[sizes > 0].min()
        smallest = sizes[sizes > 0].min()
        assert abs(len(validation) - n_validation) < max(n_validation, 2 * smallest)

    @pytest.mark.parametrize("n_validation", [1, 7, 20, 59])
    def test_of_rows_of_their_own_take_exactly_so_many(self, n_validation):
        train, validation = Grouping(60).split(n_validation, seed=3)
        assert len(validation) == n_validation
        assert sorted([*train.tolist(), *validation.tolist()]) == list(range(60))

    def test_of_equal_groups_hold_out_every_group_before_one_twice(self):
        labels = np.repeat(np.arange(12), 5)
        splits = Grouping.of(labels, None, 60).splits(15, 4, seed=0)
        held_out = [set(of(labels, validation)) for _, validation in splits]
        assert [len(groups) for groups in held_out] == [3] * 4
        assert set.union(*held_out) == set(range(12))

    def test_of_rows_of_their_own_are_as_different_as_those_of_members(self):
        splits = Grouping(50).splits(20, 8, seed=1)
        index = HeldOut.at_random(8, 50, 20, seed=1).index
        assert all(torch.equal(rows, index[i].sort().values) for i, (_, rows) in enumerate(splits))

    @pytest.mark.parametrize("seed", SEEDS)
    def test_by_time_are_later_and_divide_no_time(self, seed):
        time = random_labels(seed)
        train, validation = Grouping.of(None, time, len(time)).split(len(time) // 5, seed)
        assert len(train) + len(validation) == len(time)
        assert of(time, train).max() < of(time, validation).min()
        # No other cut is closer to the number asked for.
        sizes = [(time >= cut).sum() for cut in np.unique(time)[1:]]
        assert abs(len(validation) - len(time) // 5) == min(abs(n - len(time) // 5) for n in sizes)

    def test_depend_on_the_seed_alone(self):
        labels = random_labels(0)
        names = np.array([f"patient {99 - label}" for label in labels])
        first, again, renamed, other = (
            Grouping.of(these, None, len(labels)).split(20, seed)[1].tolist()
            for these, seed in ((labels, 0), (labels, 0), (names, 0), (labels, 1))
        )
        assert first == again == renamed != other

    def test_too_few_or_too_many_rows_are_refused(self):
        with pytest.raises(ValueError, match="n_validation must be below the number of rows, 5"):
            Grouping(5).split(5, seed=0)
        with pytest.raises(ValueError, match="n_validation must be at least 1"):
            Grouping(5).split(0, seed=0)


class TestFolds:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("grouped", [False, True])
    def test_test_every_row_once(self, seed, grouped):
        labels = np.concatenate([random_labels(seed), [0, 1, 2, 3, 4]])
        n = len(labels)
        folds = Grouping.of(labels if grouped else None, None, n).folds(5, seed)
        assert len(folds) == 5
        assert sorted(torch.cat([test for _, test in folds]).tolist()) == list(range(n))
        for train, test in folds:
            assert sorted([*train.tolist(), *test.tolist()]) == list(range(n))
            assert not (grouped and set(of(labels, train)) & set(of(labels, test)))
        sizes = [len(test) for _, test in folds]
        assert max(sizes) - min(sizes) <= (np.bincount(labels).max() if grouped else 1)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_by_time_are_later_than_what_they_are_trained_on(self, seed):
        time = np.concatenate([random_labels(seed), [0, 1, 2, 3]])
        folds = Grouping.of(None, time, len(time)).folds(3, seed)
        assert len(folds) == 3
        for train, test in folds:
            assert min(len(train), len(test)) >= 1
            assert of(time, train).max() < of(time, test).min()
        for (train, test), (longer, _) in pairwise(folds):
            assert sorted([*train.tolist(), *test.tolist()]) == longer.tolist()
        assert sum(map(len, folds[-1])) == len(time)

    def test_of_different_times_are_of_equal_length(self):
        time = np.random.default_rng(0).permutation(100)
        folds = Grouping.of(None, time, 100).folds(4, seed=0)
        assert [(len(train), len(test)) for train, test in folds] == [(20, 20), (40, 20), (60, 20), (80, 20)]

    @pytest.mark.parametrize(
        ("groups", "time", "message"),
        [
            (None, None, "4 rows are too few for 5 folds"),
            ([1, 1, 2, 3], None, "at least as many different labels as there are folds, got 3 for 5 folds"),
            (None, [1, 2, 3, 4], "at least 6 different values for 5 folds, .* got 4"),
        ],
    )
    def test_more_than_there_is_are_refused(self, groups, time, message):
        with pytest.raises(ValueError, match=message):
            Grouping.of(groups, time, 4).folds(5, seed=0)


DATES = pd.to_datetime(["2024-03-01", "2024-01-31", "2024-03-01"])


class TestWhatTheUserGives:
    @pytest.mark.parametrize(
        "groups",
        [
            ["b", "a", "b"],
            np.array([2.5, 1.0, 2.5]),
            torch.tensor([7, 3, 7]),
            list(torch.tensor([7, 3, 7])),
            pd.Series(list(torch.tensor([7, 3, 7])), dtype=object),
            [np.array(7), np.array(3), np.array(7)],
            torch.tensor([7, 3, 7]).bfloat16(),
            pd.Series(["b", "a", "b"], index=[5, 6, 7], dtype="category"),
            pd.Series([2, 1, 2], dtype="Int64"),
            [("Bonn", 1), ("Bonn", 2), ("Bonn", 1)],
            ["1", 1, "1"],
            DATES,
        ],
        ids=str,
    )
    def test_labels_of_any_kind(self, groups):
        grouping = Grouping.of(groups, None, 3)
        assert grouping.labels.tolist() == [0, 1, 0]
        assert grouping.time is None
        assert grouping

    @pytest.mark.parametrize(
        "time",
        [
            [3, 1, 3],
            np.array([0.3, -0.1, 0.3], dtype=np.float32),
            torch.tensor([3.0, 1.0, 3.0]),
            list(torch.tensor([3.0, 1.0, 3.0])),
            torch.tensor([3.0, 1.0, 3.0]).bfloat16(),
            DATES,
            DATES.to_numpy(),
            pd.Series(DATES).dt.tz_localize("Europe/Berlin"),
            DATES.to_period("M"),
            DATES - DATES[0],
            [datetime.date(2024, 3, 1), datetime.date(2024, 1, 31), datetime.date(2024, 3, 1)],
        ],
        ids=str,
    )
    def test_times_of_any_kind(self, time):
        grouping = Grouping.of(None, time, 3)
        assert grouping.time.tolist() == [1, 0, 1]
        assert grouping.labels is None
        assert grouping

    def test_nothing_leaves_every_row_by_itself(self):
        assert not Grouping.of(None, None, 3)

    def test_some_rows(self):
        used = torch.tensor([True, False, True])
        assert Grouping.of(["a", "b", "b"], None, 3).take(used).labels.tolist() == [0, 1]
        taken = Grouping.of(None, [3, 1, 2], 3).take(torch.tensor([2, 0]))
        assert (taken.n_rows, taken.time.tolist()) == (2, [1, 2])
        assert Grouping(3).take(used) == Grouping(2)

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            (["a", "b"], r"groups must have one value for each row, got 2 for 3 rows"),
            (np.zeros((3, 1)), r"groups must have shape \(n,\), .* got \(3, 1\)"),
            ("patient", r"groups must have shape \(n,\)"),
            (["a", None, "b"], r"groups must have a value in every row, got none at row 1 \(1 such"),
            ([1.0, float("nan"), float("nan")], r"none at row 1 \(2 such rows in all\); give these rows"),
            (pd.Series(["a", "b", None], dtype="category"), "got none at row 2"),
            (pd.Series([1, None, 2], dtype="Int64"), "got none at row 1"),
            ([["a"], ["b"], ["b"]], "groups must hold one label for each row"),
        ],
    )
    def test_bad_groups_are_refused(self, groups, message):
        with pytest.raises(ValueError, match=message):
            MEMBERS.fit(X[:3], Y[:3], groups=groups)

    @pytest.mark.parametrize(
        ("time", "message"),
        [
            ([1, 2, 3, 4], r"time must have one value for each row, got 4 for 3 rows"),
            (np.zeros((3, 1)), r"time must have shape \(n,\), .* got \(3, 1\)"),
            ([1.0, float("nan"), 2.0], r"time must have a value in every row, got none at row 1"),
            (pd.to_datetime(["2024-01-01", None, "2024-01-02"]), "got none at row 1 .*; remove those rows"),
            ([1.0, float("-inf"), 2.0], "time must be finite"),
            (["2024-01-01"] * 3, r"time must hold numbers or dates; convert text by pandas.to_datetime"),
            ([1, 2j, 3], "time must hold numbers or dates of one kind"),
        ],
    )
    def test_bad_times_are_refused(self, time, message):
        with pytest.raises(ValueError, match=message):
            MEMBERS.fit(X[:3], Y[:3], time=time)


@pytest.fixture
def held_out(monkeypatch):
    """Fits a regressor, and returns its training data and what it held out, a HeldOut or rows."""

    def get(regressor, **arguments):
        found = []
        original = Trainer.run

        def run(self, method, data, validation, all_rows):
            found.append((data, validation))
            return original(self, method, data, validation, all_rows)

        monkeypatch.setattr(base.Trainer, "run", run)
        clone(regressor).fit(X, Y, **arguments)
        return found[0]

    return get


def rows_of(data) -> list[int]:
    """Row numbers in the table, by the first column."""
    return [int(np.flatnonzero(X[:, 0] == value)[0]) for value in data.x[:, 0].tolist()]


class TestFit:
    @pytest.mark.parametrize("n_groups", [2, 3, 9, 30])
    def test_no_member_is_validated_on_a_group_that_it_is_trained_on(self, held_out, n_groups):
        groups = np.random.default_rng(n_groups).integers(0, n_groups, 60)
        data, validation = held_out(MEMBERS, groups=groups)
        assert len(data) == 60
        assert len(validation.index) == len(validation.train) == 8
        for index, train in zip(validation.index, validation.train, strict=True):
            assert not set(of(groups, index)) & set(of(groups, train))
            assert len(set(index.tolist())) == len(index)
            assert len(set(train.tolist())) == len(train)

    def test_members_of_two_settings_share_rows_and_the_others_do_not(self, held_out):
        _, validation = held_out(MEMBERS, groups=np.repeat(np.arange(20), 3))
        index = validation.index
        assert torch.equal(index[::2], index[1::2])
        assert len({tuple(sorted(rows.tolist())) for rows in index}) == 4

    def test_two_groups_are_held_out_in_turn(self, held_out):
        groups = np.repeat(["a", "b"], 30)
        _, validation = held_out(MEMBERS, groups=groups)
        chosen = [set(of(groups, index)) for index in validation.index]
        assert chosen[::4] == chosen[1::4] != chosen[2::4] == chosen[3::4]
        assert all(len(groups) == 1 for groups in chosen)

    def test_the_first_validation_rows_are_from_all_held_out_groups(self, held_out):
        # Calibration looks at no more than the first 1,000.
        _, validation = held_out(MEMBERS, groups=np.repeat(np.arange(30), 2))
        assert not torch.equal(validation.index, validation.index.sort(dim=1).values)

    def test_all_members_hold_out_the_latest_rows(self, held_out):
        _, validation = held_out(MEMBERS, time=DAYS)
        latest = validation.index[0].sort().values
        assert all(torch.equal(index.sort().values, latest) for index in validation.index)
        assert of(DAYS, validation.train).max() < of(DAYS, validation.index).min()
        assert len(latest) + validation.train.shape[1] == 60

    @pytest.mark.parametrize("shared", [False, True])
    def test_one_member_and_members_with_one_backbone_hold_out_groups(self, held_out, shared):
        regressor = MEMBERS if shared else SINGLE
        if shared:
            net = nn.Linear(2, 4)
            regressor = clone(MEMBERS).set_params(backbone=net, n_members=2)
        train, validation = (rows_of(data) for data in held_out(regressor, groups=PATIENTS))
        assert not set(PATIENTS[train]) & set(PATIENTS[validation])
        assert sorted(train + validation) == list(range(60))
        train, validation = (rows_of(data) for data in held_out(regressor, time=DAYS))
        assert DAYS[train].max() < DAYS[validation].min()

    def test_groups_of_rows_of_weight_zero_are_left_out(self, held_out):
        weight = (PATIENTS > 2).astype(float)
        data, validation = held_out(MEMBERS, groups=PATIENTS, sample_weight=weight)
        rows = np.array(rows_of(data))
        assert (weight[rows] == 1).all()
        for index, train in zip(validation.index, validation.train, strict=True):
            assert not set(PATIENTS[rows[index.numpy()]]) & set(PATIENTS[rows[train.numpy()]])
        used = PATIENTS < 5
        with pytest.raises(ValueError, match="groups must have at least 2 different labels"):
            clone(MEMBERS).fit(X, Y, groups=used, sample_weight=used)

    @pytest.mark.parametrize("argument", ["groups", "time"])
    @pytest.mark.parametrize("regressor", [MEMBERS, SINGLE], ids=["members", "single"])
    def test_one_group_or_one_time_is_refused(self, regressor, argument):
        with pytest.raises(ValueError, match=f"{argument} must have at least 2 different"):
            clone(regressor).fit(X, Y, **{argument: np.ones(60)})

    @pytest.mark.parametrize("regressor", [MEMBERS, SINGLE], ids=["members", "single"])
    def test_one_row_may_be_all_that_is_held_out(self, regressor):
        groups = np.arange(60) == 17
        regressor = clone(regressor).fit(X, Y, groups=groups)
        assert np.isfinite(regressor.predict(X)).all()

    def test_with_too_few_rows_nothing_is_held_out(self):
        with pytest.warns(TrustWarning, match="10 rows are too few to hold some out"):
            clone(MEMBERS).fit(X[:10], Y[:10], groups=PATIENTS[:10])

    def test_both_are_refused(self):
        with pytest.raises(ValueError, match="groups and time cannot be combined"):
            clone(MEMBERS).fit(X, Y, groups=PATIENTS, time=DAYS)

    @pytest.mark.parametrize("argument", [{"groups": PATIENTS}, {"time": DAYS}])
    def test_without_rows_to_set_aside_they_are_refused(self, argument):
        message = "groups and time choose the rows that are set aside for validation, and none are"
        with pytest.raises(ValueError, match=message):
            clone(MEMBERS).set_params(early_stopping=False).fit(X, Y, **argument)
        with pytest.raises(ValueError, match=message):
            clone(MEMBERS).fit(X, Y, validation=table(20, seed=1), **argument)

    def test_a_warm_start_takes_them(self, held_out):
        regressor = clone(MEMBERS).set_params(warm_start=True).fit(X, Y, groups=PATIENTS)
        before = regressor.predict(X)
        regressor.fit(X, Y, time=DAYS)
        assert not np.array_equal(regressor.predict(X), before)

    def test_the_mixture_takes_them(self):
        model = MixtureDensityRegressor(**QUICK).fit(X, Y, groups=PATIENTS)
        again = MixtureDensityRegressor(**QUICK).fit(X, Y, groups=[f"{i:03}" for i in PATIENTS])
        assert np.array_equal(model.predict(X), again.predict(X))
        other = MixtureDensityRegressor(**QUICK).fit(X, Y)
        assert not np.array_equal(model.predict(X), other.predict(X))


class TestScikitLearn:
    def test_a_pipeline_hands_them_on(self, held_out):
        direct = clone(MEMBERS).fit(StandardScaler().fit_transform(X), Y, groups=PATIENTS)
        pipeline = make_pipeline(StandardScaler(), clone(MEMBERS)).fit(X, Y, energyregressor__groups=PATIENTS)
        assert np.array_equal(
            pipeline[-1].predict(StandardScaler().fit_transform(X)),
            direct.predict(StandardScaler().fit_transform(X)),
        )

    def test_cross_validation_hands_them_on_for_the_rows_of_each_fold(self, monkeypatch):
        seen = []
        original = Grouping.of.__func__

        def counted(cls, groups, time, n_rows):
            seen.append(set(groups))
            return original(cls, groups, time, n_rows)

        monkeypatch.setattr(Grouping, "of", classmethod(counted))
        scores = cross_val_score(
            clone(MEMBERS), X, Y, groups=PATIENTS, cv=GroupKFold(3), params={"groups": PATIENTS}
        )
        assert scores.shape == (3,)
        folds = [set(PATIENTS[train]) for train, _ in GroupKFold(3).split(X, Y, PATIENTS)]
        assert seen == folds

    def test_they_can_be_requested_as_metadata(self):
        with sklearn.config_context(enable_metadata_routing=True):
            regressor = clone(MEMBERS).set_fit_request(groups=True, time=False)
            scores = cross_val_score(regressor, X, Y, cv=GroupKFold(2), params={"groups": PATIENTS})
        assert np.isfinite(scores).all()


def test_validation_by_groups_tells_what_to_expect_of_new_ones():
    train, new = GroupedTable.of(24, 10, seed=0), GroupedTable.of(100, 3, seed=1)
    coverage, promised, actual = {}, {}, {}
    for name, groups in (("rows", None), ("groups", train.groups)):
        model = MixtureDensityRegressor(preset="fast", max_iter=40, random_state=0, verbose=False)
        p = model.fit(train.X, train.y, groups=groups).predict_distribution(new.X)
        coverage[name] = metrics.coverage(p, new.y, 0.9)
        promised[name] = min(epoch.get("validation_nll", np.inf) for epoch in model.history_)
        actual[name] = metrics.nll(p, new.y).mean()
    # Rows of known groups promise far more than is true of new ones, whose intervals are too narrow then.
    assert actual["rows"] > promised["rows"] + 0.5
    assert actual["groups"] < promised["groups"]  # which is the mean of single members
    assert actual["groups"] < actual["rows"] - 0.2
    assert coverage["groups"] > coverage["rows"] + 0.1
