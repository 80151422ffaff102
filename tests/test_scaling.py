import copy
import math

import pytest
import torch

from ebreg.models import MixtureModel
from ebreg.networks import MLP, MixtureHead
from ebreg.units import Standardizer, Tail
from support import rng


def normal(n: int, C: int) -> torch.Tensor:
    return torch.randn(n, C, generator=rng(), dtype=torch.float64)


# Standardizer


def test_mean_zero_and_deviation_one_by_the_plain_formula():
    values = normal(50, 3) * torch.tensor([1.0, 5.0, 0.01]) + torch.tensor([0.0, -3.0, 7.0])
    units = Standardizer.of("y", values)
    torch.testing.assert_close(units.shift, values.mean(dim=0))
    torch.testing.assert_close(units.scale, values.std(dim=0, correction=0))
    z = units(values)
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(z.square().mean(dim=0), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(units.shift + units.scale * z, values)


@pytest.mark.parametrize("exponent", [-307, -300, -200, -160, -20, 0, 20, 160, 200, 300, 307])
def test_any_scale_that_float64_can_hold(exponent):
    z = normal(40, 1)
    units = Standardizer.of("y", z * 10.0**exponent)
    expected = Standardizer.of("y", z)
    torch.testing.assert_close(units(z * 10.0**exponent), expected(z), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(units.scale, expected.scale * 10.0**exponent, rtol=1e-9, atol=0)


def test_columns_of_very_different_scale_do_not_meet():
    z = normal(40, 3)
    sizes = torch.tensor([1e-300, 1.0, 1e300], dtype=torch.float64)
    torch.testing.assert_close(Standardizer.of("x", z * sizes)(z * sizes), Standardizer.of("x", z)(z))


def test_denormal_numbers_stay_finite():
    values = torch.tensor([[5e-324], [1e-323], [5e-323], [0.0]], dtype=torch.float64)
    units = Standardizer.of("y", values)
    assert (units.scale > 0).all()
    assert torch.isfinite(units(values)).all()
    larger = normal(30, 1) * 1e-310
    assert abs(Standardizer.of("y", larger)(larger).std().item() - 1) < 0.05


@pytest.mark.parametrize("shift", [1e6, -1e9, 1e12])
def test_a_huge_shift_keeps_the_spread(shift):
    z = normal(100, 1)
    units = Standardizer.of("y", z + shift)
    # The data are known to one part in 1e16 of the shift.
    torch.testing.assert_close(
        units(z + shift), Standardizer.of("y", z)(z), rtol=0, atol=1e-15 * abs(shift) + 1e-9
    )


@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, -1 / 3, 1e-300, 1e300, 123456.789])
@pytest.mark.parametrize("n", [1, 3, 1000])
def test_a_constant_column_gets_scale_one(constant, n):
    values = torch.full((n, 1), constant, dtype=torch.float64)
    units = Standardizer.of("x", values)
    assert units.scale.item() == 1
    # The mean of n equal numbers may be off by its last digit.
    assert units(values).abs().max() <= 1e-15 * max(abs(constant), 1)


def test_a_column_that_differs_by_rounding_alone_is_constant():
    values = torch.tensor([[0.3], [0.1 + 0.2], [0.3]], dtype=torch.float64)
    assert values[0] != values[1]
    assert Standardizer.of("x", values).scale.item() == 1


def test_single_precision_input_is_measured_in_double():
    values = (normal(1000, 1) + 1e4).float()
    units = Standardizer.of("y", values)
    torch.testing.assert_close(units.shift, values.double().mean(dim=0), rtol=1e-14, atol=0)
    assert units(values).dtype == torch.float64


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_refused_with_their_place(bad):
    values = normal(5, 2)
    values[3, 1] = bad
    with pytest.raises(ValueError, match=rf"y must be finite, got {bad} at index \(3, 1\)"):
        Standardizer.of("y", values)


def test_a_range_that_overflows_is_refused():
    values = torch.tensor([[1.7e308], [1.7e308], [1.7e308], [-1.7e308]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"y spans more than float64 can hold; divide it by a constant"):
        Standardizer.of("y", values)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"y must have rows and columns"):
        Standardizer.of("y", torch.zeros(5))
    with pytest.raises(ValueError, match="number of rows of y must be at least 1"):
        Standardizer.of("y", torch.zeros(0, 2))
    # One column would broadcast to three.
    with pytest.raises(ValueError, match=r"values must have shape \(\.\.\., 3\), got \(4, 1\)"):
        Standardizer.identity(3)(torch.zeros(4, 1))


def test_arrays_of_the_user_are_left_alone():
    values = normal(10, 2)
    before = values.clone()
    units = Standardizer.of("y", values)
    units(values)
    assert torch.equal(values, before)
    shift, scale = normal(1, 2)[0], torch.ones(2, dtype=torch.float64)
    kept = shift.clone(), scale.clone()
    units = Standardizer(shift, scale)
    units.load_state_dict(Standardizer(shift + 1, scale * 2).state_dict())
    assert torch.equal(shift, kept[0])
    assert torch.equal(scale, kept[1])


