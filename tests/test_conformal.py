"""Calibrated sets: scores and sets are inverses of each other, and the sets cover as often as they say."""

import math
import pickle
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from benchmarks.conformal import report, sets
from benchmarks.conformal.runs import Run
from benchmarks.csv_store import CsvStore
from ebreg import EnergyRegressor, MixtureDensityRegressor, load, metrics
from ebreg.distributions import GaussianMixture, LogLinear, TruncatedMixture
from ebreg.errors import ModelFileError, TrustWarning
from ebreg.estimators.conformal import Conformal
from ebreg.estimators.grouping import Grouping
from ebreg.estimators.trainer import Trainer
from ebreg.predictive import Predictive
from ebreg.predictive.nested_intervals import interval_of_scores, interval_scores
from ebreg.predictive.nested_regions import region_of_score, region_scores
from ebreg.units import Bounds, Tail
from support import draws_of, nodes_of, normal

F64 = torch.float64
INF = math.inf
QUICK = {"max_iter": 2, "width": 8, "n_components": 2, "n_draws": 4, "random_state": 0, "verbose": False}
QUICK |= {"preset": "fast"}
KINDS = {"energy": EnergyRegressor(**QUICK), "mixture": MixtureDensityRegressor(None, **QUICK)}
B = 15


def mixture(D: int, B: int = B, K: int = 3, seed: int = 0) -> GaussianMixture:
    means = 3 * normal(B, K, D, seed=seed)
    return GaussianMixture(normal(B, K, seed=seed + 1), means, 0.2 + normal(B, K, D, seed=seed + 2).abs())


def truncated(D: int) -> TruncatedMixture:
    q, ends = mixture(D), torch.full((D,), 4.0, dtype=F64)
    return TruncatedMixture(q.logits, q.means, q.scales, -ends, ends)


def wells(y: Tensor) -> Tensor:
    """Two wells in every target."""
    return -((y.square() - 4) ** 2).sum(dim=-1) / 4


def flat(y: Tensor) -> Tensor:
    return torch.zeros_like(y[..., 0])


def box(D: int) -> Tail:
    ends = torch.full((D,), 3.0, dtype=F64)
    return Tail(-ends, ends, torch.ones(D, dtype=F64), Bounds(-ends, ends))


def bounded(log_f: Callable[[Tensor], Tensor]) -> LogLinear:
    """A density between -3 and 3."""
    nodes = torch.linspace(-3, 3, 257, dtype=F64).expand(B, -1)
    return LogLinear(nodes, log_f(nodes[..., None]), (True, True), support=(-3.0, 3.0))


FORMS = {
    "mixture": lambda: mixture(1),
    "mixture, 2 targets": lambda: mixture(2),
    "truncated mixture": lambda: truncated(1),
    "truncated mixture, 2 targets": lambda: truncated(2),
    "nodes": lambda: nodes_of(wells, mixture(1)),
    "nodes between bounds": lambda: bounded(wells),
    "level nodes": lambda: bounded(flat),
    "draws, 1 target": lambda: draws_of(wells, mixture(1)),
    "draws, 2 targets": lambda: draws_of(wells, mixture(2)),
    "level draws, 2 targets": lambda: draws_of(flat, truncated(2), box(2)),
}


@cache
def form_of(name: str) -> Predictive:
    return FORMS[name]()


@pytest.fixture(params=FORMS)
def form(request) -> Predictive:
    return form_of(request.param)


def targets(p: Predictive) -> Tensor:
    """Typical targets, and some that are far away where no bounds forbid it, (S, B, D)."""
    D = p.mean.shape[-1]
    typical = p.sample(25, generator=torch.Generator().manual_seed(3))
    is_bounded = not torch.isfinite(p.log_prob(torch.full((B, D), 1e3, dtype=F64))).all()
    far = (2.9 if is_bounded else 40) * normal(5, B, D, seed=4).clamp(-1, 1)
    return torch.cat([typical, far])


def chosen(scores: Tensor) -> list[float]:
    """Scores of sets: some that targets have, and some between and beyond."""
    some = scores[scores.isfinite()].quantile(torch.linspace(0.02, 1, 7, dtype=F64), interpolation="nearest")
    return [*some.tolist(), 0.3, 0.8, 1.0, 1.5, 20.0]


