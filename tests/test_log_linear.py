import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from ebreg.distributions.log_linear import LogLinear
from ebreg.predictive.node_density import pad

F64 = torch.float64
LEVELS = torch.tensor([1e-9, 1e-4, 0.01, 0.1, 0.33, 0.5, 0.75, 0.99, 1 - 1e-6, 1 - 1e-9], dtype=F64)[:, None]


def curve_at(nodes: Tensor, log_f: Tensor, bounded: tuple[bool, bool] = (False, False)) -> LogLinear:
    """Nodes and values (N, B), as columns are easier to read here."""
    return LogLinear(nodes.T, log_f.T, bounded)


def log_prob(curve: LogLinear, y: Tensor) -> Tensor:
    """(Q, B) -> (Q, B), without the axis of the single target."""
    return curve.log_prob(y[..., None])


def cdf(curve: LogLinear, y: Tensor) -> Tensor:
    return curve.cdf(y[..., None])


def icdf(curve: LogLinear, q: Tensor) -> Tensor:
    return curve.at_levels(q)


def gaussian(y: np.ndarray) -> np.ndarray:
    return -0.5 * (y - 0.3) ** 2


def two_hills(y: np.ndarray) -> np.ndarray:
    return np.logaddexp(-0.5 * ((y + 2) / 0.6) ** 2, 0.7 - 0.5 * ((y - 1.5) / 0.9) ** 2)


def laplace(y: np.ndarray) -> np.ndarray:
    return -np.abs(y - 0.25) * 2


def plateau(y: np.ndarray) -> np.ndarray:
    return np.where(np.abs(y) <= 1, 0.0, -60 * (np.abs(y) - 1))


def spike(y: np.ndarray) -> np.ndarray:
    return np.maximum(-0.5 * y**2, 8 - 2000 * np.abs(y - 1))


SHAPES = {shape.__name__: shape for shape in (gaussian, two_hills, laplace, plateau, spike)}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
# The corners of the shapes are nodes, so that no shape has a kink inside a segment.
CORNERS = [-1.0, 0.25, 1.0, 1.0 - 8.5 / 2000, 1.0 + 8.5 / 2000]


def nodes_of(n: int) -> np.ndarray:
    fine = 1 + np.linspace(-0.01, 0.01, 201)
    return np.unique(np.concatenate([np.linspace(-9, 9, n), CORNERS, fine]))


def curve_of(shape: Callable[[np.ndarray], np.ndarray], n: int = 2001, offset: float = 0.0) -> LogLinear:
    nodes = nodes_of(n)
    return curve_at(torch.tensor(nodes)[:, None], torch.tensor(shape(nodes) + offset)[:, None])


def integral(fn: Callable[[float], float], low: float = -9.0, high: float = 9.0) -> float:
    breaks = sorted({low, high, *(c for c in (*CORNERS, -2.0, 0.0, 1.5) if low < c < high)})
    return sum(integrate.quad(fn, a, b, epsabs=1e-13, epsrel=1e-12)[0] for a, b in pairwise(breaks))


# Against quadrature


@shapes
def test_against_quadrature(shape):
    curve = curve_of(shape, offset=-40.0)
    z = integral(lambda y: math.exp(shape(y)))
    mean = integral(lambda y: y * math.exp(shape(y))) / z
    variance = integral(lambda y: (y - mean) ** 2 * math.exp(shape(y))) / z
    assert abs(curve.log_integral.item() - (math.log(z) - 40)) < 1e-4
    assert abs(curve.mean.item() - mean) < 1e-4
    assert abs(curve.variance.item() - variance) < 1e-4
    for y in (-4.0, -1.0, 0.0, 0.3, 0.9999, 1.001, 3.0):
        at = torch.full((1, 1), y, dtype=F64)
        assert abs(cdf(curve, at).item() - integral(lambda v: math.exp(shape(v)), high=y) / z) < 5e-5
        assert abs(log_prob(curve, at).item() - (shape(y) - math.log(z))) < 2e-4


@shapes
def test_quantiles_invert_the_distribution_function(shape):
    curve = curve_of(shape)
    assert (cdf(curve, icdf(curve, LEVELS)) - LEVELS).abs().max() < 1e-10
    fine = torch.linspace(1e-3, 1 - 1e-3, 999, dtype=F64)[:, None]
    assert (cdf(curve, icdf(curve, fine)) - fine).abs().max() < 1e-10
    assert (icdf(curve, fine).diff(dim=0) > 0).all()


