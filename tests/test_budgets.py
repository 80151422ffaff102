"""Limits of time: deadlines of trainings and of fits, and the presets that they are beside."""

import time

import numpy as np
import pytest
import torch

from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.errors import TrustWarning
from ebreg.methods import MixtureNLL
from ebreg.models import MixtureModel
from ebreg.training import Deadline, TrainingConfig, fit
from support import normal


def rows(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + 0.1 * rng.normal(size=n)


def method_of(n: int) -> tuple[MixtureNLL, tuple[torch.Tensor, torch.Tensor]]:
    x = normal(n, 2)
    y = x[:, :1] + 0.1 * normal(n, 1, seed=1)
    return MixtureNLL(MixtureModel.for_table(x, y, width=8)), (x, y)


def test_a_training_ends_at_its_deadline_within_an_epoch():
    method, data = method_of(2000)
    config = TrainingConfig(epochs=10_000, batch_size=4)
    deadline = Deadline.after(0.5)
    training = fit(method, data, data, config, progress=False, deadline=deadline)
    assert training.out_of_time
    assert deadline.has_passed
    assert len(training.history) < 10_000
    last = training.history[-1]
    assert "validation_nll" in last  # also of a part of an epoch
    assert np.isfinite(list(last.values())).all()


def test_without_need_a_deadline_changes_nothing():
    (method, data), (other, _) = method_of(50), method_of(50)
    other.load_state_dict(method.state_dict())
    config = TrainingConfig(epochs=3, batch_size=10, schedule="constant")
    limited = fit(method, data, config=config, progress=False, deadline=Deadline.after(1e6))
    free = fit(other, data, config=config, progress=False)
    assert limited.history == free.history
    assert not limited.out_of_time


def test_parts_of_a_deadline():
    whole = Deadline.after(1e6, start=time.monotonic() - 5e5)  # no pause of the machine matters
    assert whole.share == pytest.approx(0.5, abs=0.01)
    assert not whole.has_passed
    part = whole.part(0.75)
    assert part.seconds_left == pytest.approx(2.5e5, rel=0.01)
    assert part.share < 0.1
    assert whole.part(0.25).has_passed
    assert whole.part(0.25).share == 1


@pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
def test_a_fit_with_too_little_time_says_so_and_answers(kind):
    X, y = rows(4000)
    with pytest.warns(TrustWarning, match="max_seconds ended the training within its first pass"):
        model = kind(max_seconds=0.01, batch_size=4, random_state=0, verbose=False).fit(X, y)
    assert np.isfinite(model.predict(X[:5])).all()


@pytest.mark.parametrize("value", [0, -1.0, np.inf, np.nan])
def test_limits_that_are_none_are_refused(value):
    with pytest.raises(ValueError, match="max_seconds must be a finite number above 0"):
        EnergyRegressor(max_seconds=value).fit(*rows())


@pytest.mark.parametrize(
    "regressor",
    [
        EnergyRegressor("joint-nce", preset="fast"),
        EnergyRegressor(n_members=1, preset="best"),
        MixtureDensityRegressor("energy", preset="fast"),
        EnergyRegressor(proposal="full-mixture", preset="fast"),
    ],
)
def test_presets_for_a_single_member_are_refused(regressor):
    with pytest.raises(ValueError, match=r"preset='\w+' is for fits with several members"):
        regressor.fit(*rows())
