"""The density of several corrected mixtures: against sums over many points, and by its gradients."""

import math

import pytest
import torch
from torch import Tensor

from ebreg.distributions import GaussianMixture
from ebreg.models import Calibration, ResidualModel
from ebreg.predictive import Accuracy, NodeDensity
from ebreg.predictive.corrected_quadrature import _MOST_MISSED, CorrectedMembers, _Tile
from member_models import E, data, model_of, perturb, unequal

F64 = torch.float64


def corrected(bounded: bool = False, background: float = 0.0) -> ResidualModel:
    """A model whose corrections are far from 0."""
    model = unequal(model_of(ResidualModel, bounded=bounded)).eval()
    perturb(model.energy, size=0.5, seed=3)
    if background:
        weights = model.calibration.weights
        model.calibration = Calibration(weights, torch.zeros(1), torch.ones(1), background)
    return model


def summed(model: ResidualModel, x: Tensor, n: int = 200_001) -> tuple[Tensor, Tensor]:
    """Points, (n, B), in the user's units, and the normalised log density there, by trapezoids."""
    calibration = model.calibration
    with torch.no_grad():
        h = model.finite_features(x.repeat(E, 1))
        low, high = (-30.0, 30.0) if model.standard_bounds is None else (model.tail.bounds.low.item(), 30.0)
        y = torch.linspace(low, high, n, dtype=F64)
        f = torch.cat([model.f(h, some[:, None, None].expand(-1, len(h), 1)) for some in y.split(5000)])
        f = f.view(n, E, len(x))
        log_z = torch.logsumexp(f, dim=0) + math.log(y[1] - y[0])
        mean = torch.logsumexp(f - log_z + calibration.log_weights[:, None], dim=1)
        share = calibration.background_share
        if share > 0:
            log_normal = torch.distributions.Normal(0.0, 1.0).log_prob(y)[:, None]
            log_normal = log_normal - torch.logsumexp(log_normal, dim=0) - math.log(y[1] - y[0])
            mean = torch.logaddexp(torch.log1p(-share) + mean, share.log() + log_normal)
    scale = model.y_units.scale
    return model.y_units.shift + scale * y[:, None].expand(-1, len(x)), mean - scale.log()


@pytest.mark.parametrize(("bounded", "background"), [(False, 0.0), (False, 0.1), (True, 0.0), (True, 0.1)])
def test_answers_are_those_of_a_sum_over_many_points(bounded, background):
    model, x = corrected(bounded, background), data()[0][:6]
    with torch.no_grad():
        p = model.predictive(x)
    assert isinstance(p, NodeDensity)
    assert (p.log_partition_error < 5e-3).all()
    y, log_p = summed(model, x)
    weights = log_p.exp() * (y[1] - y[0])
    mean = (weights * y).sum(dim=0)
    stddev = (weights * (y - mean) ** 2).sum(dim=0).sqrt()
    torch.testing.assert_close(weights.sum(dim=0), torch.ones(6, dtype=F64), rtol=0, atol=1e-4)
    assert ((p.mean[:, 0] - mean).abs() < 1e-3 * stddev).all()
    assert ((p.stddev[:, 0] - stddev).abs() < 2e-3 * stddev).all()
    cdf = weights.cumsum(dim=0)
    for level in (0.05, 0.5, 0.95):
        found = p.quantile(torch.tensor(level))[:, 0]
        wanted = torch.stack([y[(cdf[:, b] < level).sum(), b] for b in range(6)])
        assert ((found - wanted).abs() < 3e-3 * stddev).all()
    places = y[::500]
    inside = log_p[::500] > log_p.amax(dim=0) - 6
    error = (p.log_prob(places[..., None]) - log_p[::500])[inside].abs()
    assert error.max() < 0.06
    assert error.mean() < 5e-3


def test_more_nodes_change_little():
    model, x = corrected(), data()[0]
    with torch.no_grad():
        p, fine = model.predictive(x), model.predictive(x, Accuracy(n_nodes=2048))
    assert ((p.mean - fine.mean).abs() < 1e-3 * fine.stddev).all()
    levels = torch.tensor([0.05, 0.5, 0.95])
    assert ((p.quantile(levels) - fine.quantile(levels)).abs() < 3e-3 * fine.stddev).all()


def test_rows_that_are_not_accurate_enough_get_more_nodes():
    model, x = corrected(), data()[0]
    with torch.no_grad():
        coarse = model.predictive(x, Accuracy(n_nodes=16, max_nodes=16))
        refined = model.predictive(x, Accuracy(n_nodes=16, max_nodes=256))
    bad = coarse.log_partition_error > Accuracy().tolerance
    assert bad.any()
    assert (refined.log_partition_error[bad] <= Accuracy().tolerance).all()
    with_gradients = model.predictive(x, Accuracy(n_nodes=16, max_nodes=256))
    assert with_gradients.mean.requires_grad
    torch.testing.assert_close(
        with_gradients.mean, refined.mean, rtol=0, atol=2e-3 * refined.stddev.max().item()
    )