@pytest.mark.parametrize("rise", [0.0, 1e-12, 1e-6, 2.9e-3, 3.1e-3, 0.1, 5.0, 300.0, 5000.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_few_nodes_with_any_rise(rise, sign):
    # Every closed form on its own ground: a wide segment, whose rise may be nothing or all there is.
    nodes = torch.tensor([[0.0], [1.0], [3.0]], dtype=F64)
    log_f = torch.tensor([[0.0], [sign * rise], [0.5 * sign * rise]], dtype=F64)
    curve = curve_at(nodes, log_f)
    assert (cdf(curve, icdf(curve, LEVELS)) - LEVELS).abs().max() < 1e-10
    # Gauss's rule on panels that shrink towards the nodes, where the mass of a steep segment sits.
    steps, outside = np.geomspace(1e-6, 0.5, 40), np.geomspace(1e-6, 60, 80)
    inner = np.concatenate([steps, 1 - steps])
    edges = np.unique(np.concatenate([-outside, [0, 1, 3], inner, 1 + 2 * inner, 3 + outside]))
    roots, weights = np.polynomial.legendre.leggauss(6)
    half = np.diff(edges)[:, None] / 2
    y = torch.tensor((edges[:-1, None] + half * (1 + roots)).reshape(-1, 1))
    weights = torch.tensor((half * weights).reshape(-1, 1)) * log_prob(curve, y).exp()
    assert abs(weights.sum().item() - 1) < 1e-8
    mean = (weights * y).sum()
    assert abs(curve.mean.item() - mean) < 1e-8
    assert abs(curve.variance.item() - (weights * (y - mean) ** 2).sum()) < 1e-8


@shapes
def test_expectation(shape):
    curve = curve_of(shape)
    torch.testing.assert_close(curve.expectation(lambda y: y), curve.mean, rtol=0, atol=1e-6)
    spread = curve.expectation(lambda y: torch.cat([(y - curve.mean) ** 2, torch.ones_like(y)], dim=-1))
    torch.testing.assert_close(
        spread[0], torch.stack([curve.variance[0, 0], torch.ones(()).double()]), rtol=1e-4, atol=0
    )
    points, weights = curve.equal_mass_points()
    assert points.isfinite().all()
    assert (points.diff(dim=0) >= 0).all()
    assert abs(weights.sum().item() - 1) < 1e-12


def test_converges_with_the_square_of_the_spacing():
    sizes, errors = [33, 65, 129, 257], []
    for n in sizes:
        t = torch.linspace(-1, 1, n, dtype=F64)[:, None]
        y = 4 * t + 5 * t**3  # evenly spaced nodes would do even better on a Gaussian
        curve = curve_at(y, -0.5 * y**2)
        errors.append(
            [abs(curve.log_integral.item() - 0.5 * math.log(2 * math.pi)), abs(curve.variance.item() - 1)]
        )
    slopes = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slopes == pytest.approx([-2, -2], abs=0.2)


# Regions


def test_region_of_a_normal():
    curve = curve_of(gaussian)
    for mass in (0.2, 0.9, 0.999):
        ((interval,),) = curve.highest_density_region(mass).intervals
        half = stats.norm.ppf(0.5 + mass / 2)
        torch.testing.assert_close(
            interval, torch.tensor([0.3 - half, 0.3 + half]).double(), rtol=0, atol=1e-3
        )


@pytest.mark.parametrize("name", ["gaussian", "two_hills", "laplace", "spike"])
@pytest.mark.parametrize("mass", [0.05, 0.5, 0.9, 0.9999])
def test_region_is_the_smallest_with_its_mass(name, mass):
    curve = curve_of(SHAPES[name])
    region = curve.highest_density_region(mass)
    (intervals,) = region.intervals
    held = cdf(curve, intervals[:, 1:]) - cdf(curve, intervals[:, :1])
    assert abs(held.sum().item() - mass) < 1e-9
    # Smallest: the density is the same at every end, and is higher inside than outside.
    ends = log_prob(curve, intervals.reshape(-1, 1))
    torch.testing.assert_close(ends, region.log_threshold.expand_as(ends), rtol=0, atol=1e-6)
    y = torch.linspace(-9, 9, 4001, dtype=F64)[:, None]
    inside = ((y >= intervals[:, 0]) & (y <= intervals[:, 1])).any(dim=1)
    assert torch.equal(region.contains(y[..., None])[:, 0], inside)


def test_region_of_a_plateau_is_the_middle_of_it():
    curve = curve_of(plateau)
    ((interval,),) = curve.highest_density_region(0.5).intervals
    torch.testing.assert_close(interval[0], -interval[1], rtol=0, atol=1e-9)
    assert abs((cdf(curve, interval[1:, None]) - cdf(curve, interval[:1, None])).item() - 0.5) < 1e-9


def test_region_that_reaches_into_the_tails():
    curve = curve_at(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [0.0]]))
    ((interval,),) = curve.highest_density_region(0.99).intervals
    assert interval[0] < 0 < 1 < interval[1]
    assert abs((cdf(curve, interval[1:, None]) - cdf(curve, interval[:1, None])).item() - 0.99) < 1e-9