@pytest.mark.parametrize("convert", ["float", "half", "double", "bfloat16"])
def test_units_stay_double_whatever_the_model_is(convert):
    y_units = Standardizer.of("y", normal(10, 1) * 1e-200 + 3e-200)
    model = MixtureModel(
        MLP(2, (4,)), MixtureHead(4, 1, 2), y_units=y_units, x_units=Standardizer.identity(2)
    )
    before = copy.deepcopy(model.state_dict())
    getattr(model, convert)()
    for name, value in model.state_dict().items():
        if "units" in name:
            assert value.dtype == torch.float64
            assert torch.equal(value, before[name])
    assert model.reference.dtype == getattr(torch.zeros(1), convert)().dtype
    assert model.to(torch.float32).y_units.scale.dtype == torch.float64
    assert model.to("meta").y_units.scale.device.type == "meta"


def test_state_travels():
    units = Standardizer.of("y", normal(10, 2))
    other = Standardizer.identity(2)
    other.load_state_dict(units.state_dict())
    assert torch.equal(other.shift, units.shift)
    assert torch.equal(copy.deepcopy(units).scale, units.scale)
    assert not list(units.parameters())


# Tail


def test_no_penalty_inside_and_the_box_holds_the_data():
    y = normal(200, 2) * torch.tensor([1.0, 4.0])
    tail = Tail.of(y).double()
    inside, penalty = tail.split(y)
    assert torch.equal(inside, y)
    assert torch.equal(penalty, torch.zeros(200, dtype=torch.float64))
    assert ((y.amin(dim=0) - tail.low) >= 0.49).all()
    assert ((tail.high - y.amax(dim=0)) >= 0.49).all()


def test_penalty_is_half_the_squared_distance_in_widths():
    tail = Tail(torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.0]))
    y = torch.tensor([[0.0, 0.0], [2.0, 0.0], [-3.0, 6.0], [1.0, -2.0]])
    inside, penalty = tail.split(y)
    assert inside.tolist() == [[0, 0], [1, 0], [-1, 2], [1, -2]]
    assert penalty.tolist() == [0, 0.5 * 2**2, 0.5 * (4**2 + 2**2), 0]
    assert tail.split(torch.zeros(5, 3, 2))[1].shape == (5, 3)


def test_exp_of_the_ended_energy_is_integrable():
    # Outside, f is that of the border minus half a square: each side adds exp(f(border)) sqrt(pi / 2) width.
    low, high, width = -1.0, 1.5, 0.7
    tail = Tail(*(torch.tensor([v]) for v in (low, high, width))).double()

    def rising(y: torch.Tensor) -> torch.Tensor:  # an energy with no end of its own
        return 3 * y[..., 0].abs()

    y = torch.linspace(-30, 30, 600_001, dtype=torch.float64)[:, None]
    inside, penalty = tail.split(y)
    total = torch.trapezoid((rising(inside) - penalty).exp(), y[:, 0])
    box = (math.exp(3.0) + math.exp(4.5) - 2) / 3
    ends = (math.exp(3.0) + math.exp(4.5)) * math.sqrt(math.pi / 2) * tail.width.item()
    torch.testing.assert_close(total.item(), box + ends, rtol=1e-6, atol=0)


def test_far_away_is_minus_infinity_and_never_nan():
    tail = Tail.of(normal(10, 1))
    for far in (1e6, 1e25, math.inf):
        inside, penalty = tail.split(torch.tensor([[far], [-far]]))
        assert torch.isfinite(inside).all()
        assert (penalty > 1e11).all()


def test_a_tail_answers_in_the_precision_of_the_targets_and_keeps_its_own():
    tail = Tail.of(normal(10, 1)).half()
    assert tail.low.dtype == torch.float64
    for dtype in (torch.float32, torch.float64):
        assert all(part.dtype == dtype for part in tail.split(normal(3, 1).to(dtype)))
    low = torch.zeros(1)
    tail = Tail(low, low + 1, low + 1)
    tail.load_state_dict(Tail(low - 5, low + 1, low + 1).state_dict())
    assert low.item() == 0


def test_robust_units_are_the_usual_ones_without_outliers():
    y = normal(200, 2)
    usual, robust = Standardizer.of("y", y), Standardizer.robust("y", y)
    assert torch.equal(usual.shift, robust.shift)
    assert torch.equal(usual.scale, robust.scale)


def test_robust_units_are_those_of_the_middle_with_outliers():
    y = normal(2000, 2)
    y[0, 0] = 1e8
    units = Standardizer.robust("y", y)
    assert units.scale[0] == pytest.approx(3, rel=0.1)
    assert units.shift[0] == pytest.approx(0, abs=0.1)
    assert units.scale[1] == pytest.approx(1, rel=0.1)


def test_robust_units_of_ties_and_of_few_rows_are_the_usual_ones():
    y = torch.zeros(100, 1)
    y[:5] = 1000.0
    assert torch.equal(Standardizer.robust("y", y).scale, Standardizer.of("y", y).scale)
    few = torch.tensor([[0.0], [1e-3], [2e-3], [1e3]])
    assert torch.equal(Standardizer.robust("y", few).scale, Standardizer.of("y", few).scale)
