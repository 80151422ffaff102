"""Gradient ascent as a method of the models and of the estimators."""

import copy
import itertools

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn
from torch.distributions import Cauchy, Independent

from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.errors import TiesWarning
from ebreg.estimators import ascent
from ebreg.models import EnergyModel, MixtureModel, Model
from ebreg.networks import MixtureHead
from ebreg.units import Bounds, Standardizer, Tail
from support import normal

F64 = torch.float64


def data(D: int, unit: float = 1.0, n: int = 40) -> tuple[Tensor, Tensor]:
    """Inputs, and targets with a shift, in a unit."""
    x, noise = normal(n, 2), normal(n, D, seed=1)
    return x, unit * (x[:, :1] + 0.5 * noise + 5)


def built(kind: type[Model], D: int, unit: float = 1.0, bounds: Bounds | None = None) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        model = kind.for_table(*data(D, unit), n_components=3, width=16, bounds=bounds)
        for p in model.parameters():  # an untrained energy is nearly flat
            p.data.mul_(1.7)
    return model.to_float64()


KINDS = list(itertools.product([EnergyModel, MixtureModel], [1, 2]))
family = pytest.mark.parametrize(("kind", "D"), KINDS, ids=[f"{kind.__name__}-{D}" for kind, D in KINDS])


def log_f_standard(model: Model, x: Tensor, z: Tensor) -> Tensor:
    h = model.features(x)
    return model.f(h, z) if isinstance(model, EnergyModel) else model.q(h).log_prob(z)


def log_f(model: Model, x: Tensor, y: Tensor) -> Tensor:
    return log_f_standard(model, x, model.standardize(y))


class Line(nn.Module):
    """A backbone whose only feature is the mean of both targets, in standard units."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x


class Quadratic(nn.Module):
    """f(x, y) = -sum_d c_d (y_d - h)^2 / 2."""

    n_targets = 2

    def __init__(self):
        super().__init__()
        self.c = nn.Parameter(torch.tensor([1.0, 4.0], dtype=F64))

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return -0.5 * (self.c * (y - h).square()).sum(dim=-1)


SHIFT, SCALE = torch.tensor([10.0, -3.0], dtype=F64), torch.tensor([100.0, 1e-3], dtype=F64)


def quadratic_model(bounds: Bounds | None = None, tail: Tail | None = None) -> EnergyModel:
    units = Standardizer(SHIFT, SCALE, "y")
    return EnergyModel(
        Line(), Quadratic(), MixtureHead(1, 2, 2).double(), y_units=units, tail=tail, bounds=bounds
    )


# A quadratic energy: all in closed form


@pytest.mark.parametrize("step_size", [0.05, 0.2, 0.4])
@pytest.mark.parametrize("n_steps", [0, 1, 7])
def test_steps_of_a_quadratic_energy_are_a_power(n_steps, step_size):
    x, z = normal(5, 1), normal(5, 2, seed=1)
    end = quadratic_model().gradient_ascent(x, SHIFT + SCALE * z, n_steps, step_size)
    mean, c = 0.5 * x, torch.tensor([1.0, 4.0], dtype=F64)
    expected = mean + (1 - step_size * c) ** n_steps * (z - mean)  # every step is accepted below 2 / max c
    torch.testing.assert_close((end - SHIFT) / SCALE, expected)


def test_reaches_the_mean_from_a_step_size_that_is_far_too_long():
    x, z = normal(5, 1), 3 * normal(5, 2, seed=1)
    end = quadratic_model().gradient_ascent(x, SHIFT + SCALE * z, n_steps=200, step_size=1e4)
    torch.testing.assert_close((end - SHIFT) / SCALE, (0.5 * x).expand(5, 2), rtol=0, atol=1e-6)


def test_stops_at_a_bound_and_slides_along_it():
    bounds = Bounds(
        torch.tensor([-50.0, -3.0007], dtype=F64), torch.tensor([torch.inf, -3 + 2e-4], dtype=F64)
    )
    model = quadratic_model(bounds)
    x = torch.tensor(
        [[2.0]], dtype=F64
    )  # the maximum is one standard unit up in both: beyond the second bound
    starts = torch.tensor([[-50.0, -3.0007], [5.0, -3.0]], dtype=F64)
    end = model.gradient_ascent(x.expand(2, 1), starts, n_steps=100, step_size=0.2)
    assert (end[:, 1] == bounds.high[1]).all()
    torch.testing.assert_close(end[:, 0], (SHIFT + SCALE)[0].expand(2))


def test_the_tail_brings_a_far_start_back():
    tail = Tail(-torch.ones(2), torch.ones(2), torch.ones(2))
    end = quadratic_model(tail=tail).gradient_ascent(
        torch.zeros(1, 1, dtype=F64), SHIFT[None] + 40 * SCALE, n_steps=100, step_size=0.3
    )  # into the box, on whose outside there is no slope but that of the tail, and on to the maximum
    torch.testing.assert_close((end - SHIFT) / SCALE, torch.zeros(1, 2, dtype=F64), rtol=0, atol=1e-6)


# The family of models


@family
@pytest.mark.parametrize("step_size", [0.01, 0.1, 10.0])
def test_never_ends_lower_and_mostly_higher(kind, D, step_size):
    model, (x, y) = built(kind, D), data(D)
    end = model.gradient_ascent(x, y, step_size=step_size)
    assert end.shape == (40, D)
    assert end.dtype == F64
    before, after = log_f(model, x, y), log_f(model, x, end)
    assert (after >= before - 1e-12).all()
    assert (after > before).double().mean() > 0.9


@family
def test_more_steps_lead_to_a_maximum(kind, D):
    model, (x, y) = built(kind, D), data(D)
    end = model.standardize(model.gradient_ascent(x, y, n_steps=300, step_size=1)).requires_grad_()
    (gradient,) = torch.autograd.grad(log_f_standard(model, x, end).sum(), end)
    # At an end of the range of the tail the slope may point out of it.
    low, high = (model.tail.low, model.tail.high) if kind is EnergyModel else (-torch.inf, torch.inf)
    left = (end + gradient).clamp(low, high) - end
    assert left.abs().max() < 0.02


@family
def test_the_unit_of_y_does_not_matter(kind, D):
    unit = 2.0**-20  # exact, so that rounding is the same too
    here, there = built(kind, D), built(kind, D, unit)
    (x, y), (_, small) = data(D), data(D, unit)
    torch.testing.assert_close(
        unit * here.gradient_ascent(x, y), there.gradient_ascent(x, small), rtol=1e-9, atol=0
    )


@family
def test_starts_from_the_mean_of_the_proposal_unless_told(kind, D):
    model, (x, _) = built(kind, D), data(D)
    mean = model.y_units.inverse(model.q(model.features(x)).mean).detach()
    torch.testing.assert_close(model.gradient_ascent(x), model.gradient_ascent(x, mean), rtol=1e-8, atol=0)
    torch.testing.assert_close(model.gradient_ascent(x, n_steps=0), mean)


@family
def test_a_row_ends_alone_where_it_ends_in_a_batch(kind, D):
    model, (x, y) = built(kind, D), data(D)
    together = model.gradient_ascent(x, y)
    for rows in ([4], [5, 0, 3]):
        torch.testing.assert_close(model.gradient_ascent(x[rows], y[rows]), together[rows], rtol=1e-8, atol=0)


@family
def test_leaves_no_gradients_and_the_mode_and_start_as_they_were(kind, D):
    model, (x, y) = built(kind, D), data(D)
    model.train()
    next(model.parameters()).requires_grad_(False)
    y.requires_grad_()
    before, weights = y.detach().clone(), copy.deepcopy(model.state_dict())
    end = model.gradient_ascent(x, y)
    assert not end.requires_grad
    assert y.grad is None
    assert torch.equal(y, before)
    assert all(p.grad is None for p in model.parameters())
    assert all(part.training for part in model.modules())
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@family
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_climbs_where_gradients_are_switched_off(kind, D, mode):
    model, (x, y) = built(kind, D), data(D)
    expected = model.gradient_ascent(x, y)
    with mode():
        assert torch.equal(model.gradient_ascent(x.clone(), y.clone()), expected)


class Noisy(nn.Module):
    """A backbone with dropout."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner, self.dropout = inner, nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.inner(x))


