"""The regressors keep scikit-learn's contract, and their own: shapes, names, seeds, independent rows."""

import copy
import inspect
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from ebreg import EnergyRegressor, MixtureDensityRegressor, metrics
from ebreg.errors import TiesWarning
from ebreg.estimators import defaults
from ebreg.estimators.bounds import parse_bounds
from ebreg.estimators.rows import Rows
from ebreg.estimators.ties import Ties
from ebreg.training import fit
from ebreg.training.progress_bar import progress_bar

QUICK = {
    "max_iter": 2,
    "width": 8,
    "n_components": 2,
    "n_draws": 4,
    "random_state": 0,
    "verbose": False,
}
# Just enough training to learn a line.
LEARNING = {**QUICK, "max_iter": 5, "learning_rate": 5e-2, "random_state": None}
WITHOUT_VALIDATION = {**LEARNING, "early_stopping": False}
FIXED = {**WITHOUT_VALIDATION, "n_draws": 8, "max_iter": 10, "width": 16}
# The defaults, with members, and the paper's method, with one.
KINDS = {
    "energy": EnergyRegressor(**QUICK),
    "joint": EnergyRegressor("joint-nce", **QUICK),
    "mixture": MixtureDensityRegressor(**QUICK),
}


def table(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + 0.3 * rng.normal(size=n)


def reshaped(y: np.ndarray, form: str) -> np.ndarray:
    return {"(n,)": y, "(n, 1)": y[:, None], "(n, 2)": np.stack([y, -2 * y], axis=1)}[form]


FORMS = {"(n,)": (), "(n, 1)": (1,), "(n, 2)": (2,)}
X, Y = table()
NEW = table(3, seed=1)[0]


@pytest.fixture(params=KINDS)
def regressor(request):
    return clone(KINDS[request.param])


@pytest.fixture(scope="module")
def fitted():
    """Regressors by kind and form of y, each fitted once and not to be changed."""
    known = {}

    def get(kind: str, form: str = "(n,)"):
        if (kind, form) not in known:
            known[kind, form] = clone(KINDS[kind]).fit(X, reshaped(Y, form))
        return known[kind, form]

    return get


class TestScikitLearn:
    @parametrize_with_checks(
        [EnergyRegressor(**{**LEARNING, "max_iter": 4, "width": 16, "learning_rate": 0.1})],
        expected_failed_checks=lambda _: {
            "check_sample_weight_equivalence_on_dense_data": (
                "a row of weight 2 and a row that is there twice fall into minibatches differently"
            )
        },
    )
    @pytest.mark.filterwarnings("ignore::ebreg.errors.TiesWarning")  # its targets are integers
    @pytest.mark.filterwarnings("ignore::ebreg.errors.TrustWarning")  # and these trainings too short
    def test_every_check_of_scikit_learn_passes(self, estimator, check):
        check(estimator)

    # They share one fit path with those above; the method is what differs.
    @pytest.mark.parametrize(
        "check",
        [
            "check_regressors_train",
            "check_regressor_multioutput",
            "check_fit2d_1sample",
            "check_estimators_pickle",
            "check_parameters_default_constructible",
        ],
    )
    @pytest.mark.parametrize(
        "estimator",
        [
            EnergyRegressor("joint-mle", **WITHOUT_VALIDATION),
            EnergyRegressor("fixed-nce", **FIXED),
            EnergyRegressor("fixed-mle", **FIXED),
            MixtureDensityRegressor("energy", **WITHOUT_VALIDATION),
            MixtureDensityRegressor(None, **WITHOUT_VALIDATION),
        ],
        ids=["joint-mle", "fixed-nce", "fixed-mle", "teacher", "mixture"],
    )
    @pytest.mark.filterwarnings("ignore::ebreg.errors.TiesWarning")
    @pytest.mark.filterwarnings("ignore::ebreg.errors.TrustWarning")
    def test_every_method_learns(self, estimator, check):
        getattr(estimator_checks, check)(type(estimator).__name__, estimator)

    def test_a_clone_has_the_parameters_and_nothing_learned(self, fitted):
        copied = clone(fitted("energy"))
        assert copied.get_params() == fitted("energy").get_params()
        with pytest.raises(NotFittedError):
            copied.predict(NEW)

    def test_a_pipeline_hands_return_std_on(self, regressor):
        pipeline = make_pipeline(StandardScaler(), regressor).fit(X, Y)
        mean, std = pipeline.predict(NEW, return_std=True)
        assert mean.shape == std.shape == (3,)
        np.testing.assert_array_equal(mean, pipeline.predict(NEW))

    def test_a_grid_search_tries_its_parameters(self, regressor):
        search = GridSearchCV(regressor, {"learning_rate": [1e-3, 1e-2]}, cv=2).fit(X, Y)
        assert search.best_params_["learning_rate"] in (1e-3, 1e-2)
        assert search.predict(NEW).shape == (3,)

    @pytest.mark.parametrize("scoring", [None, metrics.nll_scorer, metrics.crps_scorer])
    def test_cross_validation_scores_by_r2_and_by_proper_scores(self, regressor, scoring):
        scores = cross_val_score(regressor, X, Y, cv=2, scoring=scoring)
        assert np.isfinite(scores).all()

    def test_targets_may_be_transformed(self, regressor):
        positive = np.exp(Y)
        outer = TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp).fit(X, positive)
        assert (outer.predict(NEW) > 0).all()


