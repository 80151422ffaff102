"""The short training before a long one: when the long one follows, and which of the two is kept."""

import signal

import numpy as np
import pytest

from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.estimators import pilot, trainer
from ebreg.estimators.recipe import PRESETS, Pace
from ebreg.training import Deadline
from ebreg.training.loop import Training

SHORT, LONG = Pace(1e-2, (30, 30)), Pace(5e-3, (60, 60))


def training(best: list[int], nlls: list[float], **more) -> Training:
    """Of as many members as there are best epochs, all with the same NLLs."""
    history = [
        {"validation_nll": nll} | {f"validation_nll_{e}": nll for e in range(len(best))} for nll in nlls
    ]
    return Training(history, best, **({"interrupted": False, "seconds": 1.0} | more))


FALLING = np.linspace(1, 0, 20).tolist()


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (training([19, 19, 18, 5], FALLING), True),
        (training([19, 5, 5, 5], FALLING), False),  # most members have stopped learning
        (
            training([19] * 4, [1.0] * 5 + [0.03, 0.02] + [0.01] * 13),
            False,
        ),  # nothing gained in the second half
        (training([19] * 4, FALLING, interrupted=True), False),
        (training([19] * 4, FALLING, out_of_time=True), False),
        (Training([{"validation_nll": nll} for nll in FALLING], 19, False, 1.0), False),  # one block of rows
    ],
)
def test_a_long_training_follows_where_members_still_learn(record, wanted):
    assert pilot.goes_on(record, None) is wanted


def test_a_long_training_needs_twice_the_time_of_the_pilot():
    record = training([19] * 4, FALLING, seconds=100.0)
    assert not pilot.goes_on(record, Deadline.after(150))
    assert pilot.goes_on(record, Deadline.after(250))


def test_the_training_with_the_lower_validation_nll_is_kept():
    low, high = (training([0, 1], nlls) for nlls in ([0.5, 0.1], [0.6, 0.4]))
    assert pilot.better((high, SHORT), (low, LONG)) == (low, LONG)
    assert pilot.better((low, SHORT), (high, LONG)) == (low, SHORT)
    assert pilot.better((low, SHORT), (low, LONG)) == (low, SHORT)


def rows(noise: float, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, X[:, 0] + noise * rng.normal(size=n)


@pytest.fixture
def quick(monkeypatch):
    """A default recipe with few steps."""
    recipe = PRESETS["default"]
    short = Pace(1e-2, (100, 100), schedule="one-cycle", patience=1.0, patience_growth=0.0)
    settings = {"n_members": 2, "pace": Pace(1e-2, (400, 400)), "pilot": short, "n_correction_steps": 10}
    monkeypatch.setitem(PRESETS, "default", type(recipe)(**(vars(recipe) | settings)))


@pytest.mark.parametrize("kind", [EnergyRegressor, MixtureDensityRegressor])
def test_where_there_is_little_noise_the_long_training_is_kept(kind, quick, monkeypatch):
    asked = []
    goes_on = pilot.goes_on
    monkeypatch.setattr(pilot, "goes_on", lambda *args: asked.append(goes_on(*args)) or asked[-1])
    model = kind(random_state=0, verbose=False).fit(*rows(0.01))
    assert asked == [True]
    assert model.n_iter_ > 20  # the pilot has 20 epochs of 5 batches
    assert max(model.best_epoch_) < model.n_iter_
    assert model.score(*rows(0.01)) > 0.5


@pytest.mark.parametrize(
    "given", [{"max_iter": 9}, {"learning_rate": 1e-3, "max_iter": 9}, {"n_iter_no_change": 2, "max_iter": 9}]
)
def test_settings_of_the_user_are_those_of_one_training(given, quick, monkeypatch):
    monkeypatch.setattr(pilot, "goes_on", lambda *_: pytest.fail("there was a pilot"))
    model = MixtureDensityRegressor(random_state=0, verbose=False, **given).fit(*rows(0.01))
    assert model.n_iter_ <= 9


@pytest.mark.parametrize("after", [0, 3, 9])
def test_an_interrupt_in_the_long_training_keeps_the_pilot(after, quick, monkeypatch):
    fit, starts = trainer.fit, []

    def interrupted(method, *args, **settings):
        starts.append(method)
        if len(starts) == 2:  # the long training
            n_steps = iter(range(1000))
            forward = method.forward

            def counted(*inputs):
                if next(n_steps) == after:
                    signal.raise_signal(signal.SIGINT)
                return forward(*inputs)

            method.forward = counted
        return fit(method, *args, **settings)

    monkeypatch.setattr(trainer, "fit", interrupted)
    with pytest.warns(UserWarning, match="interrupted in its training"):
        model = MixtureDensityRegressor(random_state=0, verbose=False).fit(*rows(0.01))
    assert len(starts) == 2
    assert model.interrupted_
    assert model.n_iter_ == 20
    assert model.score(*rows(0.01)) > 0.5