@family
def test_networks_are_in_evaluation_mode(kind, D):
    model, (x, y) = built(kind, D), data(D)
    expected = model.gradient_ascent(x, y)
    model.backbone = Noisy(model.backbone)
    model.train()
    assert torch.equal(model.gradient_ascent(x, y), expected)


@family
def test_float32_networks_climb_too(kind, D):
    model, (x, y) = built(kind, D), data(D)
    expected = model.gradient_ascent(x, y)
    torch.testing.assert_close(model.to_float32().gradient_ascent(x, y), expected, rtol=1e-3, atol=1e-3)


@family
def test_never_leaves_the_bounds(kind, D):
    _, y = data(D)
    # Bounds that are no round numbers in standard units, some of the starts on them.
    low, high = torch.full((D,), 4.3, dtype=F64), torch.full((D,), 5.9, dtype=F64)
    inside = y.clamp(low, high)
    model = built(kind, D, bounds=Bounds(low, high))
    for n_steps, step_size in [(1, 0.1), (10, 1e3), (50, 0.3)]:
        end = model.gradient_ascent(data(D)[0], inside, n_steps, step_size)
        assert ((low <= end) & (end <= high)).all()
        assert (end != inside).any()


@family
def test_no_rows_give_no_answers(kind, D):
    model = built(kind, D)
    assert model.gradient_ascent(torch.zeros(0, 2), torch.zeros(0, D)).shape == (0, D)
    assert model.gradient_ascent(torch.zeros(0, 2)).shape == (0, D)


