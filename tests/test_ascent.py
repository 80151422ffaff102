import math

import pytest
import torch
from torch import Tensor

from ebreg.distributions import GaussianMixture
from ebreg.distributions.ascent import gradient_ascent, modes_by_ascent
from ebreg.distributions.regions import Mode
from support import rng

F64 = torch.float64


TOP = torch.tensor([1.0, -2.0], dtype=F64)


def quadratic(y: Tensor) -> Tensor:
    return -0.5 * ((y - TOP) ** 2 * torch.tensor([1.0, 4.0], dtype=F64)).sum(dim=-1)


def ripples(y: Tensor) -> Tensor:
    return torch.cos(5 * y).sum(dim=-1) - 0.1 * (y**2).sum(dim=-1)


# One target at a time


def test_reaches_the_top_of_a_quadratic():
    y = 3 * torch.randn(4, 5, 2, generator=rng(), dtype=F64)
    tops = gradient_ascent(quadratic, y, n_steps=300, step_size=0.2)
    torch.testing.assert_close(tops, TOP.expand(4, 5, 2), rtol=0, atol=1e-6)


def test_takes_the_steps_of_the_formula():
    y = torch.tensor([[0.0, 0.0]], dtype=F64)
    by_hand = y.clone()
    for _ in range(7):
        by_hand = by_hand + 0.01 * (TOP - by_hand) * torch.tensor([1.0, 4.0], dtype=F64)
    torch.testing.assert_close(gradient_ascent(quadratic, y, n_steps=7, step_size=0.01), by_hand)


@pytest.mark.parametrize("step_size", [1e-3, 0.1, 10.0, 1e6])
@pytest.mark.parametrize("growth", [1.0, 1.5])
@pytest.mark.parametrize("log_f", [quadratic, ripples])
def test_never_ends_lower(log_f, growth, step_size):
    y = 2 * torch.randn(200, 2, generator=rng(), dtype=F64)
    end = gradient_ascent(log_f, y, n_steps=25, step_size=step_size, growth=growth)
    assert (log_f(end) >= log_f(y)).all()
    assert (log_f(end) > log_f(y)).double().mean() > 0.3


def test_a_step_that_is_too_long_is_shortened():
    y = torch.tensor([[10.0, 10.0]], dtype=F64)
    assert torch.equal(gradient_ascent(quadratic, y, n_steps=1, step_size=100.0), y)
    assert quadratic(gradient_ascent(quadratic, y, n_steps=60, step_size=100.0)) > -1e-3


def test_stays_where_f_is_not_finite_beyond():
    def inside(y: Tensor) -> Tensor:
        return torch.where(y[..., 0].abs() < 1, y[..., 0], -torch.inf)

    def undefined(y: Tensor) -> Tensor:
        return y[..., 0] + (1 - y[..., 0]).log()  # NaN beyond 1

    for log_f in (inside, undefined):
        end = gradient_ascent(log_f, torch.tensor([[-0.5], [0.1]], dtype=F64), n_steps=50, step_size=0.7)
        assert log_f(end).isfinite().all()
        assert (log_f(end) >= log_f(torch.tensor([[-0.5], [0.1]], dtype=F64))).all()


def test_every_entry_for_itself():
    y = torch.randn(6, 2, generator=rng(), dtype=F64)
    together = gradient_ascent(ripples, y, step_size=0.1)
    for i in range(6):
        torch.testing.assert_close(
            gradient_ascent(ripples, y[[i]], step_size=0.1), together[[i]], rtol=0, atol=0
        )


def test_start_is_not_changed_and_nothing_is_differentiated():
    y = torch.randn(6, 2, generator=rng(), dtype=F64, requires_grad=True)
    before = y.detach().clone()
    with torch.no_grad():
        end = gradient_ascent(quadratic, y)
    assert torch.equal(y, before)
    assert y.grad is None
    assert not end.requires_grad
    assert torch.equal(gradient_ascent(quadratic, y, n_steps=0), before)


def test_slides_along_the_bounds_of_a_box():
    low, high = torch.tensor([-3.0, -1.0], dtype=F64), torch.tensor([3.0, 2.0], dtype=F64)
    y = torch.tensor([[-3.0, 2.0], [2.0, -1.0], [0.0, 0.0]], dtype=F64)
    ends = [gradient_ascent(quadratic, y, n_steps=T, step_size=0.2, box=(low, high)) for T in (1, 2, 5, 200)]
    assert all(((low <= end) & (end <= high)).all() for end in ends)
    # The top lies below the box: the second target stops at its bound while the first goes on to its own top.
    assert (ends[1][:, 1] == -1).all()
    torch.testing.assert_close(ends[-1], torch.tensor([[1.0, -1.0]], dtype=F64).expand(3, 2))


def test_wrong_settings_are_refused():
    y = torch.zeros(1, 2, dtype=F64)
    with pytest.raises(ValueError, match="n_steps must be at least 0, got -1"):
        gradient_ascent(quadratic, y, n_steps=-1)
    with pytest.raises(ValueError, match="step_size must be a finite number above 0, got 0"):
        gradient_ascent(quadratic, y, step_size=0)