def test_a_row_does_not_depend_on_others():
    model, x = corrected(), data()[0]
    with torch.no_grad():
        together, alone = model.predictive(x), model.predictive(x[4:5])
    torch.testing.assert_close(together.mean[4:5], alone.mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(together[4].quantile(0.9), alone.quantile(0.9), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["mean", "log_partition_error"])
def test_rows_keep_their_bits(name):
    model, x = corrected(), data()[0].repeat(20, 1)
    x = x + torch.arange(len(x))[:, None] / len(x)
    with torch.no_grad():
        together, some = getattr(model.predictive(x), name), getattr(model.predictive(x[5:37]), name)
    assert torch.equal(together[5:37], some)


def test_no_rows():
    with torch.no_grad():
        p = corrected().predictive(data()[0][:0])
    assert p.mean.shape == (0, 1)


@pytest.mark.parametrize("bounded", [False, True])
def test_without_a_correction_it_is_the_mixture(bounded):
    model, x = corrected(bounded, background=0.1), data()[0]
    model.energy.reset(torch.ones(E, dtype=torch.bool))
    with torch.no_grad():
        q = model.predictive(x)
    assert isinstance(q, GaussianMixture)  # and so exact
    p = model.predictive(x)  # with gradients
    assert isinstance(p, NodeDensity)
    torch.testing.assert_close(p.mean, q.mean, rtol=0, atol=1e-3 * q.stddev.max().item())
    y = q.quantile(torch.tensor([0.1, 0.5, 0.9]))
    torch.testing.assert_close(p.log_prob(y), q.log_prob(y), rtol=0, atol=5e-3)


@pytest.mark.parametrize("name", ["mean", "stddev", "log_prob"])
def test_gradients_are_those_of_finite_differences(name):
    model = corrected()
    for p in model.parameters():
        p.requires_grad_(False)
    x, y = data()
    x, y = x[:4].clone().requires_grad_(), y[:4]

    def answer(x: Tensor) -> Tensor:
        p = model.predictive(x, Accuracy(n_nodes=1024))
        return (p.log_prob(y) if name == "log_prob" else getattr(p, name)).sum()

    (gradient,) = torch.autograd.grad(answer(x), x)
    step = 0.05  # of inputs with a deviation of 10
    with torch.no_grad():
        for d in range(2):
            e = step * torch.eye(2, dtype=x.dtype)[d]
            difference = (answer(x + e) - answer(x - e)) / (2 * step)
            assert abs(gradient[:, d].sum() - difference) < 0.01 * gradient[:, d].abs().sum()


def test_nodes_that_do_not_suit_a_member_are_noticed():
    # A wide member, a narrow one that falls between the nodes, and one that lies outside of them; each by
    # itself, as a row.
    scales = torch.tensor([1.0, 0.02, 1.0], dtype=F64)
    q = torch.distributions.Normal(torch.tensor([0.0, 0.01, 9.0], dtype=F64), scales)
    members = CorrectedMembers(
        proposals=None,
        weights=torch.ones(1, dtype=F64),
        in_tiles=True,
        log_q=None,
        at=lambda nodes, _: (q.log_prob(nodes)[:, None], torch.sin(nodes)[:, None]),
        merge=None,
        log_z_by_draws=None,
        over_background=None,
    )
    tile = _Tile.of(members, torch.linspace(-4, 4, 65, dtype=F64)[:, None].expand(-1, 3), slice(0, 3))
    assert (tile.missed > _MOST_MISSED).tolist() == [False, True, True]
    assert tile.change[0, 0].abs() < 3 * Accuracy().tolerance
    log_z = tile.log_z[0]
    y = torch.linspace(-9, 9, 20_001, dtype=F64)
    wanted = torch.trapezoid(torch.exp(torch.sin(y) - 0.5 * y**2) / math.sqrt(2 * math.pi), y).log()
    torch.testing.assert_close(log_z[0], wanted, rtol=0, atol=2e-3)


def test_far_from_the_data():
    # Members disagree there, and some are far narrower than others.
    model, x = corrected(), 4 * data()[0][:16]
    with torch.no_grad():
        p = model.predictive(x)
    y, log_p = summed(model, x, n=400_001)
    cdf = (log_p.exp() * (y[1] - y[0])).cumsum(dim=0)
    # The sum is that of 60 standard deviations, and some proposals are wider.
    outside = p.proposal.cdf(y[:1, :, None]) + 1 - p.proposal.cdf(y[-1:, :, None])
    resolved = ((cdf[-1] - 1).abs() < 1e-3) & (outside[0] < 1e-3)
    assert resolved.sum() >= 4
    error = (p.cdf(y[::1000, :, None]) - cdf[::1000]).abs().amax(dim=0)
    assert (error[resolved] < 0.01).all()