class TestScoresAndSets:
    def test_a_region_holds_the_targets_of_at_most_its_score(self, form):
        y = targets(form)
        scores = torch.stack([region_scores(form, each) for each in y])
        for score in chosen(scores):
            region = region_of_score(form, score, 0.9)
            assert torch.equal(region.contains(y), scores <= score), score
            assert region.mass == 0.9

    def test_an_interval_holds_the_targets_of_at_most_its_score(self, form):
        y = targets(form)
        D = y.shape[-1]
        scores = torch.stack([interval_scores(form, each) for each in y])
        ends = torch.full((D,), INF, dtype=F64)
        for score in chosen(scores):
            low, high = interval_of_scores(form, y.new_full((D,), score), -ends, ends).unbind(1)
            assert torch.equal((low <= y) & (y <= high), scores <= score), score

    def test_every_target_has_its_own_score(self):
        p = mixture(2)
        ends = torch.full((2,), INF, dtype=F64)
        both = interval_of_scores(p, torch.tensor([0.5, 3.0], dtype=F64), -ends, ends)
        for d, score in enumerate((0.5, 3.0)):
            alone = interval_of_scores(p.marginal(d), torch.tensor([score], dtype=F64), -ends[:1], ends[:1])
            assert torch.allclose(both[..., d], alone[..., 0])

    def test_sets_grow_with_the_score(self, form):
        y = targets(form)
        inside = torch.stack(
            [region_of_score(form, c, 0.9).contains(y) for c in (0.2, 0.7, 0.9999, 1, 3, 50)]
        )
        assert (inside[1:] >= inside[:-1]).all()
        assert inside[-1].sum() > inside[0].sum()

    @pytest.mark.parametrize("name", ["mixture", "nodes", "truncated mixture", "nodes between bounds"])
    def test_of_targets_that_the_density_describes_scores_are_uniform(self, name):
        p = form_of(name)
        y = p.sample(40, generator=torch.Generator().manual_seed(0))
        region = torch.stack([region_scores(p, each) for each in y]).flatten()
        interval = torch.stack([interval_scores(p, each) for each in y]).flatten()
        for scores in (region, interval):
            assert stats.kstest(scores, "uniform").statistic < 1.6 / math.sqrt(len(scores))

    def test_scores_do_not_saturate(self):
        p = GaussianMixture(*(torch.tensor([[value]], dtype=F64).expand(5, *s) for value, s in _NORMAL))
        y = torch.tensor([6.0, 10.0, 40.0, 1e4, 1e8], dtype=F64)[:, None]
        for scores in (region_scores(p, y), interval_scores(p, y)[:, 0]):
            assert (scores.diff() > 0).all()
            assert scores.isfinite().all()

    def test_a_target_without_density_has_an_infinite_score(self):
        p = FORMS["draws, 2 targets"]()
        nothing = SimpleNamespace(
            hpd_mass=lambda y: torch.ones(B, dtype=F64),
            highest_density_region=p.region_by_density,
            log_prob=lambda y: torch.full((B,), -INF, dtype=F64),
        )
        assert (region_scores(nothing, torch.zeros(B, 2, dtype=F64)) == INF).all()

    @pytest.mark.parametrize("name", ["nodes between bounds", "truncated mixture", "draws, 2 targets"])
    def test_the_set_of_an_infinite_score_is_everything(self, name):
        p = form_of(name)
        y = targets(p)
        D = y.shape[-1]
        assert region_of_score(p, INF, 0.9).contains(y).all()
        ends = torch.full((D,), 3.0, dtype=F64)
        interval = interval_of_scores(p, y.new_full((D,), INF), -ends, ends)
        assert (interval[:, 0] == -3).all()
        assert (interval[:, 1] == 3).all()

    def test_equal_draws_have_an_interval_of_some_width(self):
        p = draws_of(wells, mixture(2))
        p.draws = torch.ones_like(p.draws)
        scores = interval_scores(p, torch.full((B, 2), 2.0, dtype=F64))
        assert scores.isfinite().all()
        assert (scores > 1).all()


_NORMAL = ((0.0, (1,)), (0.0, (1, 1)), (1.0, (1, 1)))


