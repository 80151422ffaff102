"""Bounds and regions of inputs far from the training rows, where the heads extrapolate to anything."""

import itertools
import warnings

import numpy as np
import pytest

from ebreg import EnergyRegressor, MixtureDensityRegressor

REGRESSORS = {
    "mixture": lambda **settings: MixtureDensityRegressor(**settings),
    "members": lambda **settings: EnergyRegressor(**settings),
    "joint-nce": lambda **settings: EnergyRegressor(method="joint-nce", **settings),
}
# Bounds, and the range of the targets.
TARGETS = {
    "far bounds": ((-2000.0, 2000.0), (1.0, 2.0)),
    "a far lower bound": ((0.0, None), (10001.0, 10002.0)),
    "a far upper bound": ((None, 1e6), (-1.0, 1.0)),
    "near bounds": ((0.0, 1.0), (0.0, 1.0)),
}


def predicted(kind: str, bounds, ends, centre: float, seed: int, x):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(centre, 1, (120, 1)), rng.uniform(*ends, 120)
    settings = {"bounds": bounds, "max_iter": 3, "random_state": seed, "verbose": False}
    settings |= {} if kind == "mixture" else {"width": 1 + 15 * (seed % 2)}
    with warnings.catch_warnings(action="ignore"):
        model = REGRESSORS[kind](**settings).fit(X, y)
        return model, model.predict_distribution(np.reshape(x, (-1, 1)))


def check(bounds, model, p):
    """Every answer lies within the bounds, and regions and intervals hold what was asked for."""
    low, high = (-np.inf if bounds[0] is None else bounds[0], np.inf if bounds[1] is None else bounds[1])
    with warnings.catch_warnings(action="ignore"):
        draws = p.sample(500, random_state=0)
        quantiles = p.quantile([1e-6, 0.05, 0.5, 0.95, 1 - 1e-6])
        for values in (draws, quantiles, p.mean, model.predict_interval([[1e3], [-1e3]])):
            assert np.isfinite(values).all()
            assert (values >= low).all()
            assert (values <= high).all()
        n = len(p)
        if np.isfinite(low):
            np.testing.assert_allclose(p.cdf(np.full(n, low)), 0, atol=1e-9)
            assert (p.log_prob(np.full(n, low - 1.0)) == -np.inf).all()
        if np.isfinite(high):
            np.testing.assert_allclose(p.cdf(np.full(n, high)), 1, atol=1e-9)
            assert (p.log_prob(np.full(n, high + 1.0)) == -np.inf).all()
        for mass in (0.5, 0.9):
            held = masses(p, p.highest_density_region(mass))
            np.testing.assert_allclose(held, mass, atol=2e-3)


def masses(p, region) -> np.ndarray:
    """What the parts of a region hold by the distribution function, one number a row."""
    n = max(len(row) for row in region.intervals)
    ends = np.stack([np.vstack([row, np.full((n - len(row), 2), row[0, 0])]) for row in region.intervals])
    return np.diff(p.cdf(ends.transpose(1, 2, 0)), axis=1).sum(axis=(0, 1))


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("kind", REGRESSORS)
def test_bounds_and_masses_hold(kind, targets):
    bounds, ends = TARGETS[targets]
    check(bounds, *predicted(kind, bounds, ends, 300.0, 0, [1000.0, -1000.0, 300.0]))


@pytest.mark.parametrize("seed", [0, 2, 6])
def test_level_densities_have_regions_of_the_mass_that_was_asked_for(seed):
    # Far from the data these fits give densities that are level between their bounds.
    _, p = predicted("members", (0.0, 1.0), (0.0, 1.0), 50.0, seed, [1000.0])
    with warnings.catch_warnings(action="ignore"):
        assert np.ptp(p.log_prob(np.linspace(0.01, 0.99, 50)[:, None])) < 1e-6
        for mass in (0.3, 0.6, 0.9):
            np.testing.assert_allclose(masses(p, p.highest_density_region(mass)), mass, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_bounds_and_masses_hold_of_random_fits(seed):
    rng = np.random.default_rng(seed)
    for kind, targets in itertools.product(REGRESSORS, TARGETS):
        bounds, ends = TARGETS[targets]
        centre = rng.choice([0.0, 50.0, 300.0])
        far = centre + rng.choice([-1, 1], 8) * 10 ** rng.uniform(0, 6, 8)
        check(bounds, *predicted(kind, bounds, ends, centre, seed, far))
