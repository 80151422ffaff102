"""Tied targets: found, spread over their rounding intervals, and learned."""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.errors import TiesWarning
from ebreg.estimators.ties import TiedTarget, Ties
from ebreg.units import Bounds

KINDS = [EnergyRegressor, MixtureDensityRegressor]
QUICK = {"n_components": 2, "width": 8, "max_iter": 2, "random_state": 0, "verbose": False}
N = 600


@dataclass(frozen=True)
class Case:
    """Targets, the width of their rounding intervals, 0 without ties, and the values that have one."""

    y: np.ndarray
    width: float
    atoms: tuple[float, ...] | None = None  # None: every value has it

    @property
    def column(self) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self.y, dtype=np.float64))[:, None]


def robust_spread(y: np.ndarray) -> float:
    """The distance of the quartiles of all values, in units of a Gaussian's."""
    ordered = np.sort(y)
    n = len(y)
    return (ordered[round(0.75 * n) - 1] - ordered[round(0.25 * n) - 1]) / 1.349


r = np.random.default_rng(0)
NORMAL = r.normal(size=N)
CLIPPED = NORMAL.clip(-1, 1)
CLAIMS = np.where(r.uniform(size=N) < 0.6, 0.0, r.lognormal(7, 2, N))
RARE = np.where(r.uniform(size=N) < 0.97, 0.0, r.lognormal(7, 2, N))
INFLATED = np.where(r.uniform(size=N) < 0.3, 0.0, r.exponential(size=N))
CASES = {
    "rounded": Case(NORMAL.round(1), 0.1),
    "rounded to quarters": Case(np.round(4 * NORMAL) / 4, 0.25),
    "rounded, in other units": Case(1e6 + 1e3 * NORMAL.round(1), 100.0),
    "rounded, tiny": Case(1e-8 * NORMAL.round(1), 1e-9),
    "rounded with noise": Case((NORMAL.round(1) + 0.1) + 0.2, 0.1),
    "sums of tenths": Case(np.array([sum([0.1] * k) for k in r.poisson(9, N)]), 0.1),
    "tenths by two ways": Case(np.where(r.uniform(size=N) < 0.5, 0.1 + 0.2, 0.3) + r.poisson(2, N) / 10, 0.1),
    "integers": Case(r.poisson(5, N).astype(float), 1.0),
    "zero or one": Case((r.uniform(size=N) < 0.3).astype(float), 1.0),
    "whole thousands": Case(1e3 * r.poisson(5, N), 1000.0),
    "clipped": Case(CLIPPED, 0.02 * CLIPPED.std(), atoms=(-1.0, 1.0)),
    "many zeros": Case(INFLATED, 0.02 * robust_spread(INFLATED), atoms=(0.0,)),
    "many zeros and a long tail": Case(CLAIMS, 0.02 * robust_spread(CLAIMS), atoms=(0.0,)),
    "nearly all zeros": Case(RARE, 0.02 * min(RARE.std(), robust_spread(RARE[RARE > 0])), atoms=(0.0,)),
    "nearly all counts are small": Case(np.where(np.arange(N) % 100 == 0, np.arange(N) // 10, 0.0), 10.0),
    "constant": Case(np.full(N, 3.0), 0.02, atoms=(3.0,)),
    "two equal rows": Case(np.array([5.0, 5.0]), 0.02, atoms=(5.0,)),
    "continuous": Case(NORMAL, 0.0),
    "continuous, single precision": Case(NORMAL.astype(np.float32), 0.0),
    "continuous, tiny": Case(1e-200 * NORMAL, 0.0),
    "few ties": Case(np.concatenate([NORMAL, NORMAL[:6]]), 0.0),
    "finely rounded": Case(NORMAL.round(6), 0.0),
    "one row": Case(np.array([2.0]), 0.0),
}
TIED = [name for name, case in CASES.items() if case.width > 0]
UNTIED = [name for name, case in CASES.items() if case.width == 0]


# What counts as tied


@pytest.mark.parametrize("name", CASES)
def test_intervals_are_as_wide_as_the_distance_of_values(name):
    case = CASES[name]
    ties = Ties.of(case.column)
    (target,) = ties.targets
    np.testing.assert_allclose(target.narrowest, case.width, rtol=1e-6)
    assert bool(ties) == (case.width > 0)
    if case.atoms is not None:
        assert target.width == 0
        assert target.atoms.tolist() == list(case.atoms)


@pytest.mark.parametrize("factor", [1e-150, 1e-6, 1e6, 1e150])
def test_intervals_scale_with_the_units(factor):
    for name in ("rounded", "integers", "clipped", "many zeros", "continuous"):
        (target,) = Ties.of(factor * CASES[name].column).targets
        np.testing.assert_allclose(target.narrowest, factor * CASES[name].width, rtol=1e-6)


def test_every_target_is_looked_at_for_itself():
    names = ["integers", "continuous", "rounded", "clipped"]
    ties = Ties.of(torch.cat([CASES[name].column for name in names], dim=1))
    found = [target.narrowest for target in ties.targets]
    np.testing.assert_allclose(found, [CASES[name].width for name in names], rtol=1e-6)
    assert ties
    assert not Ties.of(torch.from_numpy(r.normal(size=(N, 3))))


# Spreading


@pytest.mark.parametrize("name", TIED)
def test_targets_spread_evenly_over_their_intervals_and_no_longer_repeat(name):
    case = CASES[name]
    y = case.column
    before = y.clone()
    ties = Ties.of(y)
    moved = ties.spread(y, Bounds.none(1), seed=3)
    assert torch.equal(y, before)
    assert moved.shape == y.shape
    assert moved.dtype == torch.float64
    spread = torch.ones(len(y), dtype=torch.bool)
    if case.atoms is not None:
        spread = torch.isin(y[:, 0], torch.tensor(case.atoms, dtype=torch.float64))
    assert torch.equal(moved[~spread], y[~spread])
    u = ((moved - y)[spread] / case.width + 0.5).numpy()[:, 0]
    slack = 1e-6
    assert ((u > -slack) & (u < 1 + slack)).all()
    assert len(moved.unique()) == len(y)
    if len(y) == N:
        assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert torch.equal(ties.spread(y, Bounds.none(1), seed=3), moved)
    assert not torch.equal(ties.spread(y, Bounds.none(1), seed=4), moved)


@pytest.mark.parametrize("name", UNTIED)
def test_targets_without_ties_stay_as_they_are(name):
    y = CASES[name].column
    assert torch.equal(Ties.of(y).spread(y, Bounds.none(1), seed=3), y)


def test_only_the_tied_targets_are_moved():
    y = torch.cat([CASES[name].column for name in ("continuous", "integers")], dim=1)
    moved = Ties.of(y).spread(y, Bounds.none(2), seed=0)
    assert torch.equal(moved[:, 0], y[:, 0])
    assert len(moved[:, 1].unique()) == N


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("integers", 0.0, math.inf),
        ("zero or one", 0.0, 1.0),
        ("clipped", -1.0, 1.0),
        ("many zeros", 0.0, math.inf),
        ("constant", 3.0, math.inf),
        ("constant", -math.inf, 3.0),
        ("constant", 2.995, 3.005),
    ],
)
def test_spread_targets_keep_to_the_bounds_and_do_not_pile_up_there(name, low, high):
    case = CASES[name]
    y = case.column
    bounds = Bounds(torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64))
    moved = Ties.of(y).spread(y, bounds, seed=0)
    assert ((moved >= low) & (moved <= high)).all()
    assert ((moved - y).abs() <= 0.5 * case.width * (1 + 1e-9)).all()
    assert len(moved.unique()) == len(y)