class TestMassOfRegions:
    def test_of_a_gaussian_it_follows_from_the_distance(self):
        p = GaussianMixture(torch.zeros(B, 1, dtype=F64), *_standard(1))
        y = torch.linspace(-4, 4, B, dtype=F64)[:, None]
        exact = torch.erf(y.abs() / math.sqrt(2))[:, 0]
        assert torch.allclose(p.hpd_mass(y), exact, atol=1e-4)
        by_nodes = nodes_of(lambda y: -0.5 * y.square().sum(dim=-1), p)
        assert torch.allclose(by_nodes.hpd_mass(y), exact, atol=1e-4)

    @pytest.mark.parametrize("D", [2, 3])
    def test_of_a_gaussian_of_several_targets_it_is_that_of_a_chi_square(self, D):
        p = GaussianMixture(torch.zeros(B, 1, dtype=F64), *_standard(D))
        y = normal(B, D)
        exact = torch.from_numpy(stats.chi2.cdf(y.square().sum(dim=1), D))
        assert torch.allclose(p.hpd_mass(y), exact, atol=0.02)
        by_draws = draws_of(lambda y: -0.5 * y.square().sum(dim=-1), p)
        assert torch.allclose(by_draws.hpd_mass(y), exact, atol=0.03)

    def test_shapes(self, form):
        y = targets(form)
        assert form.hpd_mass(y).shape == y.shape[:-1]
        assert torch.allclose(form.hpd_mass(y)[3], form.hpd_mass(y[3]))
        assert form.hpd_mass(y[:0]).shape == (0, B)

    def test_a_prediction_has_it_in_numpy(self):
        X, y = rows(30)
        p = clone(KINDS["mixture"]).fit(X, y).predict_distribution(X)
        masses = p.hpd_mass(y)
        assert masses.shape == (30,)
        assert p.hpd_mass(np.stack([y, y])).shape == (2, 30)
        for mass in (0.2, 0.9):
            assert np.array_equal(p.highest_density_region(mass).contains(y), masses <= mass)
        with pytest.raises(ValueError, match="y must have shape"):
            p.hpd_mass(y[:3])