class TestWorkers:
    @pytest.mark.slow  # two processes import torch
    def test_workers_show_no_bars_and_share_the_threads(self, monkeypatch, capfd):
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        loud = clone(KINDS["energy"]).set_params(verbose=True)
        scores = cross_val_score(loud, X, Y, cv=2, n_jobs=2)
        assert np.isfinite(scores).all()
        assert capfd.readouterr() == ("", "")
        threads = joblib.Parallel(n_jobs=2)(joblib.delayed(torch.get_num_threads)() for _ in range(2))
        assert threads == [max(1, joblib.cpu_count() // 2)] * 2

    def test_processes_with_a_parent_show_no_bars(self, monkeypatch, capfd):
        monkeypatch.setattr("multiprocessing.parent_process", object)
        clone(KINDS["mixture"]).set_params(verbose=True).fit(X, Y)
        assert capfd.readouterr() == ("", "")

    def test_threads_show_no_bars(self, capfd):
        loud = clone(KINDS["mixture"]).set_params(verbose=True)
        thread = threading.Thread(target=loud.fit, args=(X, Y))
        thread.start()
        thread.join()
        assert hasattr(loud, "model_")
        assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
class TestShapes:
    def test_of_the_regressors_verbs(self, fitted, kind, form):
        reg, t = fitted(kind, form), FORMS[form]
        assert reg.predict(NEW).shape == (3, *t)
        assert [part.shape for part in reg.predict(NEW, return_std=True)] == [(3, *t)] * 2
        assert reg.predict_quantiles(NEW).shape == (3, 5, *t)
        assert reg.predict_quantiles(NEW, [0.1, 0.9]).shape == (3, 2, *t)
        assert reg.predict_quantiles(NEW, 0.5).shape == (3, 1, *t)
        assert reg.predict_interval(NEW).shape == (3, 2, *t)
        assert reg.sample(NEW).shape == (1, 3, *t)
        assert reg.sample(NEW, 3).shape == (3, 3, *t)
        assert reg.log_prob(NEW, reshaped(Y[:3], form)).shape == (3,)
        assert np.isscalar(reg.score(NEW, reshaped(Y[:3], form)))

    def test_of_the_distributions_verbs(self, fitted, kind, form):
        dist, t = fitted(kind, form).predict_distribution(NEW), FORMS[form]
        D = t[0] if t else 1
        y = reshaped(Y[:3], form)
        assert len(dist) == 3
        assert dist.n_targets == D
        assert dist.mean.shape == dist.variance.shape == dist.stddev.shape == (3, *t)
        assert dist.covariance.shape == (3, D, D)
        assert dist.log_prob(y).shape == dist.cdf(y).shape == (3,)
        assert dist.log_prob(np.stack([y, y, y])).shape == (3, 3)
        assert dist.quantile(0.5).shape == (3, *t)
        assert dist.quantile([0.1, 0.9]).shape == (2, 3, *t)
        assert dist.interval(0.5).shape == (3, 2, *t)
        assert dist.sample(4).shape == (4, 3, *t)
        assert dist.sample(0).shape == (0, 3, *t)
        assert dist.expectation(np.square).shape == (3, *t)
        assert dist.expectation(lambda y: y.reshape(*y.shape[:2], -1).sum(-1)).shape == (3,)
        assert dist.apply(lambda p, y: p.log_prob(y), y).shape == (3,)
        for trust in (
            "effective_sample_size",
            "pareto_k",
            "log_partition",
            "log_partition_error",
            "unreliable",
            "unusual",
            "unusual_score",
        ):
            assert getattr(dist, trust).shape == (3,)

    def test_of_modes_and_regions(self, fitted, kind, form):
        dist, t = fitted(kind, form).predict_distribution(NEW), FORMS[form]
        modes = dist.modes()
        assert len(modes) == 3
        for row in modes:
            assert row.locations.shape == (len(row), *t)
            assert row.masses.shape == row.log_densities.shape == (len(row),)
            assert row.masses.sum() == pytest.approx(1)
        region = dist.highest_density_region(0.5)
        assert region.log_threshold.shape == (3,)
        assert region.contains(dist.mean).shape == (3,)
        if form == "(n, 2)":
            assert region.intervals is None
        else:
            assert [row.shape[1] for row in region.intervals] == [2] * 3

    def test_of_some_rows(self, fitted, kind, form):
        dist, t = fitted(kind, form).predict_distribution(NEW), FORMS[form]
        for rows, n in ((slice(1, 3), 2), (-1, 1), ([0, 2, 2], 3), (np.arange(3) > 1, 1)):
            assert dist[rows].mean.shape == (n, *t)
            np.testing.assert_allclose(dist[rows].mean, dist.mean[rows].reshape(n, *t), rtol=1e-10)

    def test_of_tables(self, fitted, kind, form):
        frame = fitted(kind, form).predict_distribution(NEW).to_frame(quantiles=[0.1, 0.9])
        own = ["mean", "std", "q0.1", "q0.9", "epistemic_share"]
        named = [f"y{d} {name}" for d in range(2) for name in own] if form == "(n, 2)" else own
        diagnostics = ["effective_sample_size", "log_partition_error", "unreliable", "unusual"]
        assert list(frame) == [*named, *diagnostics]
        assert len(frame) == 3

    def test_of_no_rows(self, fitted, kind, form):
        reg, t = fitted(kind, form), FORMS[form]
        assert reg.predict(NEW[:0]).shape == (0, *t)
        assert reg.predict_quantiles(NEW[:0], [0.1, 0.9]).shape == (0, 2, *t)
        assert reg.sample(NEW[:0], 3).shape == (3, 0, *t)
        assert len(reg.predict_distribution(NEW[:0]).modes()) == 0
        assert reg.predict_distribution(NEW[:0]).to_frame().shape[0] == 0


class TestPandas:
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=[f"row {i}" for i in range(len(X))])

    def test_index_and_names_are_kept(self, regressor):
        regressor.fit(self.frame, pd.Series(Y, name="price", index=self.frame.index))
        out = regressor.predict_distribution(self.frame[3:6]).to_frame()
        assert list(out.index) == ["row 3", "row 4", "row 5"]
        assert list(out)[:2] == ["price mean", "price std"]
        assert list(regressor.feature_names_in_) == ["a", "b", "c"]
        assert regressor.target_names_ == ["price"]
        assert isinstance(regressor.predict(self.frame), np.ndarray)

    def test_some_rows_keep_their_labels(self, regressor):
        dist = regressor.fit(self.frame, Y).predict_distribution(self.frame)
        assert list(dist[[4, 2]].to_frame().index) == ["row 4", "row 2"]

    def test_targets_of_a_frame_keep_their_names(self, regressor):
        y = pd.DataFrame({"u": Y, "v": -Y}, index=self.frame.index)
        regressor.fit(self.frame, y)
        out = regressor.predict_distribution(self.frame[:2]).to_frame(quantiles=[0.5])
        named = ["mean", "std", "q0.5", "epistemic_share"]
        assert list(out)[:8] == [f"{target} {name}" for target in "uv" for name in named]
        assert regressor.log_prob(self.frame[:2], y[:2]).shape == (2,)

    def test_a_series_without_a_name_gives_plain_columns(self, regressor):
        out = regressor.fit(self.frame, pd.Series(Y)).predict_distribution(self.frame).to_frame()
        assert list(out)[:2] == ["mean", "std"]

    def test_other_columns_are_refused(self, regressor):
        regressor.fit(self.frame, Y)
        with pytest.raises(ValueError, match="feature names"):
            regressor.predict(self.frame.rename(columns={"a": "z"}))
        with pytest.raises(ValueError, match="feature names"):
            regressor.predict(self.frame[["b", "a", "c"]])

    def test_names_change_no_answer(self, regressor):
        from_frame = clone(regressor).fit(self.frame, pd.Series(Y)).predict(self.frame)
        np.testing.assert_array_equal(from_frame, regressor.fit(X, Y).predict(X))


class TestRandomness:
    @pytest.mark.parametrize("seed", [0, np.random.RandomState(3)])
    def test_a_seed_gives_the_same_fit(self, regressor, seed):
        fits = [clone(regressor).set_params(random_state=copy.deepcopy(seed)).fit(X, Y) for _ in range(2)]
        np.testing.assert_array_equal(fits[0].predict(NEW), fits[1].predict(NEW))
        other = clone(regressor).set_params(random_state=17).fit(X, Y)
        assert not np.array_equal(fits[0].predict(NEW), other.predict(NEW))

    def test_a_seed_gives_the_same_sample(self, fitted):
        reg = fitted("energy")
        np.testing.assert_array_equal(reg.sample(NEW, 3, random_state=1), reg.sample(NEW, 3, random_state=1))
        assert not np.array_equal(reg.sample(NEW, 3, random_state=1), reg.sample(NEW, 3, random_state=2))

    def test_nobody_elses_random_numbers_change(self, regressor, tmp_path):
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        regressor.fit(X, Y)
        regressor.sample(NEW, 2, random_state=0)
        regressor.predict_interval(NEW)
        regressor.save(tmp_path / "model")
        from ebreg import load

        load(tmp_path / "model")
        assert torch.equal(before[0], torch.get_rng_state())
        np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


class TestInputsStayAsTheyAre:
    def test_arrays_are_not_written_to(self, regressor):
        x, y, w = X.copy(), Y.copy(), np.linspace(0, 1, len(Y))
        for array in (x, y, w):
            array.flags.writeable = False  # torch warns of such arrays unless they are copied
        regressor.fit(x, y, sample_weight=w).predict(x)
        np.testing.assert_array_equal(x, X)

    def test_a_prediction_does_not_change_with_the_array_it_was_made_for(self, fitted):
        x = NEW.copy()
        dist = fitted("energy").predict_distribution(x)
        x[:] = 0
        np.testing.assert_array_equal(dist.mean, fitted("energy").predict(NEW))

    @pytest.mark.parametrize(
        "form",
        [
            lambda a: a.tolist(),
            lambda a: a[::-1][::-1],
            np.asfortranarray,
            torch.from_numpy,
            lambda a: torch.tensor(a, requires_grad=True),
        ],
        ids=["lists", "reversed", "fortran", "tensors", "tensors with gradients"],
    )
    def test_any_kind_of_array_gives_the_same_fit(self, regressor, form):
        expected = clone(regressor).fit(X, Y).predict(NEW)
        np.testing.assert_array_equal(regressor.fit(form(X), form(Y)).predict(form(NEW)), expected)

    @pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_, np.float32, np.float16])
    @pytest.mark.filterwarnings("ignore::ebreg.errors.TiesWarning")
    def test_any_kind_of_number_is_taken(self, regressor, dtype):
        x, y = (10 * X).astype(dtype), (10 * Y).astype(dtype)
        np.testing.assert_array_equal(
            clone(regressor).fit(x, y).predict(x),
            regressor.fit(x.astype(np.float64), y.astype(np.float64)).predict(x.astype(np.float64)),
        )