# Modes


def test_modes_and_their_masses():
    curve = curve_of(two_hills)
    (row,) = curve.modes()
    y = torch.linspace(-2, 1.5, 3501, dtype=F64)[:, None]
    below = cdf(curve, y[log_prob(curve, y).argmin()][None]).item()
    torch.testing.assert_close(row.locations[:, 0], torch.tensor([1.5, -2.0]).double(), rtol=0, atol=0.02)
    torch.testing.assert_close(row.masses, torch.tensor([1 - below, below]).double(), rtol=0, atol=1e-4)
    torch.testing.assert_close(row.log_densities, log_prob(curve, row.locations)[:, 0])


def hills(*log_f: float) -> LogLinear:
    values = torch.tensor(log_f, dtype=F64)[:, None]
    return curve_at(torch.arange(len(log_f), dtype=F64)[:, None], values)


@pytest.mark.parametrize(
    ("log_f", "prominence", "tops"),
    [
        ((0, 1, 0), 0.2, {1}),
        ((0, 1, 0.9, 1.05, 0), 0.2, {3}),  # a dent of 0.1 is no pass
        ((0, 1, 0.9, 1.05, 0), 0.05, {1, 3}),
        ((0, 1, 0.7, 1.05, 0), 0.2, {1, 3}),
        ((0, 3, 1, 1.1, 1, 3, 0), 0.2, {1, 5}),  # the small one in the valley goes, the valley stays
        ((0, 1.1, 1, 2, 1.9, 3, 0), 0.2, {5}),  # a staircase
        ((0, 2, 2, 2, 0), 0.2, {2}),  # a plateau counts once, in its middle
        ((5, 0, 5), 0.2, {0, 2}),  # at the ends
        ((0, 0, 0), 0.2, {1}),
        ((3, 2, 1), 0.2, {0}),
    ],
)
def test_prominence(log_f, prominence, tops):
    (row,) = hills(*log_f).modes(prominence)
    assert set(row.locations[:, 0].int().tolist()) == tops
    assert abs(row.masses.sum().item() - 1) < 1e-12
    assert (row.masses.diff() <= 0).all()


def test_lowest_point_parts_the_masses_when_a_small_top_goes():
    (row,) = hills(0, 3, -2, 0.1, 0, 3, 0).modes()
    curve = hills(0, 3, -2, 0.1, 0, 3, 0)
    left = cdf(curve, torch.full((1, 1), 2.0, dtype=F64)).item()  # -2, at node 2, is the pass
    assert sorted(row.masses.tolist()) == pytest.approx(sorted([left, 1 - left]))


# Hard nodes


def check(curve: LogLinear) -> None:
    B = len(curve.nodes)
    levels = LEVELS.expand(-1, B)
    y = icdf(curve, levels)
    assert y.isfinite().all()
    assert (cdf(curve, y) - levels).abs().max() < 1e-10
    for part in (curve.log_integral, curve.mean, curve.variance, log_prob(curve, y)):
        assert part.isfinite().all()
    for region in curve.highest_density_region(0.9).intervals:
        assert region.isfinite().all()
    assert curve.expectation(lambda y: y).isfinite().all()
    assert curve.modes().counts.min() >= 1


def test_nodes_without_mass():
    y = torch.linspace(-3, 3, 61, dtype=F64)[:, None]
    log_f = torch.where(y.abs() <= 1, 0.0, -torch.inf).double()
    curve = curve_at(y, log_f)
    check(curve)
    # From the last node with mass to the first without, the density falls by e^700: next to nothing is left.
    assert abs(curve.log_integral.item() - math.log(2)) < 1e-3
    assert abs(curve.variance.item() - 1 / 3) < 1e-3
    for ends in ([0], [-1], [0, -1]):
        log_f = -0.5 * y**2
        log_f[ends] = -torch.inf
        check(curve_at(y, log_f))
    check(curve_at(y, torch.full_like(y, -torch.inf)))