def _standard(D: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(B, 1, D, dtype=F64), torch.ones(B, 1, D, dtype=F64)


# Nodes and log densities with level stretches: beside a peak, between peaks, and by themselves.
LEVEL = {
    "all of it": ([0.0, 1.0], [0.0, 0.0]),
    "beside a peak": ([0.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.0, 1.0, 0.0, 0.0]),
    "between peaks": ([0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0], [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]),
    "two blocks": ([0.0, 1.0, 1.5, 2.0, 4.0], [0.0, 0.0, -9.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", LEVEL)
def test_level_stretches_grow_with_the_mass_and_have_the_scores_of_their_regions(name):
    nodes, log_f = (torch.tensor([values], dtype=F64) for values in LEVEL[name])
    p = LogLinear(nodes, log_f, (True, True))
    y = torch.linspace(nodes[0, 0] + 1e-3, nodes[0, -1] - 1e-3, 101, dtype=F64)[:, None, None]
    masses = p.hpd_mass(y)[:, 0]
    previous = torch.zeros(101, dtype=torch.bool)
    for mass in torch.linspace(0.013, 0.987, 60, dtype=F64).tolist():
        inside = p.highest_density_region(mass).contains(y)[:, 0]
        assert (inside >= previous).all()
        clear = (masses - mass).abs() > 1e-5
        assert torch.equal(inside[clear], (masses <= mass)[clear])
        previous = inside


def rows(n: int, seed: int = 0, D: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with noise that grows with the first input; D targets, or one of shape (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    noise = (0.3 + np.abs(X[:, :1])) * rng.normal(size=(n, max(D, 1)))
    y = X[:, 1:] + noise
    return X, y if D else y[:, 0]


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return clone(KINDS[request.param]).fit(*rows(60))


def calibrated(model, n: int = 60, **arguments):
    """A copy that is calibrated on other rows."""
    return pickle.loads(pickle.dumps(model)).conformalize(*rows(n, seed=1), **arguments)


class TestCoverage:
    @pytest.mark.parametrize(("n", "coverage"), [(9, 0.9), (25, 0.9), (60, 0.8), (33, 0.5)])
    def test_of_scores_it_is_exact(self, n, coverage):
        # The new score is among the k smallest of n + 1 with a probability of k / (n + 1).
        scores = normal(4000, n + 1, seed=n)
        limits = [Conformal.of(own[:n, None], own[:n], Grouping(n)).region_score(coverage) for own in scores]
        exact = math.ceil((n + 1) * coverage - 1e-9) / (n + 1)
        covered = (scores[:, n] <= torch.tensor(limits, dtype=F64)).double().mean().item()
        assert covered == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 4000))

    def test_of_a_wrong_model_it_is_exact(self, model):
        # Of a model that has hardly been trained, over many sets of calibration rows.
        n, X, y = 19, *rows(4000, seed=2)
        p = model.predict_distribution(X)
        score = p.apply(lambda p, y: torch.cat([interval_scores(p, y), region_scores(p, y)[:, None]], 1), y)
        for scores in torch.from_numpy(score).T:
            parts = scores.reshape(-1, n + 1)
            limits = [Conformal.of(own[:n, None], own[:n], Grouping(n)).region_score(0.9) for own in parts]
            covered = (parts[:, n] <= torch.tensor(limits, dtype=F64)).double().mean().item()
            assert covered == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / len(parts)))

    def test_of_predicted_sets(self, model):
        found = calibrated(model, 400)
        X, y = rows(1500, seed=3)
        low, high = found.predict_interval(X, 0.8).T
        # With 400 calibration rows the coverage is a draw of a beta distribution around 0.8.
        allowed = 4 * math.sqrt(0.16 * (1 / 400 + 1 / 1500))
        assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.8, abs=allowed)
        region = found.predict_region(X, 0.8)
        assert np.mean(region.contains(y)) == pytest.approx(0.8, abs=allowed)
        inside = [((r[:, 0] <= v) & (v <= r[:, 1])).any() for r, v in zip(region.intervals, y, strict=True)]
        assert np.array_equal(inside, region.contains(y))

    def test_of_calibration_rows_is_that_of_their_number(self, model):
        found, (X, y) = calibrated(model), rows(60, seed=1)
        for coverage in (0.5, 0.9, 0.95):
            k = math.ceil(61 * coverage - 1e-9)
            low, high = found.predict_interval(X, coverage).T
            assert ((low <= y) & (y <= high)).sum() == k
            assert found.predict_region(X, coverage).contains(y).sum() == k

    def test_no_rows_have_empty_sets(self, model):
        found = calibrated(model)
        empty = np.empty((0, 2))
        assert found.predict_interval(empty).shape == (0, 2)
        region = found.predict_region(empty)
        assert region.intervals == ()
        assert region.contains(np.empty(0)).shape == (0,)
        assert found.predict_distribution(empty).hpd_mass(np.empty(0)).shape == (0,)

    def test_other_answers_do_not_change(self, model):
        X, _ = rows(20, seed=4)
        found = calibrated(model)
        assert np.array_equal(found.predict_quantiles(X), model.predict_quantiles(X))
        assert np.array_equal(found.predict(X), model.predict(X))
        plain = model.predict_distribution(X)
        assert np.array_equal(model.predict_interval(X, 0.7), plain.interval(0.7))
        region = plain.highest_density_region(0.7)
        assert np.array_equal(model.predict_region(X, 0.7).log_threshold, region.log_threshold)

    def test_an_overconfident_model_gets_finite_intervals(self):
        X, y = rows(80)
        model = clone(KINDS["mixture"]).fit(X, 1e-3 * y).conformalize(X, 10 * y)
        assert model.conformal_.region_scores.isfinite().all()
        interval = model.predict_interval(X)
        assert np.isfinite(interval).all()
        low, high = interval.T
        assert ((low <= 10 * y) & (10 * y <= high)).sum() == 73  # of 0.9 * 81
        region = model.predict_region(X)
        assert region.contains(10 * y).sum() == 73
        assert all(np.isfinite(parts).all() for parts in region.intervals)

    def test_intervals_stay_within_the_bounds(self):
        X, y = rows(80)
        share = 1 / (1 + np.exp(-3 * y))
        model = clone(KINDS["energy"]).set_params(bounds=(0, 1)).fit(X, 0.5 + 1e-3 * (share - 0.5))
        model.conformalize(X, share)
        interval = model.predict_interval(X, 0.98)
        assert interval.min() >= 0
        assert interval.max() <= 1
        assert all(parts.min() >= 0 and parts.max() <= 1 for parts in model.predict_region(X, 0.98).intervals)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::ebreg.errors.TrustWarning")
def test_several_targets(kind):
    (X, y), (X_new, y_new) = rows(60, D=2), rows(40, seed=1, D=2)
    model = clone(KINDS[kind]).fit(X, y).conformalize(X_new, y_new)
    assert model.conformal_.interval_scores.shape == (40, 2)
    low, high = np.moveaxis(model.predict_interval(X_new), 1, 0)
    assert (((low <= y_new) & (y_new <= high)).sum(axis=0) >= 37).all()  # of 0.9 * 41; draws have ties
    region = model.predict_region(X_new)
    assert region.intervals is None
    assert region.contains(y_new).sum() >= 37
    assert region.contains(y_new + 1e3).sum() == 0


class TestGroups:
    def test_each_group_counts_once(self):
        labels = torch.tensor([0, 0, 0, 1, 2, 2])
        scores = torch.tensor([1.0, 2.0, 3.0, 9.0, 4.0, 5.0], dtype=F64)
        found = Conformal.of(scores[:, None], scores, Grouping(6, labels))
        exact = torch.tensor([1 / 12, 1 / 12, 1 / 12, 1 / 4, 1 / 8, 1 / 8], dtype=F64)
        assert torch.allclose(found.weights, exact)
        assert found.n_units == 3
        # Of the sorted scores 1, 2, 3, 4, 5, 9 the weights add up to 1/12, 1/6, 1/4, 3/8, 1/2, 3/4.
        for coverage, score in ((1 / 12, 1), (0.2, 3), (0.3, 4), (0.5, 5), (0.51, 9), (0.75, 9)):
            assert found.region_score(coverage) == score
        with pytest.raises(ValueError, match=r"coverage=0.8 needs at least 4 groups .* there were 3"):
            found.region_score(0.8)

    def test_groups_of_one_row_are_rows(self, model):
        one, two = calibrated(model), calibrated(model, groups=list(range(60)))
        assert torch.equal(one.conformal_.weights, two.conformal_.weights)

    def test_new_groups_are_covered(self):
        # Groups differ in their scores, and rows of a group have nearly the same.
        n_groups, covered = 19, []
        for seed in range(800):
            levels = normal(n_groups + 1, seed=seed)
            labels = torch.arange(n_groups).repeat_interleave(1 + torch.arange(n_groups) % 5)
            scores = levels[labels] + 0.01 * normal(len(labels), seed=seed + 1000)
            limit = Conformal.of(scores[:, None], scores, Grouping(len(labels), labels)).region_score(0.9)
            covered.append(levels[-1].item() <= limit)
        assert np.mean(covered) == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 800))


