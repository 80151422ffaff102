"""Regressors with bounds: trained on targets at and near the bounds, they put no mass outside."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
import torch

from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.errors import TiesWarning
from ebreg.estimators.bounds import parse_bounds
from ebreg.models import EnergyModel, MixtureModel
from ebreg.units import Bounds
from support import prediction

QUICK = {"n_components": 2, "width": 8, "max_iter": 2, "random_state": 0, "verbose": False}
INF = np.inf
# A bound that is no round number, in float64 or in standard units.
ODD = 0.1 + 0.2


@dataclass(frozen=True)
class Case:
    """Targets with mass at and near their bounds."""

    sample: Callable[[np.random.Generator, int], np.ndarray]
    bounds: object
    low: tuple
    high: tuple
    ties: bool = False

    def data(self, n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        r = np.random.default_rng(seed)
        x = r.normal(size=(n, 2))
        return x, self.sample(r, n)


def with_ends(y: np.ndarray, *ends: float) -> np.ndarray:
    y[: len(ends)] = ends
    return y


CASES = {
    "exponential": Case(lambda r, n: with_ends(r.exponential(3, n), 0.0), (0, None), (0,), (INF,)),
    "mirrored": Case(lambda r, n: with_ends(-r.exponential(3, n), 0.0), (None, 0.0), (-INF,), (0,)),
    "beta": Case(lambda r, n: with_ends(r.beta(0.5, 0.5, n), 0.0, 1.0), (0, 1), (0,), (1,)),
    "odd bounds": Case(
        lambda r, n: with_ends(ODD + (1e3 / 7 - ODD) * r.beta(0.5, 0.5, n), ODD, 1e3 / 7),
        [ODD, 1e3 / 7],
        (ODD,),
        (1e3 / 7,),
    ),
    "clipped": Case(lambda r, n: r.normal(size=n).clip(-1, 1), (-1, 1), (-1,), (1,), ties=True),
    "counts": Case(lambda r, n: r.poisson(0.7, n).astype(float), (0, None), (0,), (INF,), ties=True),
    "two targets, one open": Case(
        lambda r, n: np.stack([with_ends(r.exponential(2, n), 0.0), r.normal(100, 20, n)], axis=1),
        [(0, None), (None, None)],
        (0, -INF),
        (INF, INF),
    ),
    "two targets, different bounds": Case(
        lambda r, n: np.stack([with_ends(r.exponential(2, n), 0.0), with_ends(r.beta(2, 0.5, n), 1)], axis=1),
        [(0, None), (None, 1)],
        (0, -INF),
        (INF, 1),
    ),
    "two targets, one pair": Case(
        lambda r, n: with_ends(r.beta(0.5, 0.5, (n, 2)), [0, 1], [1, 0]), (0, 1), (0, 0), (1, 1)
    ),
}
KINDS = {
    "energy": lambda **settings: EnergyRegressor(**QUICK, **settings),
    "energy, joint": lambda **settings: EnergyRegressor("joint-nce", **QUICK, **settings),
    "energy, mle": lambda **settings: EnergyRegressor("joint-mle", **QUICK, early_stopping=False, **settings),
    "energy, hand-set noise": lambda **settings: EnergyRegressor(
        "fixed-nce", n_draws=32, **QUICK, early_stopping=False, **settings
    ),
    "mixture": lambda **settings: MixtureDensityRegressor(**QUICK, **settings),
    "mixture, teacher": lambda **settings: MixtureDensityRegressor("energy", **QUICK, **settings),
}
SUBJECTS = [
    *((name, kind) for name in CASES for kind in ("energy", "mixture")),
    *(("exponential", kind) for kind in KINDS),
    ("two targets, one pair", "energy, hand-set noise"),  # whose noise is cut at the bounds
]
SUBJECTS = list(dict.fromkeys(SUBJECTS))


def quietly(fit: Callable, *args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TiesWarning)
        return fit(*args, **settings)


@lru_cache
def trained(name: str, kind: str):
    case = CASES[name]
    return quietly(KINDS[kind](bounds=case.bounds).fit, *case.data())


@pytest.fixture(params=SUBJECTS, ids=[f"{name}-{kind}" for name, kind in SUBJECTS])
def subject(request):
    name, kind = request.param
    return CASES[name], trained(name, kind)


def columns(values: np.ndarray, case: Case) -> np.ndarray:
    """The targets along the last axis, also where there is one."""
    return values[..., None] if len(case.low) == 1 else values


# Training


def test_losses_and_densities_are_finite(subject):
    case, regressor = subject
    for epoch in regressor.history_:
        assert all(np.isfinite(loss) for loss in epoch.values())
    x, y = case.data()
    assert np.isfinite(regressor.log_prob(x[:4], y[:4])).all()  # the first are at the bounds


@pytest.mark.parametrize("kind", ["energy", "mixture"])
@pytest.mark.parametrize("name", ["exponential", "clipped", "two targets, one pair"])
def test_the_targets_are_left_as_they_were(name, kind):
    case = CASES[name]
    x, y = case.data(40)
    x_before, y_before = x.copy(), y.copy()
    regressor = KINDS[kind](bounds=case.bounds)
    regressor.set_params(max_iter=1)
    quietly(regressor.fit, x, y)
    regressor.log_prob(x[:2], y[:2])
    np.testing.assert_array_equal(x, x_before)
    np.testing.assert_array_equal(y, y_before)
    y.flags.writeable = False
    quietly(regressor.fit, x, y)


def test_bounds_make_an_exponential_likelier():
    r = np.random.default_rng(4)
    x = r.uniform(0.5, 2, size=(300, 1))
    y = r.exponential(x[:, 0])
    x_test = r.uniform(0.5, 2, size=(100, 1))
    y_test = r.exponential(x_test[:, 0])
    best = (-np.log(x_test[:, 0]) - y_test / x_test[:, 0]).mean()
    settings = {**QUICK, "width": 16, "max_iter": 12, "learning_rate": 1e-2}
    for kind in (EnergyRegressor, MixtureDensityRegressor):
        with_bounds, without = (
            kind(bounds=bounds, **settings).fit(x, y).log_prob(x_test, y_test).mean()
            for bounds in ((0, None), None)
        )
        assert with_bounds > without + 0.03
        assert best - 0.2 < with_bounds < best + 0.05


@pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
def test_mass_is_high_at_the_bounds_where_the_data_are(kind):
    x, y = CASES["beta"].data(400)
    settings = {**QUICK, "n_components": 4, "width": 16, "max_iter": 20, "learning_rate": 5e-3}
    dist = kind(bounds=(0, 1), **settings).fit(x, y).predict_distribution(x[:30])
    for a, b in ((0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
        mass = (dist.cdf(np.full(30, b)) - dist.cdf(np.full(30, a))).mean()
        assert abs(mass - ((y > a) & (y <= b)).mean()) < 0.09


@pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
def test_bounds_far_from_the_data_change_little(kind):
    r = np.random.default_rng(5)
    x = r.normal(size=(200, 1))
    y = 2 * x[:, 0] + r.normal(size=200)
    settings = {**QUICK, "n_components": 4, "width": 16, "max_iter": 8, "learning_rate": 1e-2}
    near, *others = (
        kind(bounds=bounds, **settings).fit(x, y).predict_distribution(x[:20])
        for bounds in (None, (-1e6, 1e6), (-3e3, None))
    )
    for far in others:
        assert abs(near.log_prob(y[:20]).mean() - far.log_prob(y[:20]).mean()) < 0.1
        assert (np.abs(near.mean - far.mean) < 0.5 * near.stddev).all()
        assert (far.stddev < 2 * near.stddev).all()


# Nothing outside the bounds


def test_nothing_lies_outside(subject):
    case, regressor = subject
    x, _ = case.data(3, seed=1)
    x[0] = 30.0  # far from the data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such a row may well be rough
        dist = regressor.predict_distribution(x)
        answers = [
            dist.mean,
            dist.sample(300, random_state=0),
            dist.quantile([1e-15, 1e-6, 0.5, 1 - 1e-6, 1 - 1e-15]),
            np.moveaxis(dist.interval(0.999), 1, 0),
            *(mode.locations for mode in dist.modes()),
            *(dist.highest_density_region(0.99).intervals or ()),
        ]
        dist.expectation(lambda y: answers.append(y) or y)
    for values in answers:
        values = columns(values, case)
        assert np.isfinite(values).all()
        assert ((values >= case.low) & (values <= case.high)).all()


def test_bounds_are_included_and_targets_outside_have_no_density(subject):
    case, regressor = subject
    x, _ = case.data(3, seed=1)
    dist = regressor.predict_distribution(x)
    middle = columns(dist.quantile(0.5), case)
    for d in range(len(case.low)):
        for end, away in ((case.low[d], -INF), (case.high[d], INF)):
            if np.isinf(end):
                continue
            y = middle.copy()

            def ask(value: float, question: Callable, y=y, d=d) -> np.ndarray:
                y[:, d] = value
                return question(y[:, 0] if len(case.low) == 1 else y)

            assert np.isfinite(ask(end, dist.log_prob)).all()
            assert np.isfinite(ask(np.nextafter(end, -away), dist.log_prob)).all()
            scale = middle[:, d].std() + 1.0
            for step in (1e-6, 1e-2, 10.0, 1e9, INF):
                outside = end + np.sign(away) * step * scale
                assert (ask(outside, dist.log_prob) == -INF).all()
                if away < 0:
                    assert (ask(outside, dist.cdf) == 0).all()
                elif len(case.low) == 1:
                    np.testing.assert_allclose(ask(outside, dist.cdf), 1, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:quantiles at a level:ebreg.errors.TrustWarning")
@pytest.mark.parametrize("D", [1, 2])
def test_rounding_moves_no_bound_in_any_units(D):
    # Converted to standard units and back, a bound may move by its last digit; no prediction may.
    r = np.random.default_rng(6)
    for _ in range(10):
        low = torch.from_numpy(r.normal(size=D) * 10.0 ** r.integers(-3, 4))
        high = low + torch.from_numpy(r.exponential(size=D) + 0.1)
        y = low + (high - low) * torch.from_numpy(r.beta(0.5, 0.5, (50, D)))
        x = torch.from_numpy(r.normal(size=(50, 2)))
        for kind in (EnergyModel, MixtureModel):
            model = kind.for_table(x, y, n_components=2, width=8, bounds=Bounds(low, high)).to_float64()
            dist = prediction(model, x[:3])
            for end in (low, high):
                at_end = end.expand(3, D)
                assert np.isfinite(dist.log_prob(at_end)).all()
                assert torch.isfinite(dist.proposal.log_prob(at_end)).all()
            q = dist.proposal
            draws = q.from_uniform(torch.tensor([1e-9, 0.5, 1 - 1e-9])[:, None, None].expand(-1, 3, D))
            for values in (draws, torch.from_numpy(dist.quantile([1e-15, 1 - 1e-15]))):
                assert ((values >= low) & (values <= high)).all()


def test_all_the_mass_lies_inside(subject):
    case, regressor = subject
    x, _ = case.data(3, seed=2)
    dist = regressor.predict_distribution(x)
    assert np.allclose(
        dist.cdf(np.full(dist.mean.shape, case.high if len(case.high) > 1 else case.high[0])), 1
    )
    if len(case.low) > 1:
        return
    ends = dist.icdf([1e-10, 1 - 1e-10])
    low = np.where(np.isfinite(case.low), case.low, ends[0])
    high = np.where(np.isfinite(case.high), case.high, ends[1])
    edges = low + (high - low) * np.sin(np.linspace(0, 0.5 * np.pi, 4001)[:, None]) ** 2
    density = np.exp(dist.log_prob(0.5 * (edges[1:] + edges[:-1])))
    np.testing.assert_allclose((density * np.diff(edges, axis=0)).sum(axis=0), 1, atol=1e-3)


# Errors


@pytest.mark.parametrize("kind", ["energy", "mixture"])
@pytest.mark.parametrize(
    ("name", "row", "column", "value", "message"),
    [
        (
            "exponential",
            7,
            0,
            -0.5,
            r"y must lie within bounds, which are 0 to inf; got -0\.5 in row 7 \(1 such",
        ),
        ("mirrored", 3, 0, 1e-9, r"bounds, which are -inf to 0; got 1e-09 in row 3"),
        ("two targets, different bounds", 9, 1, 1.25, r"which are -inf to 1; got 1\.25 in row 9"),
        ("two targets, different bounds", 0, 0, -3.0, r"which are 0 to inf; got -3 in row 0"),
    ],
)
def test_a_target_outside_is_refused_by_row_and_value(kind, name, row, column, value, message):
    case = CASES[name]
    x, y = case.data(30)
    columns(y, case)[row, column] = value
    regressor = KINDS[kind](bounds=case.bounds)
    with pytest.raises(ValueError, match=message):
        regressor.fit(x, y)
    good = case.data(30)
    with pytest.raises(ValueError, match=f"in row {row}"):
        regressor.fit(*good, validation=(x, y))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((1, 0), "low < high"),
        ((1, 1), "low < high"),
        ((float("nan"), 1), "low < high"),
        ((0, 1, 2), r"bounds must be a pair \(low, high\)"),
        ([(0, 1)] * 3, "one pair for each of the 2 targets"),
        (("0", "1"), "bounds must be a pair"),
        (0, "bounds must be a pair"),
        ([(0, 1), 3], "bounds must be a pair"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds, message):
    x, y = CASES["two targets, one pair"].data(20)
    with pytest.raises(ValueError, match=message):
        KINDS["energy"](bounds=bounds).fit(x, y)


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        (None, [-INF, -INF], [INF, INF]),
        ((0, 1), [0, 0], [1, 1]),
        ((None, 1), [-INF, -INF], [1, 1]),
        ([0.5, None], [0.5, 0.5], [INF, INF]),
        ([(0, 1)], [0, 0], [1, 1]),
        ([(0, None), (None, 5)], [0, -INF], [INF, 5]),
        (((None, None), (-INF, 2)), [-INF, -INF], [INF, 2]),
        ([[0, 1], (2, np.float64(3))], [0, 2], [1, 3]),
        ((np.float32(0.5), np.int64(2)), [0.5, 0.5], [2, 2]),
    ],
)
def test_bounds_are_one_pair_or_one_for_each_target(bounds, low, high):
    parsed = parse_bounds(bounds, 2)
    assert parsed.low.tolist() == low
    assert parsed.high.tolist() == high