class Pixels(nn.Module):
    """Images of bytes to features."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x.float() / 255)).relu().mean(dim=(2, 3))


def seeded(module: type[nn.Module], *args, **settings) -> nn.Module:
    """A module whose weights do not depend on what was imported before."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return module(*args, **settings)


class TestBackbone:
    images = np.random.default_rng(0).integers(0, 256, size=(40, 3, 5, 6), dtype=np.uint8)
    tokens = np.random.default_rng(0).integers(0, 10, size=(40, 7))

    @pytest.mark.parametrize(
        ("module", "x"),
        [
            (seeded(Pixels), images),
            (seeded(nn.EmbeddingBag, 10, 6), tokens),
            (nn.Sequential(nn.Flatten(), seeded(nn.Linear, 90, 4)), images.astype(np.float32)),
            (nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), images.astype(np.float64)),
            (nn.Flatten(), images[..., 0].astype(np.float64) / 255),
            (seeded(nn.Linear, 3, 4, dtype=torch.float64), X),
        ],
        ids=["images", "tokens", "float32", "lazy", "without parameters", "in double"],
    )
    @pytest.mark.filterwarnings("ignore:the training diverged")  # of two epochs that is true
    # Torch says that lazy modules may change, of which nothing is used.
    @pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
    def test_images_and_sequences_pass_through_it(self, module, x):
        for base in (*KINDS.values(), MixtureDensityRegressor("energy", **QUICK)):
            reg = clone(base).set_params(backbone=module).fit(x, Y)
            mean, std = reg.predict(x, return_std=True)
            assert mean.shape == std.shape == (40,)
            assert np.isfinite(mean).all()
            assert np.isfinite(std).all()
            np.testing.assert_allclose(reg.predict(x[3:4]), mean[3:4], rtol=1e-5)

    def test_a_copy_of_it_is_trained(self, regressor):
        module = Pixels()
        before = copy.deepcopy(module.state_dict())
        regressor.set_params(backbone=module).fit(self.images, Y)
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        assert module.training
        assert not torch.equal(regressor.model_.backbone.conv.weight, module.conv.weight)
        assert regressor.backbone is module

    def test_examples_of_another_shape_are_refused(self):
        reg = clone(KINDS["mixture"]).set_params(backbone=Pixels()).fit(self.images, Y)
        with pytest.raises(ValueError, match=r"examples of shape \(3, 5, 5\); the model was fitted on"):
            reg.predict(self.images[..., :5])

    def test_views_and_read_only_examples_are_taken(self):
        reg = clone(KINDS["mixture"]).set_params(backbone=Pixels()).fit(self.images, Y)
        frozen = self.images.copy()
        frozen.flags.writeable = False
        np.testing.assert_array_equal(reg.predict(frozen), reg.predict(self.images))
        np.testing.assert_allclose(reg.predict(self.images[::-1]), reg.predict(self.images)[::-1], rtol=1e-5)

    def test_cross_validation_takes_images(self):
        reg = clone(KINDS["mixture"]).set_params(backbone=Pixels())
        assert np.isfinite(cross_val_score(reg, self.images, Y, cv=2)).all()

    def test_a_warm_start_leaves_its_dtype(self):
        reg = clone(KINDS["energy"]).set_params(
            backbone=nn.Linear(3, 4, dtype=torch.float64), warm_start=True
        )
        reg.fit(X, Y).fit(X, Y)
        assert reg.model_.backbone.weight.dtype == torch.float64


