import copy
import itertools
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

from ebreg.distributions import GaussianMixture
from ebreg.models import EnergyModel, MixtureModel, Model, ResidualModel
from ebreg.networks import MLP, Correction, EnergyHead, MemberDropout, MixtureHead
from ebreg.predictive import Accuracy, Predictive
from ebreg.units import Standardizer, Tail
from support import normal, rng

# One target keeps its nodes; several get few draws, and no more.
FEW = Accuracy(n_draws=256, max_draws=256)


def seeded(build, *args, **settings):
    """Build with parameters that do not depend on other tests."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        return build(*args, **settings)


def data(D: int, n: int = 40) -> tuple[Tensor, Tensor]:
    """Inputs and targets in units far from standard."""
    x, noise = normal(n, 2), normal(n, D, seed=1)
    return 100 * x - 7, 1e-3 * (x[:, :1] + 0.5 * noise) + 5


def for_table(kind: type[Model], D: int) -> Model:
    return seeded(kind.for_table, *data(D), n_components=3, width=16)


KINDS = list(itertools.product([EnergyModel, MixtureModel, ResidualModel], [1, 2]))
family = pytest.mark.parametrize(("kind", "D"), KINDS, ids=[f"{kind.__name__}-{D}" for kind, D in KINDS])


# The family of models


@family
def test_shapes_and_units(kind, D):
    model, (x, y) = for_table(kind, D), data(D)
    h = model.features(x)
    assert h.shape == (40, 16)
    assert h.dtype == torch.float32
    z = model.standardize(y)
    assert z.dtype == torch.float32
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(D), rtol=0, atol=1e-5)
    torch.testing.assert_close(z.square().mean(dim=0), torch.ones(D), rtol=1e-5, atol=0)
    assert model.q(h).batch_shape == (40,)
    dist = model.predictive(x, FEW)
    assert isinstance(dist, Predictive)
    assert dist.mean.shape == dist.variance.shape == (40, D)
    assert dist.mean.dtype == torch.float64
    assert ((dist.mean - 5).abs() < 0.02).all()  # an untrained model answers somewhere near the data
    assert (dist.stddev < 0.02).all()
    assert dist.log_prob(y).shape == (40,)


@family
def test_log_density_carries_the_jacobian_of_the_units(kind, D):
    model, (x, y) = for_table(kind, D), data(D)
    plain = copy.deepcopy(model)
    plain.y_units = Standardizer.identity(D)
    z = model.y_units(y)
    here, there = model.predictive(x, FEW), plain.predictive(x, FEW)
    log_scale = model.y_units.scale.log().sum()
    torch.testing.assert_close(here.log_prob(y), there.log_prob(z) - log_scale, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(here.mean, model.y_units.shift + model.y_units.scale * there.mean)


@family
@torch.no_grad()
def test_answers_hold_no_graph_and_draw_nothing_from_the_global_state(kind, D):
    model, (x, y) = for_table(kind, D), data(D)
    before = torch.random.get_rng_state()
    dist = model.predictive(x[:3], FEW)
    answers = [dist.mean, dist.variance, dist.log_prob(y[:3]), dist.cdf(y[:3]), dist.sample(4, rng())]
    answers += [dist.log_partition, dist.pareto_k, dist.modes()[0].log_densities, dist.modes()[0].locations]
    assert not any(answer.requires_grad for answer in answers)
    assert torch.equal(torch.random.get_rng_state(), before)


@family
def test_a_row_answers_alone_as_in_a_batch(kind, D):
    model, (x, y) = for_table(kind, D).double(), data(D)
    together = model.predictive(x[:6], FEW)
    for rows in ([4], [5, 0, 3]):
        dist = model.predictive(x[rows], FEW)
        torch.testing.assert_close(dist.mean, together.mean[rows], rtol=1e-9, atol=0)
        torch.testing.assert_close(dist.variance, together.variance[rows], rtol=1e-7, atol=0)
        torch.testing.assert_close(dist.log_partition, together.log_partition[rows], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(
            dist.log_prob(y[rows]), together.log_prob(y[:6])[rows], rtol=1e-9, atol=1e-9
        )


@family
def test_copies_answer_alike(kind, D):
    model, (x, y) = for_table(kind, D), data(D)
    expected = model.predictive(x, FEW).log_prob(y)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.predictive(x, FEW).log_prob(y), expected)
    fresh = kind.for_table(*data(D), n_components=3, width=16)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.predictive(x, FEW).log_prob(y), expected)


@family
@pytest.mark.parametrize("far", [1e6, -1e6])
def test_inputs_far_outside_give_numbers(kind, D, far):
    model, (_, y) = for_table(kind, D), data(D)
    dist = model.predictive(torch.full((2, 2), 100 * far, dtype=torch.float64))
    answers = [
        dist.mean,
        dist.variance,
        dist.stddev,
        dist.log_partition,
        dist.cdf(y[:2]),
        dist.sample(5, rng()),
    ]
    answers += [dist.highest_density_region(0.9).log_threshold, dist.modes()[0].locations]
    assert all(torch.isfinite(answer).all() for answer in answers)
    assert not dist.log_prob(y[:2]).isnan().any()
    assert not dist.effective_sample_size.isnan().any()
    assert not dist.pareto_k.isnan().any()


@family
def test_wrong_shapes_are_refused(kind, D):
    model, (x, y) = for_table(kind, D), data(D)
    for wrong in (x[:, :1], x[0, :1]):  # one column would broadcast to two
        with pytest.raises(ValueError, match=r"must have shape \(.*2"):
            model.features(wrong)
    if D == 2:
        with pytest.raises(ValueError, match=r"must have shape \(\.\.\., 2\), got \(40, 1\)"):
            model.standardize(y[:, :1])
    with pytest.raises(ValueError, match="must have shape"):
        model.predictive(x, FEW).log_prob(y[:7])
    with pytest.raises(ValueError, match="must have shape"):
        model.predictive(x, FEW).log_prob(y[:, 0])


class Nameless(nn.Module):
    """An energy of the user's own: it has a call and nothing else."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return -0.5 * (y - self.layer(h)).square().sum(dim=-1)