@family
def test_wrong_arguments_are_refused(kind, D):
    model, (x, y) = built(kind, D, bounds=Bounds(torch.full((D,), -20.0), torch.full((D,), 20.0))), data(D)
    with pytest.raises(ValueError, match=rf"y_start must have shape \(40, {D}\), got \(39, {D}\)"):
        model.gradient_ascent(x, y[1:])
    with pytest.raises(TypeError, match="y_start must hold numbers"):
        model.gradient_ascent(x, "mean")
    y[3, 0] = torch.nan
    with pytest.raises(ValueError, match=r"y_start must be finite, got nan at index \(3, 0\)"):
        model.gradient_ascent(x, y)
    y[3, 0] = 21
    message = (
        "y_start must lie within bounds, which are -20 to 20; got 21 in row 3 .* clip y_start to the bounds"
    )
    with pytest.raises(ValueError, match=message):
        model.gradient_ascent(x, y)
    with pytest.raises(ValueError, match="n_steps must be at least 0, got -1"):
        model.gradient_ascent(x, n_steps=-1)
    with pytest.raises(ValueError, match="step_size must be a finite number above 0, got 0"):
        model.gradient_ascent(x, step_size=0)


class CauchyHead(nn.Module):
    """A proposal without a mean."""

    def __init__(self, n_features: int):
        super().__init__()
        self.layer = nn.Linear(n_features, 1).double()

    def forward(self, h: Tensor) -> Independent:
        return Independent(Cauchy(self.layer(h), torch.ones(len(h), 1).double()), 1)


def test_a_proposal_without_a_mean_needs_a_start():
    x, y = data(1)
    model = built(EnergyModel, 1)
    model.proposal = CauchyHead(16)
    with pytest.raises(ValueError, match="y_start must be given: the proposal has no finite mean"):
        model.gradient_ascent(x)
    assert model.gradient_ascent(x, y).shape == (40, 1)


# The estimators

QUICK = {"max_iter": 3, "width": 8, "n_components": 2, "n_draws": 4, "random_state": 0, "verbose": False}
REGRESSORS = {"energy": EnergyRegressor(**QUICK), "mixture": MixtureDensityRegressor(None, **QUICK)}
X, Y = (values.numpy() for values in data(2))
FORMS = {"(n,)": Y[:, 0], "(n, 1)": Y[:, :1], "(n, 2)": Y}


@pytest.fixture(params=list(itertools.product(REGRESSORS, FORMS)), ids="-".join, scope="module")
def fitted(request):
    kind, form = request.param
    return REGRESSORS[kind].fit(X, FORMS[form]), FORMS[form]


def test_a_regressor_answers_as_its_model(fitted):
    regressor, y = fitted
    model, x = regressor.model_, torch.from_numpy(X)
    start = torch.from_numpy(y).reshape(40, -1)
    expected = model.gradient_ascent(x, start, n_steps=4, step_size=0.3).numpy().reshape(y.shape)
    end = regressor.gradient_ascent(X, y, n_steps=4, step_size=0.3)
    assert isinstance(end, np.ndarray)
    np.testing.assert_array_equal(end, expected)
    np.testing.assert_array_equal(
        regressor.gradient_ascent(X), model.gradient_ascent(x).numpy().reshape(y.shape)
    )
    assert regressor.gradient_ascent(X[:0]).shape == (0, *y.shape[1:])


def test_the_size_of_chunks_changes_nothing(fitted, monkeypatch):
    regressor, y = fitted
    expected = regressor.gradient_ascent(X, y), regressor.gradient_ascent(X)
    monkeypatch.setattr(ascent, "_ROWS", 7)
    for start, end in zip((y, None), expected, strict=True):
        np.testing.assert_allclose(regressor.gradient_ascent(X, start), end, rtol=1e-8)


def test_a_regressor_refuses_wrong_starts(fitted, monkeypatch):
    regressor, y = fitted
    monkeypatch.setattr(ascent, "_ROWS", 7)
    with pytest.raises(ValueError, match=r"y_start must have shape \(40,.*\), got \(39,"):
        regressor.gradient_ascent(X, y[1:])
    bad = y.copy()
    bad[30] = np.inf
    with pytest.raises(ValueError, match=r"y_start must be finite, got inf at index \(30, 0\)"):
        regressor.gradient_ascent(X, bad)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_a_regressor_keeps_to_its_bounds(kind, monkeypatch):
    y = Y[:, 0].clip(4.3, 5.9)
    settings = {**REGRESSORS[kind].get_params(), "bounds": (4.3, 5.9)}
    with pytest.warns(TiesWarning):
        regressor = type(REGRESSORS[kind])(**settings).fit(X, y)
    for start in (y, None, np.full(40, 4.3), np.full(40, 5.9)):
        end = regressor.gradient_ascent(X, start, n_steps=30)
        assert ((end >= 4.3) & (end <= 5.9)).all()
    y[30] = 7.0
    monkeypatch.setattr(ascent, "_ROWS", 7)
    with pytest.raises(ValueError, match=r"y_start must lie within bounds.* got 7 in row 30 .* clip y_start"):
        regressor.gradient_ascent(X, y)


def test_a_regressor_must_be_fitted():
    with pytest.raises(NotFittedError):
        EnergyRegressor().gradient_ascent(X)