# The smallest scale of the components


def test_components_are_no_narrower_than_an_interval():
    def floor(widths: list[float], units: list[float], **settings: float) -> float:
        ties = Ties(tuple(TiedTarget(width, torch.empty(0), 0.0) for width in widths))
        return ties.min_scale(torch.tensor(units, dtype=torch.float64), **settings)

    assert floor([1.0], [2.0]) == pytest.approx(0.5 / math.sqrt(12))
    assert floor([0.0], [2.0]) == 1e-3
    assert floor([0.0], [2.0], least=0.02) == 0.02
    assert floor([1e-6], [2.0]) == 1e-3
    assert floor([1.0, 0.0], [2.0, 1e-9]) == pytest.approx(0.5 / math.sqrt(12))
    # One minimum for all: the narrowest interval, in its own units.
    assert floor([1.0, 30.0], [1.0, 1000.0]) == pytest.approx(0.03 / math.sqrt(12))


# Fits


def table(name: str, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    y = CASES[name].y[:n]
    return np.random.default_rng(1).normal(size=(len(y), 2)), y


def fit_and_count(regressor, *args, **settings) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        regressor.fit(*args, **settings)
    return caught


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["rounded", "rounded with noise", "integers", "clipped", "constant"])
def test_tied_targets_are_warned_of_once_a_fit_and_learned_without_harm(kind, name):
    x, y = table(name)
    before = y.copy()
    regressor = kind(**QUICK)
    caught = fit_and_count(regressor, x, y)
    assert [w.category for w in caught] == [TiesWarning]
    assert "rounded_nll" in str(caught[0].message)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(y, before)

    for epoch in regressor.history_:
        assert all(np.isfinite(loss) for loss in epoch.values())
    dist = regressor.predict_distribution(x[:9])
    for values in (dist.mean, dist.stddev, dist.log_prob(y[:9]), dist.sample(3, random_state=0)):
        assert np.isfinite(values).all()
    unit = regressor.model_.y_units.scale.item()
    floor = Ties.of(torch.from_numpy(y)[:, None]).targets[0].narrowest / math.sqrt(12)
    assert regressor.design_.min_scale == pytest.approx(max(1e-3, floor / unit))
    scales = dist.proposal.scales  # in the user's units
    assert (scales >= regressor.design_.min_scale * unit * (1 - 1e-9)).all()

    if name == "rounded":
        assert len(fit_and_count(regressor, x, y)) == 1  # and once more by another fit