def test_number_of_targets_must_be_known():
    backbone, head = MLP(1, (4,)), MixtureHead(4, 1, 2)
    with pytest.raises(ValueError, match="n_targets must be given: a Nameless does not say"):
        EnergyModel(backbone, Nameless(), head)
    with pytest.raises(ValueError, match="n_targets must be given: a Linear does not say"):
        MixtureModel(backbone, nn.Linear(4, 1))
    assert EnergyModel(backbone, Nameless(), head, n_targets=1).n_targets == 1
    assert EnergyModel(backbone, EnergyHead(4, 3), head).n_targets == 3


# The energy model


@pytest.mark.parametrize("D", [1, 2])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_grid_is_f_at_the_same_points(D, ended, own):
    tail = Tail(-torch.ones(D), torch.ones(D), torch.full((D,), 0.5)) if ended else None
    energy = seeded(Nameless) if own else seeded(EnergyHead, 4, D, (8, 8), (8, 8))
    model = EnergyModel(MLP(1, (4,)), energy, MixtureHead(4, D, 2), n_targets=D, tail=tail).double()
    h, y = normal(3, 4), 2 * normal(9, D)
    f = model.f_grid(h, y)
    assert f.shape == (9, 3)
    torch.testing.assert_close(f, model.f(h, y[:, None].expand(9, 3, D)))
    torch.testing.assert_close(model.f(h, y[:3]), torch.stack([f[b, b] for b in range(3)]))


def test_tail_ends_the_energy():
    model = EnergyModel(
        MLP(1, (4,)),
        seeded(EnergyHead, 4, 1),
        MixtureHead(4, 1, 2),
        tail=Tail(*torch.tensor([[-1.0], [2.0], [0.5]])),
    )
    h = normal(1, 4).float()
    inside = torch.tensor([[[-1.0]], [[0.3]], [[2.0]]])
    torch.testing.assert_close(model.f(h, inside), model.energy(h, inside))
    outside = torch.tensor([[[-2.0]], [[4.0]]])
    expected = model.energy(h, inside[[0, 2]]) - torch.tensor([[0.5 * 2**2], [0.5 * 4**2]])
    torch.testing.assert_close(model.f(h, outside), expected)