def test_nodes_that_repeat():
    y = torch.linspace(-8, 8, 201, dtype=F64)
    once = curve_at(y[:, None], -0.5 * y[:, None] ** 2)
    y = torch.cat([y, y[::3], y[50:53], y[:1], y[-1:]]).sort().values[:, None]
    twice = curve_at(y, -0.5 * y**2)
    check(twice)
    at = torch.linspace(-9, 9, 37, dtype=F64)[:, None]
    torch.testing.assert_close(cdf(twice, at), cdf(once, at), rtol=1e-9, atol=1e-14)
    for part in ("log_integral", "mean", "variance"):
        torch.testing.assert_close(getattr(twice, part), getattr(once, part), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(log_prob(twice, at[6:31]), log_prob(once, at[6:31]))


@pytest.mark.parametrize("height", [1e3, 1e5, 1e30])
def test_huge_rises(height):
    y = torch.arange(5, dtype=F64)[:, None]
    check(curve_at(y, height * torch.tensor([0.0, 1.0, -1.0, 1.0, 0.5], dtype=F64)[:, None]))
    check(curve_at(y, height * y))
    curve = curve_at(y, torch.tensor([0.0, 1e3, 0.0, 1e3, 0.0], dtype=F64)[:, None])
    assert abs(curve.mean.item() - 2) < 1e-9
    assert abs(curve.variance.item() - 1) < 1e-2


@pytest.mark.parametrize("scale", [1e-305, 1e-9, 1e-3, 1e6, 1e150])
def test_any_unit(scale):
    y = scale * torch.linspace(-8, 8, 401, dtype=F64)[:, None]
    curve = curve_at(y, -0.5 * (y / scale) ** 2)
    check(curve)
    assert abs(curve.stddev.item() / scale - 1) < 1e-3
    assert abs(curve.log_integral.item() - 0.5 * math.log(2 * math.pi) - math.log(scale)) < 1e-3


def test_rows_depend_on_themselves_alone():
    g = torch.Generator().manual_seed(0)
    nodes = 3 * torch.randn(101, 7, generator=g, dtype=F64).sort(dim=0).values
    log_f = -0.5 * nodes**2 + torch.randn(101, 7, generator=g, dtype=F64)
    together = curve_at(nodes, log_f)
    y, levels = torch.randn(9, 7, generator=g, dtype=F64), LEVELS.expand(-1, 7)
    check(together)
    for i in range(7):
        alone = curve_at(nodes[:, [i]], log_f[:, [i]])
        for verb, argument in ((log_prob, y), (cdf, y), (icdf, levels)):
            assert torch.equal(verb(alone, argument[:, [i]])[:, 0], verb(together, argument)[:, i])
        assert torch.equal(alone.mean[0], together.mean[i])
        assert torch.equal(alone.log_integral[0], together.log_integral[i])


def test_padding_changes_nothing():
    y = torch.linspace(-3, 5, 60, dtype=F64)[None]
    log_f = torch.logaddexp(-2 * (y + 1) ** 2, -(((y - 2) / 0.5) ** 2))
    plain, padded = LogLinear(y, log_f), LogLinear(pad(y, 97), pad(log_f, 97))
    at = torch.linspace(-5, 7, 41, dtype=F64)[:, None]
    for verb, argument in ((log_prob, at), (cdf, at), (icdf, LEVELS)):
        torch.testing.assert_close(verb(padded, argument), verb(plain, argument), rtol=1e-12, atol=1e-12)
    for name in ("mean", "variance", "log_integral"):
        torch.testing.assert_close(getattr(padded, name), getattr(plain, name), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(padded.modes()[0].locations, plain.modes()[0].locations)
    torch.testing.assert_close(padded.modes()[0].masses, plain.modes()[0].masses)
    mine, theirs = (curve.highest_density_region(0.9).intervals[0] for curve in (padded, plain))
    torch.testing.assert_close(mine, theirs)


def test_inputs_are_not_changed_and_nodes_are_constants():
    nodes = torch.linspace(-1, 1, 9)[:, None].requires_grad_()
    curve = curve_at(nodes, torch.zeros(9, 1))
    assert not curve.log_integral.requires_grad
    assert curve.log_integral.dtype == F64
    assert torch.equal(nodes[:, 0].detach(), torch.linspace(-1, 1, 9))


def test_wrong_nodes_are_refused():
    y: Tensor = torch.zeros(5, 2)
    with pytest.raises(ValueError, match=r"nodes must have shape \(B, N\), got \(5,\)"):
        LogLinear(y[:, 0], y)
    with pytest.raises(ValueError, match=r"log_f must have shape \(5, 2\), got \(5, 1\)"):
        LogLinear(y, y[:, :1])
    with pytest.raises(ValueError, match="number of nodes, must be at least 2, got 1"):
        LogLinear(y[:, :1], y[:, :1])
    with pytest.raises(ValueError, match=r"y must have shape \(5, 1\), got \(2, 1\)"):
        LogLinear(y, y).log_prob(torch.zeros(2, 1))


def test_far_tails_are_not_floored():
    nodes = torch.linspace(-1, 1, 4001, dtype=F64)[:, None]
    curve = curve_at(nodes, -0.5 * (nodes / 0.01) ** 2)
    y = torch.tensor([[0.1], [0.5], [0.9]], dtype=F64)
    truth = -0.5 * (y / 0.01) ** 2 - math.log(0.01 * math.sqrt(2 * math.pi))
    torch.testing.assert_close(log_prob(curve, y), truth, rtol=1e-4, atol=1e-2)


# Bounds


LAWS = {
    "exponential": (stats.expon(), 0.0, math.inf),
    "half-normal": (stats.halfnorm(), 0.0, math.inf),
    "truncated normal": (stats.truncnorm(-0.5, 2.0), -0.5, 2.0),
    "uniform": (stats.uniform(), 0.0, 1.0),
    "triangle": (stats.triang(1.0), 0.0, 1.0),
}


def bounded_curve(name: str) -> tuple[LogLinear, "stats.rv_frozen", float, float]:
    law, low, high = LAWS[name]
    nodes = np.linspace(low, high if math.isfinite(high) else low + 30, 20001)
    with np.errstate(divide="ignore"):
        log_f = law.logpdf(nodes)
    curve = curve_at(torch.tensor(nodes)[:, None], torch.tensor(log_f)[:, None], (True, math.isfinite(high)))
    return curve, law, low, high


@pytest.mark.parametrize("name", LAWS)
def test_a_bound_has_no_tail(name: str):
    curve, _, low, high = bounded_curve(name)
    outside = torch.tensor([low - 1e-9, low - 1.0, low - 1e6], dtype=F64)[:, None]
    assert (log_prob(curve, outside) == -torch.inf).all()
    assert (cdf(curve, outside) == 0).all()
    if math.isfinite(high):
        beyond = torch.tensor([high + 1e-9, high + 1.0, 1e300], dtype=F64)[:, None]
        assert (log_prob(curve, beyond) == -torch.inf).all()
        assert (cdf(curve, beyond) == 1).all()
        torch.testing.assert_close(cdf(curve, torch.tensor([[high]], dtype=F64)), torch.ones(1, 1, dtype=F64))
    assert icdf(curve, torch.tensor([[1e-300]], dtype=F64)).item() >= low
    assert icdf(curve, torch.tensor([[1.0]], dtype=F64)).item() <= high


@pytest.mark.parametrize("name", LAWS)
def test_a_bounded_density_is_that_of_its_law(name: str):
    curve, law, _, _ = bounded_curve(name)
    y = law.ppf(LEVELS[:, 0].numpy())
    torch.testing.assert_close(cdf(curve, torch.tensor(y)[:, None])[:, 0], LEVELS[:, 0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(cdf(curve, icdf(curve, LEVELS)), LEVELS, rtol=1e-9, atol=1e-12)
    assert curve.mean.item() == pytest.approx(law.mean(), abs=1e-5)
    assert curve.variance.item() == pytest.approx(law.var(), abs=1e-5)
    assert curve.log_integral.item() == pytest.approx(0, abs=1e-5)


def test_the_bounds_belong_to_the_density():
    curve, law, low, high = bounded_curve("truncated normal")
    ends = torch.tensor([[low], [high]], dtype=F64)
    expected = torch.tensor(law.logpdf([low, high]))[:, None]
    torch.testing.assert_close(log_prob(curve, ends), expected, rtol=0, atol=1e-6)


def test_a_region_stops_at_a_bound():
    curve, law, *_ = bounded_curve("exponential")
    (interval,) = curve.highest_density_region(0.9).intervals
    torch.testing.assert_close(interval, torch.tensor([[0.0, law.ppf(0.9)]], dtype=F64), rtol=0, atol=1e-4)
    assert curve.modes()[0].locations.item() == 0