class TestFolds:
    def test_rows_are_scored_by_models_that_have_not_seen_them(self, monkeypatch):
        seen = []
        monkeypatch.setattr(Trainer, "run", _noting(seen, Trainer.run))
        X, y = rows(60)
        model = clone(KINDS["mixture"]).fit(X, y)
        before = model.predict(X)
        model.conformalize(X, y, cv=4)
        assert np.array_equal(model.predict(X), before)
        assert seen == [60, 45, 45, 45, 45]
        assert len(model.conformal_.weights) == 60
        assert model.conformal_.n_units == 60
        assert model.predict_region(X).contains(y).sum() >= 50

    def test_scores_are_in_the_order_of_the_rows(self):
        X, y = rows(40)
        model = clone(KINDS["mixture"]).fit(X, y).conformalize(X, y, cv=2, groups=np.arange(40) % 2)
        even, odd = np.arange(0, 40, 2), np.arange(1, 40, 2)
        other = clone(model).fit(X[odd], y[odd])
        p = other.predict_distribution(X[even])
        expected = p.apply(region_scores, y[even])
        assert np.allclose(model.conformal_.region_scores[even], expected)

    def test_of_groups_each_counts_once(self):
        X, y = rows(60)
        groups = [f"patient {i % 7}" for i in range(60)]
        model = clone(KINDS["mixture"]).fit(X, y).conformalize(X, y, cv=3, groups=groups)
        assert model.conformal_.n_units == 7

    def test_of_time_the_first_rows_are_not_scored(self):
        X, y = rows(60)
        time = np.arange(60)[::-1]
        model = clone(KINDS["mixture"]).fit(X, y).conformalize(X, y, cv=3, time=time)
        assert model.conformal_.n_units == 45

    @pytest.mark.parametrize("labels", ["groups", "time"])
    def test_folds_hand_their_labels_to_the_fits(self, labels, monkeypatch):
        given = []
        fit = MixtureDensityRegressor.fit

        def noting(self, X, y, **arguments):
            given.append(arguments)
            return fit(self, X, y, **arguments)

        X, y = rows(60)
        model = clone(KINDS["mixture"]).fit(X, y)
        monkeypatch.setattr(MixtureDensityRegressor, "fit", noting)
        weights = np.linspace(1, 2, 60)
        model.conformalize(X, y, cv=2, **{labels: np.arange(60) // 10}, sample_weight=weights)
        for arguments in given:
            assert len(arguments[labels]) == len(arguments["sample_weight"])
            assert len(arguments[labels].unique()) > 1

    def test_a_fold_with_one_group_is_validated_on_its_rows(self):
        X, y = rows(60)
        model = clone(KINDS["mixture"]).fit(X, y)
        assert model.conformalize(X, y, cv=2, groups=np.arange(60) % 2).conformal_.n_units == 2

    def test_without_early_stopping(self):
        X, y = rows(60)
        model = clone(KINDS["mixture"]).set_params(early_stopping=False).fit(X, y)
        assert model.conformalize(X, y, cv=2, groups=np.arange(60) % 5).conformal_.n_units == 5

    def test_the_models_of_folds_start_anew(self, monkeypatch):
        X, y = rows(60)
        model = clone(KINDS["energy"]).set_params(warm_start=True).fit(X, y)
        continued = []
        monkeypatch.setattr(type(model), "_build", _noting_start(continued, type(model)._build))
        model.conformalize(X, y, cv=2)
        assert continued == [False, False]

    def test_networks_of_the_user(self):
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Linear(2, 4), nn.Tanh())
        weights = backbone[0].weight.clone()
        X, y = (torch.from_numpy(part).float() for part in rows(60))
        model = clone(KINDS["mixture"]).set_params(backbone=backbone, preset="default").fit(X, y)
        model.conformalize(X, y, cv=2)
        assert torch.equal(model.backbone[0].weight, weights)
        assert model.predict_interval(X).shape == (60, 2)


def _noting(seen: list[int], run):
    def noting(self, method, train, *others):
        seen.append(len(others[-1]))
        return run(self, method, train, *others)

    return noting


def _noting_start(continued: list[bool], build):
    def noting(self, *arguments):
        continued.append(self._continues)
        return build(self, *arguments)

    return noting


def test_rows_of_weight_0_are_left_out_of_folds():
    X, y = rows(60)
    weights = np.repeat([1.0, 0.0], 30)
    y = np.where(weights > 0, y, 1e6)
    model = clone(KINDS["mixture"]).fit(X[:30], y[:30]).conformalize(X, y, cv=3, sample_weight=weights)
    assert model.conformal_.n_units == 30
    assert np.abs(model.predict_interval(X)).max() < 1e3


def test_columns_of_the_targets_have_the_order_of_the_fit():
    X, y = rows(60)
    table = pd.DataFrame({"a": y, "b": -y})
    model = clone(KINDS["mixture"]).fit(X, table).conformalize(X, table)
    swapped, region = table[["b", "a"]], model.predict_region(X)
    for ask in (
        lambda: model.conformalize(X, swapped),
        lambda: model.log_prob(X, swapped),
        lambda: region.contains(swapped),
        lambda: clone(model).fit(X, table, validation=(X, swapped)),
        lambda: model.score(X, swapped),
        lambda: model.gradient_ascent(X, swapped),
        lambda: metrics.nll(model.predict_distribution(X), swapped),
        lambda: clone(KINDS["energy"]).set_params(warm_start=True).fit(X, table).fit(X, swapped),
    ):
        with pytest.raises(
            ValueError, match="y must have the columns a, b in this order, as in fit; got b, a"
        ):
            ask()
    for other in (table.to_numpy(), pd.DataFrame(table.to_numpy())):  # without names
        assert region.contains(other).shape == (60,)


class TestLifetime:
    def test_it_is_saved_and_pickled(self, model, tmp_path):
        found, (X, _) = calibrated(model), rows(10, seed=5)
        found.save(tmp_path / "model")
        for copy in (load(tmp_path / "model"), pickle.loads(pickle.dumps(found))):
            assert np.allclose(copy.predict_interval(X), found.predict_interval(X))
            assert copy.conformal_.n_units == 60

    def test_one_of_other_targets_is_not_loaded(self, model, tmp_path):
        found = calibrated(model)
        scores = found.conformal_.tensors()
        twice = scores | {"interval_scores": scores["interval_scores"].repeat(1, 2)}
        found.conformal_ = Conformal.from_tensors(twice)
        found.save(tmp_path / "model")
        with pytest.raises(ModelFileError, match="conformal_ has scores of other targets"):
            load(tmp_path / "model")

    def test_a_clone_has_none(self, model):
        assert not hasattr(clone(calibrated(model)), "conformal_")

    def test_a_new_fit_ends_it(self, model):
        found = calibrated(model)
        assert not hasattr(found.fit(*rows(60)), "conformal_")

    def test_a_damaged_record_is_refused(self, model):
        record = calibrated(model).conformal_
        for name, value in (
            ("weights", record.weights[:3]),
            ("weights", 2 * record.weights),
            ("interval_scores", record.region_scores),
            ("region_scores", torch.full((60,), math.nan, dtype=F64)),
        ):
            with pytest.raises(ValueError, match="Conformal"):
                Conformal.from_tensors(record.tensors() | {name: value})

    def test_a_pipeline_is_calibrated_at_its_last_step(self):
        X, y = rows(60)
        pipe = make_pipeline(StandardScaler(), clone(KINDS["mixture"])).fit(X, y)
        pipe[-1].conformalize(pipe[:-1].transform(X), y)
        assert pipe[-1].predict_region(pipe[:-1].transform(X)).contains(y).sum() == 55

    def test_data_frames(self):
        X, y = rows(60)
        X, y = pd.DataFrame(X, columns=["a", "b"]), pd.Series(y, name="price")
        model = clone(KINDS["mixture"]).fit(X, y).conformalize(X, y).conformalize(X, y, cv=2)
        assert model.predict_interval(X).shape == (60, 2)


X, Y = rows(60)
# What conformalize is handed, and a part of its sentence.
BAD = {
    "other columns": ({"X": X[:, :1]}, "X has 1 features, but .* is expecting 2"),
    "other targets": ({"y": np.stack([Y, Y], 1)}, "y must have 1 target, as in fit; got 2"),
    "other rows": ({"y": Y[:5]}, "the same number of rows, got 60 and 5"),
    "no rows": ({"X": X[:0], "y": Y[:0]}, r"0 sample\(s\)"),
    "no y": ({"y": None}, "requires y to be passed"),
    "NaN in y": ({"y": np.where(Y > 0, Y, np.nan)}, "Input y contains NaN"),
    "NaN in X": ({"X": np.where(X > 0, X, np.nan)}, "Input X contains NaN"),
    "time without folds": ({"time": np.arange(60)}, "time is for cv"),
    "weights without folds": ({"sample_weight": np.ones(60)}, "sample_weight is for cv"),
    "groups and time": ({"groups": Y, "time": Y}, "groups and time cannot be combined"),
    "groups of other rows": ({"groups": Y[:3]}, "groups must have one value for each row, got 3 for 60"),
    "times of other rows": ({"time": Y[:3], "cv": 2}, "time must have one value for each row, got 3"),
    "missing times": ({"time": np.full(60, np.nan), "cv": 2}, "time must have a value in every row"),
    "too few groups": ({"groups": np.arange(60) % 3, "cv": 5}, "as many different labels as .* folds, got 3"),
    "too few times": ({"time": np.arange(60) % 3, "cv": 5}, "at least 6 different values for 5 folds"),
    "too few rows": ({"cv": 61}, "60 rows are too few for 61 folds"),
    "one fold": ({"cv": 1}, "cv must be None or the number of folds, .* got 1"),
    "half a fold": ({"cv": 2.5}, "cv must be None or the number of folds, .* got 2.5"),
    "true folds": ({"cv": True}, "cv must be None or the number of folds, .* got True"),
    "an object of folds": ({"cv": KFold(3)}, "cv must be None or the number of folds"),
    "negative weights": ({"cv": 2, "sample_weight": -np.ones(60)}, "sample_weight must not be negative"),
}


class TestBadInput:
    @pytest.mark.parametrize("case", BAD)
    def test_it_is_refused_in_a_sentence_and_changes_nothing(self, model, case):
        found = calibrated(model)
        before = found.conformal_
        arguments, sentence = BAD[case]
        with pytest.raises(ValueError, match=sentence):
            found.conformalize(**{"X": X, "y": Y, **arguments})
        assert found.conformal_ is before

    @pytest.mark.parametrize("ask", ["conformalize", "predict_interval", "predict_region"])
    def test_an_unfitted_model_is_refused(self, ask):
        arguments = (X, Y) if ask == "conformalize" else (X,)
        with pytest.raises(NotFittedError):
            getattr(clone(KINDS["mixture"]), ask)(*arguments)

    def test_too_few_rows_for_the_coverage_are_named(self, model):
        found = calibrated(model, 12)
        for ask in (found.predict_interval, found.predict_region):
            sentence = (
                r"coverage=0.95 needs at least 19 rows in conformalize, and there were 12.* at most 0.923"
            )
            with pytest.raises(ValueError, match=sentence):
                ask(X, 0.95)
            ask(X, 0.923)
        for n, coverage in ((9, 0.9), (19, 0.95), (99, 0.99), (999, 0.999)):
            scores = torch.arange(n, dtype=F64)
            assert Conformal.of(scores[:, None], scores, Grouping(n)).region_score(coverage) == n - 1
            fewer = Conformal.of(scores[1:, None], scores[1:], Grouping(n - 1))
            with pytest.raises(ValueError, match=f"needs at least {n} rows in conformalize"):
                fewer.region_score(coverage)

    @pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, math.nan, "a", None])
    def test_a_coverage_that_is_no_share_is_refused(self, model, coverage):
        for found in (model, calibrated(model)):
            for ask in (found.predict_interval, found.predict_region):
                with pytest.raises((ValueError, TypeError), match="coverage"):
                    ask(X, coverage)

    def test_targets_beyond_the_bounds_are_refused(self):
        model = clone(KINDS["mixture"]).set_params(bounds=(-50, 50)).fit(X, Y)
        with pytest.raises(ValueError, match="y must lie within bounds"):
            model.conformalize(X, 100 + Y)

    @pytest.mark.parametrize("n_before", [0, 1])
    def test_an_interrupt_changes_nothing(self, model, n_before, monkeypatch):
        found, calls = calibrated(model), []
        before, fit = found.conformal_, type(found).fit

        def interrupted(self, *arguments, **named):
            fit(self, *arguments, **named)
            calls.append(1)
            self.interrupted_ = len(calls) > n_before
            return self

        monkeypatch.setattr(type(found), "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            found.conformalize(X, Y, cv=3)
        assert found.conformal_ is before

    def test_unreliable_rows_are_scored_and_named(self):
        X, y = rows(60, D=2)
        model = clone(KINDS["energy"]).fit(X, y)
        far = np.concatenate([X, 1e3 * X[:3]]), np.concatenate([y, y[:3]])
        try:
            model.conformalize(*far)
        except TrustWarning:
            return  # as an error, by the settings of the tests
        assert not torch.isnan(model.conformal_.region_scores).any()


class TestBenchmark:
    def test_a_file_of_runs_is_read_as_it_was_written(self, tmp_path):
        run = Run("table", 3, "method", 5, 10, 0.8, 0.9, 0.95, 1.0, 2.0, 3.0, unreliable=0.5)
        path = tmp_path / "new" / "runs.csv"
        CsvStore(path, Run).add(run)
        found = CsvStore(path, Run).read()[run.key]
        assert found.coverage_90 == 0.9
        assert math.isnan(found.unusual)

    def test_the_report_marks_coverage_within_two_standard_errors(self):
        values = {"a": (0.88, 0.92), "b": (0.80, 0.81)}
        runs = [
            Run("table", i, name, 0, 10, value, value, value, 1, 2, 3, fit_seconds=1.5)
            for name, own in values.items()
            for i, value in enumerate(own)
        ]
        text = report.report(runs)
        lines = {line.split(" |")[0]: line for line in text.splitlines()}
        assert "0.900 ± 0.020 ✓" in lines["| a"]
        assert "0.805 ± 0.005 ✓" in lines["| b"]  # of 80 %
        assert lines["| b"].count("✓") == 1
        assert "2 splits with 10 test rows" in text
        assert report.mean_and_error([1.0, 3.0]) == (2.0, 1.0)

    def test_sets_are_unions_of_intervals(self):
        parts = [np.array([[0.0, 1.0], [2.0, 4.0]]), np.array([[0.0, 1.0]])]
        assert sets.coverage(parts, np.array([3.0, 1.5])) == 0.5
        assert sets.sizes(parts).mean() == 2.0