class TestRecipe:
    def members(self, regressor) -> tuple[int, tuple[float, ...], str]:
        """Number and dropout of the members, and the method."""
        recipe = regressor._recipe()
        return recipe.n_members, recipe.member_dropout, regressor._method_name

    @pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
    def test_presets(self, kind):
        method = "residual-nce" if kind is EnergyRegressor else "mdn-nll"
        for preset, n in (("fast", 4), ("default", 8), ("best", 16)):
            assert self.members(kind(preset=preset)) == (n, (0.0, 0.1) * (n // 2), method)
        assert self.members(kind()) == self.members(kind(preset="default"))
        assert self.members(kind(n_members=3)) == (3, (0.0, 0.1, 0.0), method)
        assert self.members(kind(n_members=1)) == (1, (), method)
        assert self.members(kind(n_members=2, dropout=0.3)) == (2, (0.3, 0.3), method)
        assert self.members(kind(dropout=0)) == (8, (), method)

    def test_the_papers_methods_and_other_networks_have_one_member(self):
        for name in ("joint-nce", "joint-mle", "fixed-nce", "fixed-mle"):
            assert self.members(EnergyRegressor(name)) == (1, (), name)
            assert self.members(EnergyRegressor(name, n_members=2, dropout=0)) == (2, (), name)
        assert self.members(MixtureDensityRegressor("energy")) == (1, (), "mdn-teacher")
        assert self.members(EnergyRegressor(proposal="flow")) == (1, (), "joint-nce")
        assert self.members(EnergyRegressor(energy=nn.Identity())) == (1, (), "joint-nce")
        assert self.members(EnergyRegressor(backbone=nn.Identity())) == (1, (), "residual-nce")
        assert self.members(EnergyRegressor("residual-nce", proposal="flow")) == (1, (), "residual-nce")

    @pytest.mark.parametrize("heads", [{"proposal": "full-mixture"}, {"energy": nn.Identity()}])
    def test_other_heads_cannot_have_several(self, heads):
        with pytest.raises(
            ValueError, match=f"n_members must be 1 with a {next(iter(heads))} of your choice"
        ):
            EnergyRegressor(n_members=2, **heads, **QUICK).fit(X, Y)

    def test_settings_that_are_given_are_used(self):
        reg = EnergyRegressor(n_draws=7, learning_rate=0.01, refit=False)
        recipe = reg._recipe()
        assert (recipe.n_draws, recipe.pace.learning_rate, recipe.refit) == (7, 0.01, False)
        recipe = EnergyRegressor()._recipe()
        assert (recipe.n_draws, recipe.pace.learning_rate, recipe.refit) == (4, 0.005, True)
        recipe = EnergyRegressor("joint-nce")._recipe()
        assert (recipe.n_draws, recipe.pace.learning_rate, recipe.refit) == (None, 0.002, True)


class TestValidation:
    def test_rows_are_set_aside_by_their_number(self):
        n = [defaults.n_validation(n) for n in range(1, 51)]
        assert n[:14] == [0] * 14
        assert n[14:] == [min(20, rows // 3) for rows in range(15, 51)]
        assert defaults.n_validation(1000) == 100
        assert defaults.n_validation(10**6) == 4000

    @pytest.mark.parametrize("fraction", [0.25, np.float32(0.25)])
    def test_a_share_of_rows_may_be_set_aside(self, fraction):
        assert defaults.n_validation(100, fraction) == 25
        assert defaults.n_validation(2, fraction) == 1

    @pytest.mark.parametrize(("n", "fraction", "n_validation"), [(10, 0.7, 7), (40, "auto", 13)])
    def test_the_split_takes_every_row_once(self, n, fraction, n_validation):
        x = torch.arange(n, dtype=torch.float64)[:, None]
        rows = Rows.of(x, x, None, parse_bounds(None, 1), seed=1)
        train, validation = rows.split(fraction)
        assert len(validation) == n_validation
        assert sorted([*train.x[:, 0].tolist(), *validation.x[:, 0].tolist()]) == list(range(n))

    def test_an_epoch_that_was_validated_is_kept(self, regressor):
        regressor.set_params(max_iter=4).fit(X, Y)
        assert regressor.n_iter_ == 4
        assert all("validation_nll" in entry for entry in regressor.history_[:4])
        best, E = regressor.best_epoch_, regressor.design_.n_members
        epochs = best if E > 1 else [best]
        assert len(epochs) == E
        assert set(epochs) <= set(range(4))

    def test_training_stops_when_nothing_gets_better(self, regressor):
        regressor.set_params(max_iter=60, n_iter_no_change=1, learning_rate=0.3).fit(X, Y)
        assert regressor.n_iter_ < 60
        nlls = [entry.get("validation_nll", np.inf) for entry in regressor.history_[: regressor.n_iter_]]
        assert regressor.n_iter_ - 1 - np.argmin(nlls) > 0

    def test_without_early_stopping_every_row_trains(self, regressor):
        regressor.set_params(early_stopping=False).fit(X, Y)
        assert regressor.best_epoch_ is None
        assert regressor.n_iter_ == 2
        assert not any("validation_nll" in entry for entry in regressor.history_)

    def test_rows_for_it_may_be_given(self, regressor):
        regressor.fit(X, Y, validation=table(10, seed=2))
        own = clone(regressor).fit(X, Y, validation=table(10, seed=3))
        nlls = [reg.history_[0]["validation_nll"] for reg in (regressor, own)]
        assert nlls[0] != nlls[1]
        # The losses show that neither set took rows from the training.
        losses = [
            {name: loss for name, loss in reg.history_[0].items() if not name.startswith("validation_nll")}
            for reg in (regressor, own)
        ]
        assert losses[0] == losses[1] != {}


class TestWarmStart:
    @pytest.mark.parametrize("method", [None, "joint-nce"])
    def test_goes_on_from_what_was_learned(self, method):
        reg = EnergyRegressor(method, **{**QUICK, "learning_rate": 1e-9}, warm_start=True).fit(X, Y)
        first, weights = reg.predict(NEW), list(reg.model_.parameters())
        reg.set_params(random_state=5).fit(X, Y)
        for before, after in zip(weights, reg.model_.parameters(), strict=True):
            torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)
        # Members are weighted by their validation rows, and these are others now.
        np.testing.assert_allclose(reg.predict(NEW), first, rtol=1e-5, atol=0 if method else 0.02)
        cold = next(reg.set_params(warm_start=False).fit(X, Y).model_.parameters())
        assert not torch.allclose(cold, weights[0], rtol=0.1)

    def test_keeps_units_and_bounds(self):
        reg = EnergyRegressor(**QUICK, warm_start=True, bounds=(-10, 10)).fit(X, Y)
        scale = reg.model_.y_units.scale.clone()
        reg.fit(X, 2 * Y)
        assert torch.equal(reg.model_.y_units.scale, scale)
        with pytest.raises(ValueError, match="y must lie within bounds"):
            reg.fit(X, Y + 20)

    def test_refuses_another_number_of_targets(self, fitted):
        reg = copy.deepcopy(fitted("energy")).set_params(warm_start=True)
        with pytest.raises(ValueError, match="set warm_start=False to train a new model"):
            reg.fit(X, np.stack([Y, Y], axis=1))

    @pytest.mark.parametrize(
        "changed",
        [{"width": 9}, {"n_components": 3}, {"n_members": 2}, {"dropout": 0.2}, {"bounds": (-10, 10)}],
    )
    def test_refuses_what_it_cannot_change(self, fitted, changed):
        reg = copy.deepcopy(fitted("energy")).set_params(warm_start=True, **changed)
        with pytest.raises(
            ValueError, match=f"{next(iter(changed))}.*set warm_start=False to train a new model"
        ):
            reg.fit(X, Y)

    def test_refuses_another_kind_of_energy(self):
        reg = EnergyRegressor("residual-nce", n_members=1, warm_start=True, **QUICK).fit(X, Y)
        with pytest.raises(
            ValueError, match=r"method is joint-nce, which trains another model.*set warm_start"
        ):
            reg.set_params(method="joint-nce").fit(X, Y)

    def test_after_a_failed_fit_the_old_model_answers(self, fitted):
        reg = copy.deepcopy(fitted("energy"))
        before = reg.predict(NEW)
        with pytest.raises(ValueError, match="learning_rate"):
            reg.set_params(learning_rate=-1.0, width=4).fit(X, Y)
        np.testing.assert_array_equal(reg.predict(NEW), before)
        assert reg.design_.width == QUICK["width"]


class TestWeights:
    def test_move_the_density_towards_what_counts(self, regressor):
        rng = np.random.default_rng(0)
        y = np.where(np.arange(100) % 2, 1.0, -1.0) + 0.1 * rng.normal(size=100)
        x = rng.normal(size=(100, 1))
        regressor.set_params(max_iter=25, learning_rate=3e-2)
        below = {}
        for share in (0.1, 0.9):
            weights = np.where(y < 0, share, 1 - share)
            dist = clone(regressor).fit(x, y, sample_weight=weights).predict_distribution(x[:20])
            below[share] = dist.cdf(np.zeros(20)).mean()
        assert below[0.1] == pytest.approx(0.1, abs=0.15)
        assert below[0.9] == pytest.approx(0.9, abs=0.15)

    def test_their_unit_does_not_matter(self, regressor):
        weights = np.linspace(1, 2, len(Y))
        answers = [clone(regressor).fit(X, Y, sample_weight=c * weights).predict(NEW) for c in (1, 1024)]
        np.testing.assert_allclose(*answers, rtol=1e-12)

    # Rounded targets too: how far apart they are must not depend on rows that do not count.
    @pytest.mark.filterwarnings("ignore::ebreg.errors.TiesWarning")
    @pytest.mark.parametrize("y", [Y, Y.round(1)], ids=["continuous", "rounded"])
    def test_of_zero_are_as_if_left_out(self, regressor, y):
        counts = np.arange(len(y)) % 4 > 0
        far = np.where(counts, y, 1e6)
        with_zeros = clone(regressor).fit(X, far, sample_weight=counts.astype(float))
        np.testing.assert_array_equal(
            with_zeros.predict(NEW), regressor.fit(X[counts], y[counts]).predict(NEW)
        )


class TestTies:
    def test_rounded_targets_are_pointed_out_where_fit_is_called(self, regressor):
        with pytest.warns(TiesWarning, match="many targets have the same value") as record:
            regressor.fit(X, Y.round())
        assert record[0].filename == __file__

    @pytest.mark.filterwarnings("ignore::ebreg.errors.TiesWarning")
    def test_counts_stay_within_their_bounds(self, regressor):
        counts = np.random.default_rng(0).poisson(1.0, size=len(X))
        sample = regressor.set_params(bounds=(0, None)).fit(X, counts).sample(NEW, 50, random_state=0)
        assert (sample >= 0).all()

    def test_a_value_at_the_end_is_spread_over_the_half_of_its_cell_that_lies_inside(self):
        y = torch.tensor([0.0, 1.0, 2.0, 3.0]).repeat(50)[:, None].double()
        spread = Ties.of(y).spread(y, parse_bounds((0, 3), 1), seed=0)
        assert ((spread - y).abs() <= 0.5).all()
        assert ((spread > 0) & (spread < 3)).all()  # nothing piles up at the ends themselves

    def test_distinct_targets_are_left_as_they_are(self, recwarn, regressor):
        regressor.fit(X, Y)
        assert not recwarn.list


class TestVerbose:
    def terminal(self, monkeypatch):
        """Make stderr a terminal; in a fixture, pytest would replace it."""
        stream = io.StringIO()
        stream.isatty = lambda: True
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    def test_false_prints_nothing(self, regressor, capfd):
        regressor.fit(X, Y)
        regressor.predict(NEW)
        assert capfd.readouterr() == ("", "")

    def test_true_shows_a_bar_on_stderr_alone(self, regressor, capfd):
        regressor.set_params(verbose=True).fit(X, Y)
        out, err = capfd.readouterr()
        assert out == ""
        assert "step" in err
        assert "100%" in err

    def test_auto_is_the_default(self):
        assert all(kind().verbose == "auto" for kind in (EnergyRegressor, MixtureDensityRegressor))

    def test_auto_shows_nothing_of_a_short_fit_in_a_terminal(self, regressor, monkeypatch):
        terminal = self.terminal(monkeypatch)
        regressor.set_params(verbose="auto").fit(X, Y)
        assert terminal.getvalue() == ""

    def test_auto_shows_a_bar_of_a_long_fit_in_a_terminal(self, regressor, monkeypatch):
        terminal = self.terminal(monkeypatch)
        monkeypatch.setattr("ebreg.training.progress_bar.DELAY", 0.0)
        regressor.set_params(verbose="auto").fit(X, Y)
        assert "step" in terminal.getvalue()

    def test_auto_shows_nothing_where_stderr_is_a_file(self, regressor, capfd, monkeypatch):
        monkeypatch.setattr("ebreg.training.progress_bar.DELAY", 0.0)
        regressor.set_params(verbose="auto").fit(X, Y)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(("config", "shown"), [({"IPKernelApp": {}}, True), ({}, False)])
    def test_auto_shows_a_bar_in_a_notebook(self, monkeypatch, capfd, config, shown):
        shell = SimpleNamespace(config=config)
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
        with progress_bar("auto", "joint-nce", 5) as bar:
            assert bar.disable is not shown
            assert not shown or bar.delay == 2.0

    @pytest.mark.parametrize("value", ["yes", None, 2])
    def test_anything_else_is_refused(self, regressor, value):
        with pytest.raises(ValueError, match="verbose must be True, False or 'auto', got"):
            regressor.set_params(verbose=value).fit(X, Y)


class TestDocumentation:
    def arguments(self, kind) -> dict[str, str]:
        """The text of each argument in the docstring."""
        section = inspect.getdoc(kind).split("Args:\n")[1].split("Attributes:\n")[0]
        entries = re.findall(r"^    (\w+): (.*(?:\n      .*)*)", section, flags=re.MULTILINE)
        return {name: " ".join(text.split()) for name, text in entries}

    @pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
    def test_every_argument_is_documented_in_order(self, kind):
        assert list(self.arguments(kind)) == list(inspect.signature(kind).parameters)

    def test_what_both_have_is_the_same(self):
        energy, mixture = self.arguments(EnergyRegressor), self.arguments(MixtureDensityRegressor)
        different = {name for name in energy.keys() & mixture.keys() if energy[name] != mixture[name]}
        # Which have another meaning.
        assert different == {"n_components", "n_draws", "proposal", "preset", "n_members"}
        energy, mixture = (inspect.signature(kind) for kind in (EnergyRegressor, MixtureDensityRegressor))
        defaults = {name: parameter.default for name, parameter in energy.parameters.items()}
        for name, parameter in mixture.parameters.items():
            assert name in ("teacher", "n_draws") or parameter.default == defaults[name]


@pytest.mark.parametrize("form", ["(n,)", "(n, 2)"])
@pytest.mark.parametrize("kind", KINDS)
class TestARowHasItsOwnPrediction:
    many = table(34, seed=4)  # more than are computed at once with two targets

    def ask(self, reg, x, y) -> np.ndarray:
        """Predictions of some rows, one row each."""
        dist = reg.predict_distribution(x)
        quantiles = np.moveaxis(dist.quantile([0.05, 0.9]), 0, 1)
        columns = [dist.mean, dist.stddev, dist.log_prob(y), quantiles]
        return np.concatenate([column.reshape(len(x), -1) for column in columns], axis=1)

    def test_alone_in_a_batch_and_in_any_order(self, fitted, kind, form):
        reg, x = fitted(kind, form), self.many[0]
        y = reshaped(self.many[1], form)
        together = self.ask(reg, x, y)
        order = np.random.default_rng(0).permutation(len(x))
        np.testing.assert_allclose(self.ask(reg, x[order], y[order]), together[order], rtol=1e-10)
        for i in (0, 33):
            alone = self.ask(reg, x[[i]], y[[i]])
            np.testing.assert_allclose(alone, together[[i]], rtol=1e-10, atol=1e-12)

    def test_after_pickle_and_joblib(self, fitted, kind, form):
        reg, x, y = fitted(kind, form), NEW, reshaped(Y[:3], form)
        file = io.BytesIO()
        joblib.dump(reg, file)
        file.seek(0)
        for copied in (pickle.loads(pickle.dumps(reg)), joblib.load(file)):
            np.testing.assert_array_equal(self.ask(copied, x, y), self.ask(reg, x, y))


def test_another_process_gives_the_same_answers(fitted, tmp_path):
    expected = {}
    for kind, form in (("energy", "(n,)"), ("energy", "(n, 2)"), ("mixture", "(n,)")):
        reg, path = fitted(kind, form), str(tmp_path / f"{kind}{len(form)}")
        reg.save(path)
        expected[path] = [part.tolist() for part in reg.predict(NEW, return_std=True)]
    code = (
        "import json, sys, ebreg\n"
        "x, paths = json.load(sys.stdin)\n"
        "answers = {path: ebreg.load(path).predict(x, return_std=True) for path in paths}\n"
        "print(json.dumps({path: [part.tolist() for part in parts] for path, parts in answers.items()}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([NEW.tolist(), list(expected)]),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for path, answers in json.loads(run.stdout).items():
        for got, want in zip(answers, expected[path], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10)


def test_fits_in_threads_are_those_of_one_thread_and_leave_the_random_state():
    from joblib import Parallel, delayed

    def one() -> np.ndarray:
        return EnergyRegressor(**QUICK).fit(X, Y).predict(NEW)

    alone, before = one(), torch.random.get_rng_state()
    for answer in Parallel(n_jobs=2, backend="threading")(delayed(one)() for _ in range(4)):
        np.testing.assert_array_equal(answer, alone)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_fit_that_fails_changes_no_attribute(fitted):
    reg = copy.deepcopy(fitted("energy"))
    before = dict(vars(reg))
    with pytest.raises(ValueError, match="learning_rate"):  # which is found last
        reg.set_params(learning_rate=-1.0).fit(pd.DataFrame(np.c_[X, X]).add_prefix("a"), Y)
    assert vars(reg) == {**before, "learning_rate": -1.0}


def test_another_fit_leaves_nothing_of_the_one_before(regressor):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    regressor.fit(frame, pd.Series(Y, name="price")).fit(X, Y)
    assert not hasattr(regressor, "feature_names_in_")
    assert regressor.target_names_ is None
    regressor.set_params(backbone=nn.Linear(3, 2)).fit(X, Y)
    assert not hasattr(regressor, "n_features_in_")
    regressor.set_params(backbone=None).fit(X, Y)
    assert not hasattr(regressor, "input_shape_")


def test_a_fit_in_inference_mode_can_be_continued():
    reg = EnergyRegressor(**QUICK, warm_start=True)
    with torch.inference_mode():
        reg.fit(X, Y)
    assert not any(parameter.is_inference() for parameter in reg.model_.parameters())
    reg.fit(X, Y)


def test_validation_without_early_stopping_is_refused():
    with pytest.raises(ValueError, match="early_stopping=True"):
        EnergyRegressor(**{**QUICK, "early_stopping": False}).fit(X, Y, validation=(X, Y))


@pytest.mark.parametrize("training", [1, 2])
def test_ctrl_c_keeps_the_best_weights_and_says_so(regressor, monkeypatch, training):
    calls = []

    def interrupted(*args, **settings):
        calls.append(settings)
        if len(calls) == training:
            settings["after_epoch"] = lambda epoch: signal.raise_signal(signal.SIGINT)
        return fit(*args, **settings)

    monkeypatch.setattr("ebreg.estimators.trainer.fit", interrupted)
    with pytest.warns(UserWarning, match="the fit was interrupted") as caught:
        regressor.set_params(max_iter=3, learning_rate=0.1).fit(X, Y)
    assert regressor.interrupted_
    assert caught[0].filename == __file__
    assert len(calls) == training
    if training == 2:  # as if there had been no fine-tuning
        whole = clone(regressor).set_params(refit=False).fit(X, Y)
        np.testing.assert_array_equal(regressor.predict(X), whole.predict(X))