@pytest.mark.parametrize("kind", KINDS)
def test_ties_in_one_of_two_targets_are_warned_of_once(kind):
    x, y = table("continuous")
    both = np.stack([y, CASES["integers"].y[: len(y)]], axis=1)
    assert [w.category for w in fit_and_count(kind(**QUICK), x, both)] == [TiesWarning]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["continuous", "few ties", "continuous, single precision"])
def test_continuous_targets_are_not_warned_of(kind, name):
    x, y = table(name)
    regressor = kind(**QUICK)
    assert fit_and_count(regressor, x, y) == []
    assert regressor.design_.min_scale == 1e-3


def test_rows_of_no_weight_do_not_tie():
    x, y = table("continuous")
    y = np.concatenate([y, np.zeros(30)])
    x = np.concatenate([x, x[:30]])
    weights = np.repeat([1.0, 0.0], [60, 30])
    assert fit_and_count(MixtureDensityRegressor(**QUICK), x, y, sample_weight=weights) == []


@pytest.mark.parametrize(("kind", "bounds"), [(EnergyRegressor, (0, None)), (MixtureDensityRegressor, None)])
def test_intervals_of_integers_get_the_mass_of_their_value(kind, bounds):
    own = np.random.default_rng(2)
    x = own.choice([-1.0, 1.0], size=(N, 1))
    # Two laws, by the sign of x.
    y = np.where(
        x[:, 0] > 0, own.choice(4, N, p=[0.1, 0.2, 0.3, 0.4]), own.choice(4, N, p=[0.5, 0.3, 0.2, 0])
    )
    settings = {**QUICK, "n_components": 8, "width": 16, "max_iter": 40, "learning_rate": 1e-2}
    regressor = kind(bounds=bounds, **settings)
    with pytest.warns(TiesWarning):
        regressor.fit(x, y.astype(float))
    signs = np.array([[-1.0], [1.0]])
    dist = regressor.predict_distribution(signs)
    for value in range(4):
        mass = dist.cdf(np.full(2, value + 0.5)) - dist.cdf(np.full(2, value - 0.5))
        for sign, found in zip(signs[:, 0], mass, strict=True):
            frequency = (y[x[:, 0] == sign] == value).mean()
            assert abs(found - frequency) < 0.08
    assert (np.abs(dist.mean - [y[x[:, 0] == sign].mean() for sign in signs[:, 0]]) < 0.2).all()


def test_values_at_a_bound_hardly_move_the_mean():
    counts = torch.tensor([0.0] * 700 + [1.0] * 250 + [2.0] * 50).double()[:, None]
    bounds = Bounds(torch.tensor([0.0]), torch.tensor([torch.inf]))
    moved = Ties.of(counts).spread(counts, bounds, seed=0)
    assert (moved >= 0).all()
    assert (moved.mean() - counts.mean()).abs() < 0.04
    assert len(moved.unique()) == len(moved)


def test_copies_of_rows_are_not_ties_of_targets():
    """A bootstrap sample repeats rows, x and y together; the density is as meaningful as before."""
    x, y = table("continuous")
    chosen = np.random.default_rng(0).integers(0, len(y), len(y))
    assert Ties.of(torch.from_numpy(y[chosen])[:, None])  # by the targets alone they would be
    for kind in KINDS:
        assert fit_and_count(kind(**QUICK), x[chosen], y[chosen]) == []


@pytest.mark.parametrize("x", [np.zeros(300), np.arange(300) % 5, np.arange(300.0)])
def test_rounded_targets_are_not_taken_for_copies(x):
    y = torch.arange(300, dtype=torch.float64).remainder(7)[:, None]
    assert Ties.among(torch.as_tensor(x, dtype=torch.float64)[:, None], y)


def test_a_target_that_is_often_zero_with_a_long_tail_keeps_its_shares():
    own = np.random.default_rng(1)
    n = 600
    x = own.uniform(size=(n, 1))
    claims = np.where(own.random(n) < 0.6, 0.0, own.lognormal(7, 2, n))
    settings = {**QUICK, "n_components": 8, "width": 16, "max_iter": 30, "learning_rate": 5e-3}
    regressor = EnergyRegressor(bounds=(0, None), **settings)
    with pytest.warns(TiesWarning):
        regressor.fit(x, claims)
    dist = regressor.predict_distribution(x[:30])
    for value in (20.0, 1000.0):
        assert abs(dist.cdf(np.full(30, value)).mean() - (claims <= value).mean()) < 0.06