# Modes


def mixture(weights: list[float], means: list[list[float]], scales: list[list[float]]) -> GaussianMixture:
    parts = (torch.tensor([part], dtype=F64) for part in (weights, means, scales))
    w, m, s = parts
    return GaussianMixture(w.log(), m, s)


def test_modes_of_two_dimensional_mixtures():
    q = mixture([0.5, 0.3, 0.2], [[-4.0, 0.0], [4.0, 4.0], [3.0, -4.0]], [[1.0, 0.5], [0.7, 0.7], [0.5, 1.0]])
    (row,) = modes_by_ascent(q.log_prob, q.sample(400, rng()))
    assert len(row) == 3
    torch.testing.assert_close(row.locations, q.means[0], rtol=0, atol=0.05)
    weights = q.logits.exp()[0]
    assert ((row.masses - weights).abs() < 4.5 * (weights * (1 - weights) / 400).sqrt()).all()
    torch.testing.assert_close(row.log_densities, q.log_prob(row.locations[:, None])[:, 0])
    assert abs(row.masses.sum().item() - 1) < 1e-12


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e5])
def test_modes_do_not_depend_on_the_unit(unit):
    q = mixture([0.6, 0.4], [[-3.0, 0.0], [3.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]])
    shift, scale = torch.tensor([7.0, 0.0], dtype=F64), torch.tensor([unit, 3.0], dtype=F64)
    rescaled = q.rescaled(shift, scale)
    draws = q.sample(200, rng())
    expected, got = (
        modes_by_ascent(q.log_prob, draws),
        modes_by_ascent(rescaled.log_prob, shift + scale * draws),
    )
    assert got.counts.tolist() == expected.counts.tolist() == [2]
    reference = expected[0]
    torch.testing.assert_close((got[0].locations - shift) / scale, reference.locations, rtol=0, atol=0.05)
    torch.testing.assert_close(got[0].masses, reference.masses, rtol=0, atol=0.02)
    log_densities = reference.log_densities - scale.log().sum()
    torch.testing.assert_close(got[0].log_densities, log_densities, rtol=0, atol=0.02)


def test_rows_may_differ_in_their_modes():
    means = torch.tensor([[[-4.0, 0.0], [4.0, 0.0]], [[0.0, 0.0], [0.5, 0.0]]], dtype=F64)
    q = GaussianMixture(torch.zeros(2, 2, dtype=F64), means, torch.ones(2, 2, 2, dtype=F64))
    modes = modes_by_ascent(q.log_prob, q.sample(100, rng()))
    assert modes.counts.tolist() == [2, 1]
    assert [len(row) for row in modes] == [2, 1]
    assert len(modes) == 2
    torch.testing.assert_close(modes[1].locations, torch.tensor([[0.25, 0.0]], dtype=F64), rtol=0, atol=0.05)
    assert math.isclose(modes[1].masses.item(), 1.0)


def ring(y: Tensor) -> Tensor:
    """Mass along a circle of radius 3, hardly uneven: one ridge without an end."""
    radius = (y**2).sum(dim=-1).sqrt()
    return -0.5 * ((radius - 3) / 0.2) ** 2 + 0.05 * y[..., 0] / radius


def test_a_ridge_is_one_mode():
    angle = 2 * math.pi * torch.arange(64, dtype=F64) / 64
    on_it = 3 * torch.stack([angle.cos(), angle.sin()], dim=1)[:, None]
    (row,) = modes_by_ascent(ring, on_it, n_steps=10)
    assert len(row) == 1
    assert math.isclose(row.masses.item(), 1)
    assert row.log_densities.item() > ring(on_it).max().item() - 0.01


def test_tops_that_a_deep_valley_parts_stay_apart_and_a_shallow_one_joins_them():
    def two(depth: float) -> Mode:
        z = math.sqrt(2 * depth)  # tops at +-z over a saddle that is about this much lower, for deep ones
        q = mixture([0.5, 0.5], [[-z, 0.0], [z, 0.0]], [[1.0, 1.0], [1.0, 1.0]])
        return modes_by_ascent(q.log_prob, q.sample(200, rng()))[0]

    assert len(two(4.0)) == 2
    assert len(two(0.55)) == 1


def test_joining_does_not_depend_on_the_other_rows():
    means = torch.tensor([[[-4.0, 0.0], [4.0, 0.0]], [[0.0, 0.0], [0.5, 0.0]]], dtype=F64)
    q = GaussianMixture(torch.zeros(2, 2, dtype=F64), means, torch.ones(2, 2, 2, dtype=F64))
    draws = q.sample(100, rng())
    together = modes_by_ascent(q.log_prob, draws)
    for b in range(2):
        alone = GaussianMixture(q.logits[[b]], q.means[[b]], q.scales[[b]])
        (row,) = modes_by_ascent(alone.log_prob, draws[:, [b]])
        torch.testing.assert_close(row.locations, together[b].locations, rtol=0, atol=1e-12)
        torch.testing.assert_close(row.masses, together[b].masses, rtol=0, atol=0)
