"""Any input gives a finite prediction, or an error whose message is a sentence."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from ebreg import EnergyRegressor, MixtureDensityRegressor, load
from ebreg.errors import TiesWarning, TrainingError, TrustWarning

QUICK = {"max_iter": 2, "width": 8, "n_components": 2, "n_draws": 4, "random_state": 0, "verbose": False}
KINDS = {"energy": EnergyRegressor(**QUICK), "mixture": MixtureDensityRegressor("energy", **QUICK)}
rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3))
Y = X[:, 0] + 0.3 * rng.normal(size=30)
NAN, INF = float("nan"), float("inf")


@pytest.fixture(params=KINDS)
def regressor(request):
    return clone(KINDS[request.param])


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    return clone(KINDS[request.param]).fit(X, Y)


@pytest.fixture(scope="module")
def bounded():
    return clone(KINDS["mixture"]).set_params(bounds=(-50, 50)).fit(X, Y)


def with_one(array: np.ndarray, value: float) -> np.ndarray:
    """A copy with one value replaced."""
    changed = array.astype(float)
    changed.flat[7] = value
    return changed


def assert_finite(regressor, x: np.ndarray, y: np.ndarray) -> None:
    """Every prediction is finite for a few rows, those with the extreme targets among them."""
    rows = [*range(min(3, len(y))), np.argmin(y), np.argmax(y)]
    x, y = x[rows], y[rows]
    dist = regressor.predict_distribution(x)
    for answer in (dist.mean, dist.stddev, dist.quantile([0.05, 0.5, 0.95]), dist.sample(2, 0)):
        assert np.isfinite(answer).all()
    assert (dist.stddev > 0).all()
    assert np.isfinite(dist.log_prob(y)).all()
    assert ((dist.cdf(y) >= 0) & (dist.cdf(y) <= 1 + 1e-12)).all()
    region = dist.highest_density_region(0.9)
    assert np.isfinite(region.log_threshold).all()
    assert all(np.isfinite(row.locations).all() and len(row) >= 1 for row in dist.modes())


# What fit is handed, the error, and a part of its sentence.
BAD_DATA = {
    "no rows": (X[:0], Y[:0], ValueError, r"0 sample\(s\).*minimum of 1 is required"),
    "no columns": (X[:, :0], Y, ValueError, r"0 feature\(s\)"),
    "no targets": (X, np.empty((30, 0)), ValueError, "at least one column|minimum of 1 is required"),
    "no y": (X, None, ValueError, "requires y to be passed"),
    "X of one axis": (X[:, 0], Y, ValueError, "Expected 2D array, got 1D array instead"),
    "X of three axes": (X[..., None], Y, ValueError, "Found array with dim 3"),
    "y of three axes": (X, Y[:, None, None], ValueError, r"y must have shape \(n,\) or \(n, D\), got"),
    "y of no axis": (X, 3.0, TypeError, "should have at least 1 dimension"),
    "more X than y": (X, Y[:20], ValueError, "the same number of rows, got 30 and 20"),
    "NaN in X": (with_one(X, NAN), Y, ValueError, "Input X contains NaN"),
    "infinity in X": (with_one(X, INF), Y, ValueError, "Input X contains infinity"),
    "NaN in y": (X, with_one(Y, NAN), ValueError, "Input y contains NaN"),
    "infinity in y": (X, with_one(Y, -INF), ValueError, "Input y contains infinity"),
    "missing in a frame": (pd.DataFrame(X).where(X > 0), Y, ValueError, "Input X contains NaN"),
    "strings in X": (np.full((30, 2), "a"), Y, ValueError, "could not convert string to float"),
    "strings in y": (X, ["a"] * 30, ValueError, "could not convert string to float"),
    "strings in a frame": (pd.DataFrame({"a": ["u", "v"] * 15}), Y, ValueError, "could not convert string"),
    "objects in X": (np.full((30, 2), object()), Y, TypeError, "must be a string or a real number"),
    "objects in y": (X, np.full(30, object()), TypeError, "must be a string or a real number"),
    "complex X": (X + 1j, Y, ValueError, "Complex data not supported"),
    "complex y": (X, Y + 1j, ValueError, "Complex data not supported"),
    "complex tensor y": (X, torch.from_numpy(Y + 1j), ValueError, "Complex data not supported"),
    "sparse X": (scipy.sparse.csr_matrix(X), Y, TypeError, "Sparse data was passed"),
    "sparse y": (X, scipy.sparse.csr_matrix(Y[:, None]), TypeError, "Sparse data was passed"),
    "ragged lists": ([[1.0], [1.0, 2.0]], [1.0, 2.0], ValueError, "inhomogeneous"),
    "X beyond float64": (
        1.7e308 * np.sign(X),
        Y,
        ValueError,
        "x spans more than float64 can hold; divide it",
    ),
    "y beyond float64": (
        X,
        1.7e308 * np.sign(Y),
        ValueError,
        "y spans more than float64 can hold; divide it",
    ),
}


@pytest.mark.filterwarnings("ignore::ebreg.errors.TiesWarning")
# Scikit-learn adds all values up, to see whether one of them is not finite.
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered in reduce")
@pytest.mark.parametrize("case", BAD_DATA)
def test_data_that_cannot_be_learned_is_refused(regressor, case):
    x, y, error, sentence = BAD_DATA[case]
    with pytest.raises(error, match=sentence):
        regressor.fit(x, y)
    with pytest.raises(NotFittedError):
        regressor.predict(X)


BAD_WEIGHTS = {
    "NaN": (with_one(np.ones(30), NAN), ValueError, "sample_weight must be finite, got nan"),
    "infinity": (with_one(np.ones(30), INF), ValueError, "sample_weight must be finite, got inf"),
    "negative": (with_one(np.ones(30), -1), ValueError, "sample_weight must not be negative, got -1"),
    "all zero": (np.zeros(30), ValueError, "sample_weight must be above zero for at least one row"),
    "too few": (np.ones(29), ValueError, r"sample_weight must have shape \(30,\), got \(29,\)"),
    "of two axes": (np.ones((30, 1)), ValueError, r"sample_weight must have shape \(30,\), got \(30, 1\)"),
    "strings": (["a"] * 30, TypeError, "sample_weight must hold numbers"),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_weights_that_mean_nothing_are_refused(regressor, case):
    weights, error, sentence = BAD_WEIGHTS[case]
    with pytest.raises(error, match=sentence):
        regressor.fit(X, Y, sample_weight=weights)


BAD_VALIDATION = {
    "not a pair": (X, ValueError, r"validation must be a pair \(X, y\)"),
    "of three": ((X, Y, Y), ValueError, r"validation must be a pair \(X, y\)"),
    "other columns": ((X[:, :2], Y), ValueError, "X has 2 features, but .* is expecting 3"),
    "other targets": ((X, np.stack([Y, Y], 1)), ValueError, r"y of validation must have shape \(n, 1\), got"),
    "other rows": ((X, Y[:3]), ValueError, "the same number of rows, got 30 and 3"),
    "NaN": ((X, with_one(Y, NAN)), ValueError, "Input y contains NaN"),
    "no rows": ((X[:0], Y[:0]), ValueError, r"0 sample\(s\)"),
    "out of bounds": ((X, with_one(Y, 99)), ValueError, "y of validation must lie within bounds"),
}


@pytest.mark.parametrize("case", BAD_VALIDATION)
def test_validation_that_does_not_fit_is_refused(case):
    validation, error, sentence = BAD_VALIDATION[case]
    with pytest.raises(error, match=sentence):
        EnergyRegressor(bounds=(-50, 50), **QUICK).fit(X, Y, validation=validation)


BAD_SETTINGS = {
    "max_iter": (0, -1, 2.5, "many", True, NAN),
    "n_components": (0, 1.5, "a"),
    "width": (0, -3, "a", None),
    "n_draws": (0, -1, 1.5, "a"),
    "preset": ("slow", None, 3, ["best"]),
    "n_members": (0, -1, 1.5, "a"),
    "dropout": (-0.1, 1.0, NAN, "a", (0.1, 0.2, 0.3), (0.1, None), {}, True),
    "refit": (0, "yes", NAN),
    "batch_size": (0, 1.5, "a"),
    "n_iter_no_change": (0, 1.5, "a"),
    "learning_rate": (0, -1e-3, NAN, INF, "fast"),
    "weight_decay": (-1, NAN, "a", None),
    "validation_fraction": (0, 1, -0.1, 1.5, NAN, "a", None, [0.1], True),
    "device": ("gpu", "cuda:99", None, 1.5),
    "backbone": (3, "resnet18", nn.Linear),
    "bounds": ((1, 0), (0, 0), (NAN, 1), (0, NAN), "ab", ("0", "1"), 5, (0,), (0, 1, 2), {}, [(0, 1)] * 2),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in BAD_SETTINGS for value in BAD_SETTINGS[name]]
)
def test_a_setting_that_makes_no_sense_is_named(regressor, name, value):
    with pytest.raises((ValueError, TypeError), match=f"^{name} ") as caught:
        regressor.set_params(**{name: value}).fit(X, Y)
    # It also says what it got, or takes.
    assert "must" in str(caught.value) or "cannot be used" in str(caught.value)


@pytest.mark.parametrize("value", ["nce", "mdn-nll", 3, ["joint-nce"]])
def test_an_unknown_method_is_refused_by_a_list_of_those_there_are(value):
    with pytest.raises(ValueError, match=r"method must be one of 'residual-nce', 'joint-nce', 'joint-"):
        EnergyRegressor(value, **QUICK).fit(X, Y)


@pytest.mark.parametrize("value", ["none", 3, True, ["energy"]])
def test_an_unknown_teacher_is_refused(value):
    with pytest.raises(ValueError, match="teacher must be one of 'energy', None"):
        MixtureDensityRegressor(value, **QUICK).fit(X, Y)


@pytest.mark.parametrize("sigmas", [(), (-1,), (0.1, 0), (NAN,), (INF,)])
def test_noise_without_a_width_is_refused(sigmas):
    with pytest.raises(ValueError, match="sigmas must be"):
        EnergyRegressor("fixed-nce", sigmas=sigmas, **QUICK).fit(X, Y)


@pytest.mark.parametrize("seed", ["a", -1, 1.5])
def test_a_seed_that_is_none_is_refused(regressor, seed):
    with pytest.raises(ValueError, match=r"seed|Seed"):
        regressor.set_params(random_state=seed).fit(X, Y)


def test_an_unknown_parameter_is_an_error():
    with pytest.raises(TypeError, match="n_component"):
        EnergyRegressor(n_component=3)


def test_targets_outside_the_bounds_are_pointed_at(regressor):
    with pytest.raises(
        ValueError, match=r"y must lie within bounds, which are -2 to 9; got -3 in row 7 .* widen"
    ):
        regressor.set_params(bounds=(-2, 9)).fit(X, with_one(Y.clip(-2, 9), -3))


class WrongShape(nn.Module):
    def __init__(self, *shape: int):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x.new_zeros(self.shape)


class Broken(nn.Module):
    def forward(self, x):
        raise KeyError("no such layer")


BAD_BACKBONES = {
    "another input": (
        nn.Linear(5, 2),
        r"backbone failed on examples of shape \(3,\) and dtype torch.float64: mat1",
    ),
    "an error": (Broken(), "backbone failed on examples of shape .* 'no such layer'"),
    "a tuple": (nn.LSTM(3, 4), r"backbone must turn a batch of B examples into features \(B, H\), got tuple"),
    "an axis too many": (nn.Unflatten(1, (3, 1)), r"features \(B, H\), got \(2, 3, 1\) for B = 2"),
    "an axis too few": (nn.Flatten(0), r"features \(B, H\), got \(6,\) for B = 2"),
    "other rows": (WrongShape(5, 4), r"features \(B, H\), got \(5, 4\) for B = 2"),
    "no features": (WrongShape(2, 0), r"features \(B, H\), got \(2, 0\) for B = 2"),
}


@pytest.mark.parametrize("case", BAD_BACKBONES)
def test_a_backbone_that_does_not_fit_is_refused(regressor, case):
    module, sentence = BAD_BACKBONES[case]
    with pytest.raises(ValueError, match=sentence):
        regressor.set_params(backbone=module).fit(X, Y)


BAD_EXAMPLES = {
    "NaN": (with_one(X, NAN), ValueError, r"X must be finite, got nan at index \(2, 1\)"),
    "infinity": (with_one(X, INF), ValueError, "X must be finite, got inf"),
    "strings": (np.full((30, 3), "a"), TypeError, "X must hold numbers"),
    "objects": (np.full((30, 3), object()), TypeError, "X must hold numbers"),
    "complex": (X + 1j, TypeError, "X must hold real numbers"),
    "sparse": (scipy.sparse.csr_matrix(X), TypeError, "X must hold numbers"),
    "one axis": (X[:, 0], ValueError, r"X must have shape \(n, ...\) with one example a row"),
    "no rows": (X[:0], ValueError, r"the same number of rows, got 0 and 30"),
}


@pytest.mark.parametrize("case", BAD_EXAMPLES)
def test_examples_that_no_backbone_can_take_are_refused(regressor, case):
    x, error, sentence = BAD_EXAMPLES[case]
    with pytest.raises(error, match=sentence):
        regressor.set_params(backbone=nn.Linear(3, 2)).fit(x, Y)


@pytest.mark.parametrize(
    "verb",
    [
        lambda reg: reg.predict(X),
        lambda reg: reg.predict_distribution(X),
        lambda reg: reg.predict_quantiles(X),
        lambda reg: reg.predict_interval(X),
        lambda reg: reg.sample(X),
        lambda reg: reg.log_prob(X, Y),
        lambda reg: reg.score(X, Y),
    ],
)
def test_an_unfitted_regressor_says_that_it_is_not_fitted(regressor, verb):
    with pytest.raises(NotFittedError, match=r"is not fitted yet. Call 'fit'"):
        verb(regressor)


# A question to a fitted regressor, the error, and a part of its sentence.
BAD_QUESTIONS = {
    "NaN in X": (lambda r: r.predict(with_one(X, NAN)), ValueError, "Input X contains NaN"),
    "infinity in X": (lambda r: r.predict(with_one(X, INF)), ValueError, "Input X contains infinity"),
    "fewer columns": (lambda r: r.predict(X[:, :2]), ValueError, "X has 2 features, but .* expecting 3"),
    "more columns": (lambda r: r.predict(np.hstack([X, X])), ValueError, "X has 6 features, but"),
    "one axis": (lambda r: r.predict(X[0]), ValueError, "Expected 2D array, got 1D array instead"),
    "strings": (lambda r: r.predict(np.full((2, 3), "a")), ValueError, "could not convert string to float"),
    "sparse X": (lambda r: r.predict(scipy.sparse.csr_matrix(X)), TypeError, "Sparse data was passed"),
    "NaN in y": (lambda r: r.log_prob(X, with_one(Y, NAN)), ValueError, "y must not be NaN; remove those"),
    "other rows of y": (lambda r: r.log_prob(X, Y[:5]), ValueError, r"y must have shape \(..., 30\)"),
    "targets with an axis": (
        lambda r: r.log_prob(X, Y[:, None]),
        ValueError,
        r"y must have shape \(..., 30\)",
    ),
    "strings in y": (lambda r: r.log_prob(X, ["a"] * 30), TypeError, "y must hold numbers"),
    "complex y": (lambda r: r.log_prob(X, Y + 1j), TypeError, "y must hold real numbers"),
    "no y": (lambda r: r.log_prob(X, None), TypeError, "y must hold numbers"),
    "level 0": (
        lambda r: r.predict_quantiles(X, [0, 0.5]),
        ValueError,
        r"must lie in \(0, 1\), got \[0.0, 0.5\]",
    ),
    "level 1": (lambda r: r.predict_quantiles(X, 1), ValueError, r"must lie in \(0, 1\), got \[1.0\]"),
    "level NaN": (lambda r: r.predict_quantiles(X, NAN), ValueError, r"must lie in \(0, 1\), got \[nan\]"),
    "a level that is a word": (lambda r: r.predict_quantiles(X, "median"), TypeError, "q must hold numbers"),
    "coverage 0": (lambda r: r.predict_interval(X, 0), ValueError, r"coverage must lie in \(0, 1\), got 0"),
    "coverage 90": (lambda r: r.predict_interval(X, 90), ValueError, "got 90; 0.9 stands for 90 %"),
    "coverage NaN": (lambda r: r.predict_interval(X, NAN), ValueError, r"coverage must lie in \(0, 1\)"),
    "mass 0": (lambda r: _region(r, 0), ValueError, r"mass must lie in \(0, 1\), got 0"),
    "mass 1": (lambda r: _region(r, 1), ValueError, r"mass must lie in \(0, 1\), got 1"),
    "draws -1": (lambda r: r.sample(X, -1), ValueError, "n_draws must be at least 0, got -1"),
    "draws 1.5": (lambda r: r.sample(X, 1.5), TypeError, "n_draws must be a whole number, got 1.5"),
    "a seed that is a word": (lambda r: r.sample(X, 1, "a"), ValueError, "cannot be used to seed"),
    "a function of other shape": (
        lambda r: r.predict_distribution(X).expectation(lambda y: 1.0),
        ValueError,
        "fn must keep the first two axes of its argument",
    ),
    "a row that is not there": (lambda r: r.predict_distribution(X)[99], IndexError, "out of bounds"),
}


def _region(regressor, mass: float):
    return regressor.predict_distribution(X).highest_density_region(mass)


@pytest.mark.parametrize("case", BAD_QUESTIONS)
def test_a_question_that_has_no_answer_is_refused(fitted, case):
    question, error, sentence = BAD_QUESTIONS[case]
    with pytest.raises(error, match=sentence):
        question(fitted)


class TestHardButSensible:
    """What is unusual, and learned all the same."""

    @pytest.mark.parametrize("n", [15, 16])
    def test_few_rows(self, regressor, n):
        assert_finite(regressor.fit(X[:n], Y[:n]), X, Y)

    @pytest.mark.parametrize("n", [1, 2, 3, 14])
    def test_too_few_rows_for_validation(self, regressor, n):
        with pytest.warns(TrustWarning, match=f"{n} rows are too few to hold some out for validation"):
            regressor.fit(X[:n], Y[:n])
        assert_finite(regressor, X, Y)
        assert regressor.best_epoch_ is None
        regressor.set_params(early_stopping=False).fit(X[:n], Y[:n])  # without a warning

    @pytest.mark.parametrize("value", [0.0, 5.0, -1e6])
    def test_a_constant_target(self, regressor, value):
        y = np.full(30, value)
        with pytest.warns(TiesWarning):
            regressor.fit(X, y)
        assert_finite(regressor, X, y)
        # A constant has no scale of its own: it is spread over an interval of 0.02.
        np.testing.assert_allclose(regressor.predict(X), value, atol=0.05)

    @pytest.mark.parametrize(
        "x",
        [
            np.ones((30, 2)),
            np.full((30, 2), 1e-300),
            np.hstack([X, X]),
            np.hstack([X, np.full((30, 1), 1e9)]),
        ],
        ids=["constant", "constant and tiny", "duplicate", "one constant"],
    )
    def test_columns_that_say_nothing(self, regressor, x):
        assert_finite(regressor.fit(x, Y), x, Y)

    def test_far_more_columns_than_rows(self, regressor):
        wide = np.random.default_rng(1).normal(size=(30, 1000))
        assert_finite(regressor.fit(wide, Y), wide, Y)

    @pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
    def test_any_scale_of_the_inputs(self, fitted, scale):
        scaled = clone(fitted).fit(scale * X, Y)
        np.testing.assert_allclose(scaled.predict(scale * X), fitted.predict(X), rtol=1e-6)

    @pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
    def test_any_scale_of_the_targets(self, fitted, scale):
        plain = fitted.predict_distribution(X)
        scaled = clone(fitted).fit(X, scale * Y).predict_distribution(X)
        np.testing.assert_allclose(scaled.mean / scale, plain.mean, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(scaled.interval() / scale, plain.interval(), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(
            scaled.log_prob(scale * Y) + np.log(scale), plain.log_prob(Y), rtol=1e-6, atol=1e-6
        )

    @pytest.mark.filterwarnings("ignore::ebreg.errors.TiesWarning")
    @pytest.mark.parametrize("scale", [1e-300, 1e300])
    def test_any_scale_of_rounded_targets(self, regressor, scale):
        predictions = regressor.fit(X, scale * Y.round()).predict(X)
        assert (np.abs(predictions) < 3 * scale).all()

    @pytest.mark.parametrize("shift", [1e6, -1e9])
    def test_targets_far_from_zero(self, regressor, shift):
        assert_finite(regressor.fit(X, Y + shift), X, Y + shift)

    def test_targets_over_many_orders_of_magnitude(self, regressor):
        y = np.exp(10 * Y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrustWarning)  # two epochs do not learn that
            assert_finite(regressor.fit(X, y), X, y)

    @pytest.mark.parametrize("distance", [1e2, 1e6, 1e30])
    def test_rows_far_from_those_learned(self, fitted, distance):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrustWarning)  # which is what it is for
            mean, std = fitted.predict(distance * X, return_std=True)
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()

    def test_bounds_that_the_targets_touch(self, regressor):
        regressor.set_params(bounds=(Y.min(), Y.max()))
        assert_finite(regressor.fit(X, Y), X, Y)

    @pytest.mark.parametrize("bounds", [(-1e6, 1e6), (None, 1e9), (-INF, INF), (None, None)])
    def test_bounds_that_the_targets_never_reach(self, regressor, bounds):
        assert_finite(regressor.set_params(bounds=bounds).fit(X, Y), X, Y)

    @pytest.mark.parametrize(
        "bounds",
        [np.array([-9.0, 9.0]), torch.tensor([[-9.0, 9.0]]), [[-9, 9]], ((-9, np.float32(9)),)],
        ids=["an array", "a tensor", "a list of one pair", "a tuple of one pair"],
    )
    def test_any_way_to_write_bounds(self, bounds):
        reg = MixtureDensityRegressor(None, bounds=bounds, **QUICK).fit(X, Y)
        assert (reg.model_.bounds.low.item(), reg.model_.bounds.high.item()) == (-9, 9)

    def test_bounds_for_each_target(self):
        two = np.stack([Y, Y], axis=1)
        for bounds in ([(-9, 9), (None, 7)], np.array([[-9, 9], [-INF, 7]])):
            reg = MixtureDensityRegressor(None, bounds=bounds, **QUICK).fit(X, two)
            assert reg.model_.bounds.low.tolist() == [-9, -INF]
            assert reg.model_.bounds.high.tolist() == [9, 7]

    def test_targets_outside_the_bounds_have_no_density(self, bounded):
        assert (bounded.log_prob(X, np.full(30, 51.0)) == -INF).all()
        assert (bounded.log_prob(X, np.full(30, INF)) == -INF).all()

    def test_targets_at_infinity_have_a_cdf(self, fitted):
        dist = fitted.predict_distribution(X)
        np.testing.assert_allclose(dist.cdf(np.full(30, INF)), 1, rtol=1e-12)
        np.testing.assert_array_equal(dist.cdf(np.full(30, -INF)), 0)
        assert (dist.log_prob(np.full(30, INF)) < -1e300).all()

    @pytest.mark.parametrize("weights", [1e300, 1e-300])
    def test_weights_of_any_size(self, fitted, weights):
        scaled = clone(fitted).fit(X, Y, sample_weight=np.full(30, weights)).predict(X)
        np.testing.assert_allclose(scaled, fitted.predict(X), rtol=1e-6)

    def test_one_row_that_counts(self, regressor):
        with pytest.warns(TrustWarning, match="1 rows are too few"):
            regressor.fit(X, Y, sample_weight=with_one(np.zeros(30), 1))
        assert_finite(regressor, X, Y)


@pytest.mark.parametrize("name", ["early_stopping", "refit"])
def test_flags_are_true_or_false(regressor, name):
    with pytest.raises(TypeError, match=f"{name} must be True or False, got 'no'"):
        regressor.set_params(**{name: "no"}).fit(X, Y)
    regressor.set_params(**{name: np.bool_(False)}).fit(X, Y)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_fit_trains_where_gradients_are_switched_off(regressor, mode):
    with mode():
        inside = regressor.fit(X, Y).predict(X)
    np.testing.assert_allclose(regressor.fit(X, Y).predict(X), inside, rtol=1e-9)


def test_a_training_that_diverged_is_warned_of(regressor):
    regressor.set_params(max_iter=30, width=64, learning_rate=1.0)
    with pytest.warns(TrustWarning, match="the training diverged.*Lower learning_rate"):
        regressor.fit(X, Y)


def test_a_training_that_did_not_diverge_is_not(regressor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor.set_params(max_iter=30).fit(X, Y)


@pytest.mark.parametrize(("n_rows", "batch_size"), [(1, None), (30, 1)])
def test_batch_norm_of_one_row_is_refused(regressor, n_rows, batch_size):
    backbone = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    regressor.set_params(backbone=backbone, batch_size=batch_size, early_stopping=False)
    with pytest.raises(ValueError, match="batch-norm needs at least two rows"):
        regressor.fit(X[:n_rows], Y[:n_rows])


def test_columns_of_other_names_are_refused_with_a_backbone_too(regressor):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    regressor.set_params(backbone=nn.Linear(3, 4)).fit(frame, Y)
    with pytest.raises(ValueError, match="feature names"):
        regressor.predict(frame[["c", "b", "a"]])


def test_levels_by_row_are_refused_for_several_targets(regressor):
    dist = regressor.fit(X, np.stack([Y, -Y], axis=1)).predict_distribution(X[:2])
    with pytest.raises(ValueError, match=r"q must have shape \(\) or \(Q,\) for several targets"):
        dist.quantile(np.full((2, 2), 0.5))


class TestAFitThatFails:
    """leaves the regressor that was fitted before as it was."""

    @pytest.mark.parametrize(
        ("change", "fit"),
        [
            ({"bounds": (0, 1)}, {}),
            ({"learning_rate": -1.0}, {}),
            ({}, {"validation": (X, Y, Y)}),
            ({}, {"sample_weight": np.zeros(30)}),
        ],
    )
    def test_with_other_columns(self, fitted, change, fit):
        before, regressor = fitted.predict(X), copy.deepcopy(fitted)
        original = {name: regressor.get_params()[name] for name in change}
        with pytest.raises(ValueError):  # noqa: PT011 (each has its own test)
            regressor.set_params(**change).fit(np.c_[X, X], Y, **fit)
        regressor.set_params(**original)
        np.testing.assert_array_equal(regressor.predict(X), before)

    def test_in_its_training(self, fitted):
        before, regressor = fitted.predict(X), copy.deepcopy(fitted)
        with pytest.raises(TrainingError):
            regressor.set_params(learning_rate=1e30, max_iter=20).fit(np.c_[X, X], Y)
        np.testing.assert_array_equal(regressor.predict(X), before)


class TestOwnBackbone:
    def test_whole_numbers_stand_for_real_ones(self, regressor):
        regressor.set_params(backbone=nn.Linear(3, 4)).fit(X, Y)
        whole = np.arange(6).reshape(2, 3)
        np.testing.assert_array_equal(regressor.predict(whole), regressor.predict(whole.astype(float)))
        np.testing.assert_array_equal(regressor.predict(whole > 2), regressor.predict((whole > 2) * 1.0))

    def test_real_numbers_stand_for_whole_ones_if_they_are(self, regressor):
        tokens = np.arange(60).reshape(30, 2) % 7
        regressor.set_params(backbone=nn.Sequential(nn.Embedding(7, 4), nn.Flatten())).fit(tokens, Y)
        np.testing.assert_array_equal(regressor.predict(tokens * 1.0), regressor.predict(tokens))
        with pytest.raises(ValueError, match=r"X must hold numbers of type torch\.int64"):
            regressor.predict(tokens + 0.5)
        with pytest.raises(ValueError, match="the backbone failed on inputs of shape"):
            regressor.predict(tokens + 7)

    def test_a_failure_in_training_is_told_as_such(self, regressor):
        tokens = np.arange(60).reshape(30, 2)
        regressor.set_params(backbone=nn.Sequential(nn.Embedding(7, 4), nn.Flatten()))
        with pytest.raises(ValueError, match="backbone failed on"):
            regressor.fit(tokens, Y)

    def test_features_that_are_not_finite_are_refused(self, regressor):
        dist = regressor.set_params(backbone=nn.Linear(3, 4)).fit(X, Y).predict_distribution(1e100 * X)
        with pytest.raises(ValueError, match="features are not finite: some inputs are too large"):
            dist.mean  # noqa: B018

    def test_what_was_fitted_answers_whatever_the_argument_says_now(self, regressor, tmp_path):
        backbone = nn.Linear(3, 4)
        before = regressor.set_params(backbone=backbone).fit(X, Y).predict(X)
        regressor.set_params(backbone=None)
        np.testing.assert_array_equal(regressor.predict(X), before)
        regressor.save(tmp_path / "model")
        np.testing.assert_allclose(load(tmp_path / "model", backbone=backbone).predict(X), before, rtol=1e-6)

    def test_a_table_does_not_need_it_later(self, regressor, tmp_path):
        before = regressor.fit(X, Y).predict(X)
        regressor.set_params(backbone=nn.Linear(3, 4))
        np.testing.assert_array_equal(regressor.predict(X), before)
        regressor.save(tmp_path / "model")
        np.testing.assert_allclose(load(tmp_path / "model").predict(X), before, rtol=1e-6)

    def test_a_warm_start_refuses_another(self):
        regressor = clone(KINDS["energy"]).set_params(warm_start=True, backbone=nn.Linear(3, 4)).fit(X, Y)
        for other in (nn.Linear(3, 4), None):
            with pytest.raises(ValueError, match="backbone is not that of the fitted model"):
                regressor.set_params(backbone=other).fit(X, Y)


def test_a_warm_start_on_targets_far_from_before_is_warned_of():
    regressor = clone(KINDS["energy"]).set_params(warm_start=True).fit(X, Y)
    with pytest.warns(TrustWarning, match="the training diverged"):
        regressor.fit(X, 1e6 * Y + 1e7)


def test_dates_are_refused(regressor):
    dates = pd.date_range("2020-01-01", periods=30)
    with pytest.raises(ValueError, match="y holds dates or times"):
        regressor.fit(X, pd.Series(dates))
    with pytest.raises(ValueError, match="X holds dates or times"):
        regressor.fit(pd.DataFrame({"day": dates, "a": X[:, 0]}), Y)


def test_targets_of_one_name_are_refused(regressor):
    with pytest.raises(ValueError, match="the columns of y must have different names"):
        regressor.fit(X, pd.DataFrame(np.c_[Y, Y], columns=["a", "a"]))


def test_the_density_infinitely_far_away_is_zero(fitted):
    dist = fitted.predict_distribution(X[:1])
    assert (dist.log_prob(np.array([[np.inf], [-np.inf]])) == -np.inf).all()


def test_tiny_targets_have_finite_deviations(regressor):
    mean, deviation = regressor.fit(X, 1e-320 * np.sign(Y) + 3e-321 * Y).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(deviation).all()


def test_questions_to_a_prediction_that_make_no_sense(fitted):
    dist = fitted.predict_distribution(X)
    with pytest.raises(IndexError, match="rows must be numbers in one list"):
        dist[np.array([[0, 1], [1, 2]])]
    with pytest.raises(ValueError, match="too close to 0 or 1"):
        dist.interval(1 - 1e-16)
    with pytest.raises(ValueError, match="quantiles must differ"):
        dist.to_frame([0.5, 0.5])
    assert list(dist.to_frame(0.5).columns)[2] == "q0.5"


def test_quantiles_of_several_targets_beyond_the_draws_are_warned_of():
    dist = clone(KINDS["energy"]).fit(X, np.stack([Y, -Y], axis=1)).predict_distribution(X[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.quantile([0.05, 0.5])
    with pytest.warns(TrustWarning, match="rest on fewer than 5 draws in 3 of 3 rows"):
        dist.quantile(1e-6)


def test_quantiles_of_a_mixture_of_several_targets_are_exact_at_any_level():
    dist = clone(KINDS["mixture"]).fit(X, np.stack([Y, -Y], axis=1)).predict_distribution(X[:3])
    low, high = dist.quantile([1e-6, 1 - 1e-6])
    assert (low < high - 1).all()


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_few_validation_rows_are_no_reason_to_warn(regressor, factor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor.fit(X, factor * Y, validation=(X[:1], factor * Y[:1]))
        regressor.fit(X, factor * Y, validation=(X[:2], factor * np.array([0.5, 0.5001])))


def test_targets_whose_predictions_would_overflow_are_refused():
    y = np.linspace(-1, 1, len(X)) * 1e307
    for kind in (EnergyRegressor, MixtureDensityRegressor):
        with pytest.raises(ValueError, match="y spans more than float64 can hold; divide it by a constant"):
            kind(max_iter=1).fit(X, y)