@pytest.mark.parametrize("D", [1, 2])
def test_predictive_is_the_energy_normalised(D):
    model, (x, y) = for_table(EnergyModel, D).double(), data(D)
    dist = model.predictive(x[:4], FEW)
    axis = torch.linspace(-9, 9, 401, dtype=torch.float64)
    nodes = torch.cartesian_prod(*[axis] * D).reshape(-1, D)
    with torch.no_grad():
        h = model.features(x[:4])
        log_z = model.f_grid(h, nodes).logsumexp(dim=0) + D * (axis[1] - axis[0]).log()
        expected = model.f(h, model.y_units(y[:4])) - log_z - model.y_units.scale.log().sum()
    tolerance = 5 * dist.log_partition_error + 2e-3  # a step in the grid, and log-linear interpolation
    assert ((dist.log_prob(y[:4]) - expected).abs() < tolerance).all()
    assert (dist.log_partition_error < 0.05).all()


# The mixture model


@pytest.mark.parametrize("D", [1, 2])
def test_mixture_model_answers_with_its_mixture(D):
    model, (x, _) = for_table(MixtureModel, D), data(D)
    dist, q = model.predictive(x, FEW), model.q(model.features(x))
    assert isinstance(dist, GaussianMixture)
    torch.testing.assert_close(dist.mean, model.y_units.shift + model.y_units.scale * q.mean.detach())
    assert torch.equal(dist.log_partition, torch.zeros(40, dtype=torch.float64))


@pytest.mark.parametrize("D", [1, 2])
@pytest.mark.parametrize("kind", [EnergyModel, MixtureModel])
def test_no_rows_give_empty_answers(kind, D):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 3, generator=generator), torch.randn(20, D, generator=generator)
    p = kind.for_table(x, y).predictive(x[:0], FEW)
    nothing = y[:0].double()
    assert p.mean.shape == p.variance.shape == (0, D)
    assert p.sample(3).shape == (3, 0, D)
    assert p.log_prob(nothing).shape == p.cdf(nothing).shape == (0,)
    assert p.effective_sample_size.shape == p.pareto_k.shape == p.log_partition_error.shape == (0,)
    assert p.highest_density_region(0.5).contains(nothing).shape == (0,)
    assert p.expectation(lambda y: y).shape == (0, D)
    assert len(p.modes()) == 0


class Noisy(nn.Module):
    """A backbone that answers otherwise in training mode: dropout, and statistics of the batch."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("D", [1, 2])
def test_predictions_are_made_in_evaluation_mode_and_leave_the_mode_as_it_was(D):
    model = EnergyModel(Noisy(), EnergyHead(8, D), MixtureHead(8, D, 2))
    model.backbone.layers[1].eval()  # frozen by its owner
    x = normal(5, 2)
    whole, again, alone = model.predictive(x, FEW), model.predictive(x, FEW), model.predictive(x[:1], FEW)
    assert torch.equal(whole.mean, again.mean)
    torch.testing.assert_close(whole.mean[:1], alone.mean, rtol=1e-6, atol=1e-7)
    assert model.training
    assert not model.backbone.layers[1].training


@pytest.mark.parametrize("D", [1, 2])
@pytest.mark.parametrize("kind", [EnergyModel, MixtureModel])
def test_all_questions_are_answered_in_inference_mode(kind, D):
    model, (x, y) = for_table(kind, D), data(D)
    with torch.inference_mode():
        p = model.predictive(x[:3].clone(), FEW)
        assert len(p.modes()) == 3
        assert torch.isfinite(p.log_prob(y[:3])).all()
        assert p.sample(2).shape == (2, 3, D)
        assert model.gradient_ascent(x[:3]).shape == (3, D)
    assert len(p.modes()) == 3


def test_inputs_that_are_not_finite_or_not_numbers_are_refused():
    x, y = normal(20, 2), normal(20, 1, seed=1)
    model = EnergyModel.for_table(x, y)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="x must be finite"):
            model.predictive(torch.tensor([[0.0, bad]]), FEW)
    with pytest.raises(TypeError, match="x must hold numbers"):
        model.predictive([["a", "b"]], FEW)
    with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., 2\)"):
        model.predictive(normal(3, 1), FEW)


def test_arrays_and_lists_do_as_well_as_tensors():
    x, y = normal(20, 2), normal(20, 1, seed=1)
    model = EnergyModel.for_table(x.numpy(), y.tolist())
    p = model.predictive(x.tolist(), FEW)
    torch.testing.assert_close(p.log_prob(y.numpy()), model.predictive(x, FEW).log_prob(y))


@pytest.mark.parametrize("kind", [EnergyModel, MixtureModel])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(5), torch.zeros(5, 1), "x must have rows and columns"),
        (torch.zeros(5, 2), torch.zeros(5), "y must have rows and columns"),
        (torch.zeros(5, 2), torch.zeros(4, 1), "as many rows"),
        (torch.zeros(5, 2), torch.full((5, 1), math.nan), "y must be finite"),
    ],
)
def test_tables_of_a_wrong_kind_are_refused(kind, x, y, message):
    with pytest.raises(ValueError, match=message):
        kind.for_table(x, y)


@pytest.mark.parametrize("kind", [EnergyModel, MixtureModel])
def test_inputs_without_rows_and_backbones_of_other_shapes_are_refused(kind):
    x, y = data(1)
    model = seeded(lambda: kind.for_table(x, y, width=4))
    for ask in (lambda: model.predictive(x[0], FEW), lambda: model.log_prob(x[0], y[0])):
        with pytest.raises(ValueError, match=r"x must have shape \(B, \.\.\.\), one input a row; got \(2,\)"):
            ask()
    with pytest.raises(ValueError, match=r"x must be finite"):
        model.log_prob(torch.full((1, 2), torch.nan), y[:1])
    with pytest.raises(ValueError, match=r"y must have shape"):
        model.log_prob(x[:3], y[:3, 0])
    model.backbone, model.x_units = nn.Identity(), None
    with pytest.raises(
        ValueError, match=r"features \(B, H\); it gave \(2, 3, 4\) for inputs of shape \(2, 3, 4\)"
    ):
        model.predictive(torch.zeros(2, 3, 4), FEW)


@family
def test_one_row_of_a_prediction(kind, D):
    x, y = data(D)
    dist = seeded(lambda: kind.for_table(x, y, width=4)).double().predictive(x[:3], FEW)
    torch.testing.assert_close(dist[1].mean, dist.mean[1:2])
    assert len([row.mean for row in dist]) == 3
    with pytest.raises(IndexError):
        dist[3]


# Members


@family
def test_tables_have_as_many_members_as_asked_for(kind, D):
    x, y = data(D)
    model = seeded(kind.for_table, x, y, n_components=3, width=16, n_members=3, dropout=(0.0, 0.1, 0.2))
    assert model.n_members == 3
    assert not model.shares_backbone
    rates = next(part.rates for part in model.modules() if isinstance(part, MemberDropout))
    torch.testing.assert_close(rates, torch.tensor([0.0, 0.1, 0.2]))
    assert model.features(x.repeat(3, 1)).shape == (120, 16)
    dist = model.predictive(x[:4], FEW)
    assert dist.mean.shape == (4, D)
    assert torch.isfinite(model.log_prob(x[:4], y[:4], FEW)).all()
    other = seeded(kind.for_table, x, y, width=16, dropout=0.3)
    assert other.n_members == 1
    assert [part.rates.tolist() for part in other.modules() if isinstance(part, MemberDropout)] == [
        pytest.approx([0.3])
    ]


def test_a_residual_model_of_a_table_starts_from_its_proposal():
    model, (x, y) = for_table(ResidualModel, 1).to_float64(), data(1)
    assert isinstance(model.energy, Correction)
    h, z = model.features(x), model.standardize(y)
    assert (model.g(h, z) == 0).all()
    torch.testing.assert_close(model.f(h, z), model.q(h).log_prob(z))
    own = seeded(ResidualModel.for_table, x, y, width=16, energy=lambda H, D: EnergyHead(H, D))
    assert isinstance(own.energy, EnergyHead)


def test_a_correction_is_finite_at_any_target():
    model, (x, _) = for_table(ResidualModel, 2), data(2)
    torch.nn.init.normal_(model.energy.coefficients.weight)
    h = model.features(x[:1])
    for end in (torch.inf, -torch.inf, 1e30, 1e200):
        y = torch.tensor([[[end, 0.0]]])
        assert torch.isfinite(model.g(h, y)).all()
        assert model.f(h, y) < -1e30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_members": 0}, "n_members must be at least 1"),
        ({"n_members": 2, "proposal": "full-mixture"}, "n_members must be 1 with a proposal or an energy"),
        ({"n_members": 2, "energy": lambda H, D: EnergyHead(H, D)}, "n_members must be 1 with a proposal"),
        ({"dropout": 1.0}, r"dropout must be a rate in \[0, 1\), got 1.0"),
        ({"n_members": 3, "dropout": (0.1, 0.2)}, "dropout must be a rate, or one for each of 3 members"),
    ],
)
def test_members_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        EnergyModel.for_table(*data(1), **settings)
