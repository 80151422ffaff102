"""Whatever is asked of a Prediction, its answers agree: with the density, the energy and each other."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.errors import TrustWarning
from ebreg.estimators.prediction import Prediction
from ebreg.models import EnergyModel
from ebreg.networks import MixtureHead
from ebreg.predictive import Accuracy
from ebreg.units import Bounds, Units
from support import prediction

# The parameter of the rows of every case.
X = np.array([[-1.0], [0.3], [1.0]])
N_SAMPLES = 4000
# A sample is resampled from a pool worth ten times as many: its averages spread a little more.
POOLED = 1.1


def log_normal(z: Tensor, mean: Tensor | float, scale: Tensor | float) -> Tensor:
    return -0.5 * ((z - mean) / scale) ** 2 - torch.as_tensor(scale).log() - 0.5 * math.log(2 * math.pi)


def log_mixture(z: Tensor, *parts: tuple[float, Tensor | float, float]) -> Tensor:
    return torch.stack([log_normal(z, mean, scale) + math.log(w) for w, mean, scale in parts]).logsumexp(0)


class Analytic(nn.Module):
    """An energy in closed form: log_f of the rows' parameter, (B,), and of z, (M, B, D), in the case's units.

    Args:
        log_f: Returns (M, B).
        offset: Added to the energy; log Z knows it, nothing else does.
        units: Of the targets.
        place: Shift and scale from z to the user's units, two of shape (D,).
    """

    def __init__(self, log_f: Callable[[Tensor, Tensor], Tensor], offset: float, units, place):
        super().__init__()
        self.log_f, self.units, self.place = log_f, units, place
        self.offset = nn.Parameter(torch.tensor(offset, dtype=torch.float64))

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        shift, scale = self.place
        return self.log_f(h[:, 0], (self.units.inverse(y) - shift) / scale) + self.offset


def proposal_head(weights, means, scales, units, place, bounds: Bounds, n_features: int = 1) -> MixtureHead:
    """A mixture in the units of z, (K,), (K, D), (K, D), that hardly depends on the row."""
    K, D = np.shape(means)
    head = MixtureHead(n_features, D, K, bounds=bounds).double()
    shift, scale = place
    means, scales = torch.as_tensor(means).double(), torch.as_tensor(scales).double()
    with torch.no_grad():
        for layer in (head.means, head.log_variances, head.logits):
            layer.weight.mul_(0.1)
        head.means.bias.copy_(units(shift + scale * means).flatten())
        head.log_variances.bias.copy_(2 * (scale * scales / units.scale).log().flatten())
        head.logits.bias.copy_(torch.as_tensor(weights).double().log())
    return head


@dataclass(frozen=True)
class Case:
    """A model with a known energy.

    Attributes:
        log_f: See :class:`Analytic`.
        sample: Targets in the units of z, (n, D), from which the units are learned.
        proposal: Weights (K,), means and scales (K, D): not quite the model.
        modes: How many, in every row.
        low: Lower bounds of z, (D,).
        high: Upper bounds.
        place: Shift and scale from z to the user's units.
        flat: Whether the density has a plateau.
    """

    log_f: Callable[[Tensor, Tensor], Tensor]
    sample: Callable[[np.random.Generator], np.ndarray]
    proposal: tuple
    modes: int = 1
    low: tuple = (-math.inf,)
    high: tuple = (math.inf,)
    place: tuple[float, float] = (1000.0, 50.0)
    flat: bool = False

    @property
    def n_targets(self) -> int:
        return len(self.low)

    def bounds(self) -> Bounds:
        shift, scale = self.places()
        return Bounds(
            *(shift + scale * torch.tensor(end, dtype=torch.float64) for end in (self.low, self.high))
        )

    def places(self) -> tuple[Tensor, Tensor]:
        # Every target in units of its own.
        factor = torch.tensor([1.0, 1e-3, 7.0], dtype=torch.float64)[: self.n_targets]
        return self.place[0] * factor, self.place[1] * factor

    def model(self) -> EnergyModel:
        torch.manual_seed(0)
        D, (shift, scale) = self.n_targets, self.places()
        z = torch.from_numpy(self.sample(np.random.default_rng(1))).reshape(-1, D)
        bounds = self.bounds()
        y = (shift + scale * z).clamp(bounds.low, bounds.high)
        units = Units.of(None, y, bounds)
        energy = Analytic(self.log_f, 3.0, units.y, (shift, scale))
        head = proposal_head(*self.proposal, units.y, (shift, scale), units.tail.bounds)
        model = EnergyModel(nn.Identity(), energy, head, D, None, units.y, units.tail, bounds)
        return model.double()


def two_hills(x: Tensor, z: Tensor) -> Tensor:
    return log_mixture(z[..., 0], (0.7, -2 - 0.2 * x, 0.3), (0.3, 1.5 + 0.2 * x, 0.6))


def spike(x: Tensor, z: Tensor) -> Tensor:
    return log_mixture(z[..., 0], (0.3, 1.5 + 0.01 * x, 0.01), (0.7, 0.0, 1.0))


def log_gamma(x: Tensor, z: Tensor) -> Tensor:
    # As steep at the end as a network may be.
    return (2.5 + x) * (z[..., 0] + 0.02).log() - 1.5 * z[..., 0]


def log_lognormal(x: Tensor, z: Tensor) -> Tensor:
    log_z = (z[..., 0] + 1e-9).log()
    return log_normal(log_z, 0.2 * x, 0.5) - log_z


def log_beta(x: Tensor, z: Tensor) -> Tensor:
    # Piles up at both ends, the more at the upper one the larger x; not quite infinite, as no network is.
    return -0.5 * (z[..., 0] + 1e-3).log() - (0.4 + 0.2 * x) * (1 - z[..., 0] + 1e-3).log()


ONE = {
    "two hills": Case(
        two_hills,
        lambda r: r.choice([-2, 1.5], 400) + 0.5 * r.normal(size=400),
        ([0.6, 0.4], [[-1.9], [1.3]], [[0.4], [0.8]]),
        modes=2,
    ),
    "a hill that the proposal misses": Case(
        two_hills,
        lambda r: r.choice([-2, 1.5], 400) + 0.5 * r.normal(size=400),
        ([1.0], [[-2.1]], [[0.35]]),
        modes=2,
    ),
    "skewed": Case(
        lambda x, z: (1 + 0.2 * x) * (-z[..., 0] - torch.exp(-z[..., 0])),
        lambda r: r.gumbel(size=400),
        ([0.7, 0.3], [[0.0], [1.5]], [[1.2], [2.0]]),
        place=(-3e-5, 2e-6),
    ),
    "log-normal": Case(
        log_lognormal,
        lambda r: r.lognormal(0, 0.5, 400),
        ([0.7, 0.3], [[0.9], [1.8]], [[0.5], [0.8]]),
        low=(0.0,),
        place=(0.0, 1.7),
    ),
    "gamma": Case(
        log_gamma,
        lambda r: r.gamma(3.5, 1 / 1.5, 400),
        ([1.0], [[2.0]], [[1.8]]),
        low=(0.0,),
        place=(17.3, 0.7),
    ),
    "heavy tails": Case(
        lambda x, z: -2 * torch.log1p((z[..., 0] - 0.3 * x) ** 2 / 3),
        lambda r: r.standard_t(3, 400),
        ([0.7, 0.3], [[0.0], [0.2]], [[1.0], [3.5]]),
    ),
    "beta": Case(
        log_beta,
        lambda r: r.beta(0.5, 0.5, 400),
        ([0.5, 0.5], [[0.1], [0.9]], [[0.3], [0.3]]),
        modes=2,
        low=(0.0,),
        high=(1.0,),
        place=(0.0, 1.0),
    ),
    "exponential": Case(
        lambda x, z: -z[..., 0] * (1.2 + x),
        lambda r: r.exponential(1 / 1.2, 400),
        ([0.7, 0.3], [[0.3], [2.0]], [[0.8], [2.0]]),
        low=(0.0,),
        place=(0.0, 0.3),
    ),
    "uniform": Case(
        lambda x, z: 0.0 * x + torch.zeros_like(z[..., 0]),
        lambda r: r.uniform(size=400),
        ([0.5, 0.5], [[0.2], [0.9]], [[0.3], [0.4]]),
        low=(0.0,),
        high=(1.0,),
        place=(0.1, 0.6),
        flat=True,
    ),
    "spike beside a hill": Case(
        spike,
        lambda r: np.concatenate([r.normal(size=300), np.full(100, 1.5)]),
        ([0.3, 0.7], [[1.52], [0.3]], [[0.05], [1.3]]),
        modes=2,
    ),
}


def correlated(x: Tensor, z: Tensor, r: float = 0.8) -> Tensor:
    # Each target leans on the one before.
    log_p = log_normal(z[..., 0], 0.3 * x, 1.0)
    for d in range(1, z.shape[-1]):
        log_p = log_p + log_normal(z[..., d], r * z[..., d - 1], math.sqrt(1 - r**2))
    return log_p


def hills(x: Tensor, z: Tensor) -> Tensor:
    D = z.shape[-1]
    parts = []
    for weight, mean, scale in ((0.6, -1.5, 0.5), (0.4, 1.5, 0.7)):
        direction = torch.tensor([1.0, -1.0, 1.0], dtype=z.dtype)[:D]
        parts.append(log_normal(z, mean * direction + 0.1 * x[:, None], scale).sum(dim=-1) + math.log(weight))
    return torch.stack(parts).logsumexp(dim=0)


def leaning_exponential(x: Tensor, z: Tensor) -> Tensor:
    # The first target is an exponential, the others follow its root.
    log_p = -z[..., 0] * (1.3 + 0.4 * x)
    for d in range(1, z.shape[-1]):
        log_p = log_p + log_normal(z[..., d], (z[..., 0] + 0.1).sqrt() - 1, 0.5)
    return log_p


def several(D: int) -> dict[str, Case]:
    inf = math.inf

    def gaussian(r: np.random.Generator) -> np.ndarray:
        return r.normal(size=(400, D)) * 1.1

    def far_apart(r: np.random.Generator) -> np.ndarray:
        return r.choice([-1.5, 1.5], (400, 1)) * np.array([1, -1, 1])[:D] + 0.6 * r.normal(size=(400, D))

    def exponential(r: np.random.Generator) -> np.ndarray:
        return np.concatenate([r.exponential(size=(400, 1)), 0.6 * r.normal(size=(400, D - 1))], axis=1)

    signs = np.array([1, -1, 1])[:D]
    return {
        f"{D} correlated": Case(
            correlated,
            gaussian,
            ([0.5, 0.5], [[-0.5] * D, [0.6] * D], [[0.9] * D] * 2),
            low=(-inf,) * D,
            high=(inf,) * D,
        ),
        f"{D} with two hills": Case(
            hills,
            far_apart,
            ([0.5, 0.5], [list(-1.3 * signs), list(1.6 * signs)], [[0.7] * D, [0.8] * D]),
            modes=2,
            low=(-inf,) * D,
            high=(inf,) * D,
        ),
        f"{D} bounded in one": Case(
            leaning_exponential,
            exponential,
            ([0.6, 0.4], [[0.3] + [-0.4] * (D - 1), [1.5] + [0.2] * (D - 1)], [[0.8] * D, [1.0] * D]),
            low=(0.0,) + (-inf,) * (D - 1),
            high=(inf,) * D,
            place=(0.0, 0.3),
        ),
    }


SEVERAL = several(2) | several(3)
# The regressors by default, with members, and the paper's method, with one.
KINDS = {
    "EnergyRegressor": EnergyRegressor,
    "JointNCE": partial(EnergyRegressor, "joint-nce"),
    "MixtureDensityRegressor": MixtureDensityRegressor,
}
TRAINED = {
    f"{kind} {D} {'bounded' if bounded else 'open'}": (kind, D, bounded)
    for kind, D, bounded in (
        ("EnergyRegressor", 1, False),
        ("EnergyRegressor", 2, True),
        ("JointNCE", 1, False),
        ("JointNCE", 2, True),
        ("MixtureDensityRegressor", 1, True),
        ("MixtureDensityRegressor", 2, False),
    )
}


@lru_cache
def trained(kind: str, D: int, bounded: bool):
    r = np.random.default_rng(D)
    x = r.normal(size=(150, 1))
    y = r.exponential(size=(150, D)) + 0.5 * np.abs(x)
    if D == 2:
        y[:, 1] = 100 + 20 * (y[:, 1] * np.sign(r.normal(size=150)) + y[:, 0])
    bounds = None if not bounded else (0, None) if D == 1 else [(0, None), (None, None)]
    regressor = KINDS[kind](
        n_components=4, width=24, bounds=bounds, max_iter=5, random_state=0, verbose=False
    )
    return regressor.fit(x, y[:, 0] if D == 1 else y)


class Subject:
    """A prediction, and a grid in the user's units on which its density is known."""

    def __init__(self, name: str):
        self.case = (ONE | SEVERAL).get(name)
        if self.case is not None:
            self.model = self.case.model()
            x = torch.from_numpy(X)
            self.dist = prediction(self.model, x, self.model.n_targets == 1)
        else:
            regressor = trained(*TRAINED[name])
            self.model = regressor.model_
            self.dist = regressor.predict_distribution(X)
        self.D = self.model.n_targets
        self.n = len(self.dist)
        self.low, self.high = (end.numpy() for end in (self.model.bounds.low, self.model.bounds.high))
        self.exact = not isinstance(self.model, EnergyModel)

    @cached_property
    def edges(self) -> list[np.ndarray]:
        """Borders of the cells of each target, between which lies all mass that matters."""
        if self.exact:
            ends = self.dist.quantile([1e-8, 1 - 1e-8]).reshape(2, self.n, self.D)
            low, high = ends[0].min(axis=0), ends[1].max(axis=0)
        else:
            tail, units = self.model.tail, self.model.y_units
            reach = (8 if self.D == 1 else 3.5) * tail.width
            low, high = (units.inverse(end).numpy() for end in (tail.low - reach, tail.high + reach))
        low = np.where(np.isfinite(self.low), self.low, low)
        high = np.where(np.isfinite(self.high), self.high, high)
        t = np.linspace(0, 1, {1: 30001, 2: 145, 3: 64}[self.D])
        if self.D == 1 and np.isfinite(self.low).all():
            t = np.sin(0.5 * np.pi * t) ** (4 if np.isinf(self.high).all() else 2)  # dense at the ends
        return [a + t * (b - a) for a, b in zip(low, high, strict=True)]

    @cached_property
    def points(self) -> np.ndarray:
        """Middles of the cells, (G,) or (G, D)."""
        middles = np.meshgrid(*(0.5 * (e[1:] + e[:-1]) for e in self.edges), indexing="ij")
        return middles[0].ravel() if self.D == 1 else np.stack(middles, axis=-1).reshape(-1, self.D)

    @cached_property
    def volumes(self) -> np.ndarray:
        """Of the cells, (G, 1)."""
        volumes = np.ones(())
        for e in self.edges:
            volumes = volumes[..., None] * np.diff(e)
        return volumes.reshape(-1, 1)

    def rows(self, y: np.ndarray) -> np.ndarray:
        """The same targets for every row: (S,) or (S, D) -> (S, n) or (S, n, D)."""
        return np.repeat(y[:, None], self.n, axis=1)

    @cached_property
    def log_density(self) -> np.ndarray:
        """At the points, (G, n)."""
        return self.dist.log_prob(self.rows(self.points))

    @cached_property
    def masses(self) -> np.ndarray:
        """Of the cells, (G, n)."""
        return np.exp(self.log_density) * self.volumes

    @cached_property
    def samples(self) -> np.ndarray:
        return self.dist.sample(N_SAMPLES, random_state=5)

    @cached_property
    def energy(self) -> np.ndarray:
        """At the points, in standard units as the model has it, (G, n)."""
        with torch.no_grad():
            y = self.model.standardize(torch.from_numpy(self.points).reshape(-1, self.D))
            y = y[:, None].expand(-1, self.n, -1)
            if self.model.n_members > 1:  # tests/test_members.py says what it is made of
                return self.model._rows(torch.from_numpy(X), Accuracy()).energy(y).numpy()
            return self.model.f(self.model.features(torch.from_numpy(X)), y).numpy()

    def average(self, values: np.ndarray) -> np.ndarray:
        """Expectation by the grid of values (G,) or (G, ...) -> (n, ...)."""
        share = self.masses / self.masses.sum(axis=0)
        return np.einsum("gn,g...->n...", share, values)

    @cached_property
    def error(self) -> np.ndarray:
        """Standard error of an average of something of unit variance, in answers that rest on draws, (n,)."""
        if self.D == 1:
            return np.full(self.n, 1e-4)
        if self.exact:  # 4,096 quasi-random points
            return np.full(self.n, 1 / 64)
        return 1 / np.sqrt(self.dist.effective_sample_size)

    @property
    def sample_error(self) -> np.ndarray:
        """The same for the samples, compared with the answers."""
        return np.sqrt(POOLED / N_SAMPLES + self.error**2)


@lru_cache
def build(name: str) -> Subject:
    return Subject(name)


def subjects(*names: str):
    return pytest.mark.parametrize("subject", names, indirect=True)


@pytest.fixture
def subject(request) -> Subject:
    return build(request.param)


SINGLE = [*ONE, *(name for name, (_, D, _) in TRAINED.items() if D == 1)]
MANY = [*SEVERAL, *(name for name, (_, D, _) in TRAINED.items() if D > 1)]
ALL = [*SINGLE, *MANY]
BOUNDED = [
    *(name for name, case in (ONE | SEVERAL).items() if not case.bounds().are_open),
    *(name for name, (_, _, bounded) in TRAINED.items() if bounded),
]
KNOWN = [*ONE, *SEVERAL]


# The density


@subjects(*ALL)
def test_density_integrates_to_one(subject):
    slack = 2e-4
    if subject.D > 1:
        slack = 2e-3 + 4 * subject.dist.log_partition_error
    assert (np.abs(subject.masses.sum(axis=0) - 1) < slack).all()


@subjects(*SINGLE)
def test_density_integrates_to_one_between_quantiles(subject):
    # Gauss-Legendre between the quantiles of each row: panels that are narrow where the density is high.
    levels = np.concatenate(
        [[1e-9, 1e-6, 1e-3], np.linspace(0, 1, 201)[1:-1], [1 - 1e-3, 1 - 1e-6, 1 - 1e-9]]
    )
    levels = np.sort(levels)
    ends = subject.dist.icdf(levels)  # (Q, n)
    t, weights = np.polynomial.legendre.leggauss(12)
    width = np.diff(ends, axis=0)
    y = ends[:-1] + width * (0.5 + 0.5 * t[:, None, None])  # (12, Q - 1, n)
    masses = 0.5 * np.einsum("t,tqn->qn", weights, np.exp(subject.dist.log_prob(y))) * width
    assert np.abs(masses.sum(axis=0) - 1).max() < 1e-4
    assert np.abs(masses - np.diff(levels)[:, None]).max() < 1e-4


@subjects(*KNOWN)
def test_log_partition_is_that_of_the_energy_within_its_error(subject):
    total = (np.exp(subject.energy - subject.energy.max(axis=0)) * subject.volumes).sum(axis=0)
    truth = np.log(total) + subject.energy.max(axis=0)
    error = np.abs(subject.dist.log_partition - truth)
    stated = subject.dist.log_partition_error
    if subject.D == 1:  # an estimate to the safe side, of the order of the error
        assert (error < 1.1 * stated + 5e-5).all()
        assert (stated < 30 * error + 1e-3).all()
    else:
        assert (error < 4 * stated + 1e-3).all()
    assert (stated < 0.05).all()


@subjects(*(name for name in ALL if "Mixture" not in name))
def test_density_is_the_energy_normalised(subject):
    truth = subject.energy - subject.dist.log_partition
    gap = np.abs(subject.log_density - truth)
    if subject.D > 1:
        assert np.nanmax(np.where(np.isfinite(truth), gap, 0)) < 1e-8
        return
    # One target: the density of an interpolant, which hardly any mass tells from the energy's.
    error = subject.dist.log_partition_error
    share = np.exp(truth) * subject.volumes
    wrong = 0.5 * (np.abs(np.exp(subject.log_density) - np.exp(truth)) * subject.volumes).sum(axis=0)
    assert (wrong < 1e-3 + 2 * error).all()
    log_loss = (share * np.where(share > 0, truth - subject.log_density, 0)).sum(axis=0)
    assert (np.abs(log_loss) < 2e-3 + 2 * error).all()
    assert (gap[truth > truth.max(axis=0) - 2] < 0.1).all()


@subjects(*ALL)
def test_density_is_nothing_at_infinity_and_never_not_a_number(subject):
    for end in (-np.inf, np.inf, -1e200, 1e200):
        y = np.full((1, subject.n) if subject.D == 1 else (1, subject.n, subject.D), end)
        assert (subject.dist.log_prob(y) < -1e3).all()
        cdf = subject.dist.cdf(y)
        np.testing.assert_allclose(cdf, float(end > 0), atol=1e-9)
        assert ((cdf >= 0) & (cdf <= 1)).all()


# Distribution function and quantiles


@subjects(*SINGLE)
def test_cdf_of_a_quantile_is_its_level(subject):
    q = np.array([1e-4, 1e-3, 0.05, 0.3, 0.5, 0.69, 0.9, 0.999, 1 - 1e-4])
    y = subject.dist.icdf(q)
    assert np.abs(subject.dist.cdf(y) - q[:, None]).max() < 1e-9
    assert (np.diff(y, axis=0) > 0).all()
    np.testing.assert_array_equal(y, subject.dist.quantile(q))
    own = np.array([[0.1, 0.5, 0.9], [0.7, 0.4, 0.2]])  # levels of their own for rows
    for level, found in zip(own, subject.dist.icdf(own), strict=True):
        alone = [subject.dist.icdf(level[row])[row] for row in range(subject.n)]
        np.testing.assert_allclose(found, alone, rtol=1e-12)


@subjects(*SINGLE)
def test_quantile_of_a_cdf_is_the_value(subject):
    y = subject.dist.icdf([0.003, 0.2, 0.5, 0.77, 0.99])
    again = np.stack([subject.dist.icdf(level[None])[0] for level in subject.dist.cdf(y)])
    assert (np.abs(again - y) < 1e-7 * subject.dist.stddev).all()


@subjects(*SINGLE)
def test_cdf_is_the_integral_of_the_density(subject):
    edges = subject.edges[0][::40]
    cumulative = np.concatenate([np.zeros((1, subject.n)), subject.masses.cumsum(axis=0)])[::40]
    cdf = subject.dist.cdf(subject.rows(edges))
    assert np.abs(cdf - cumulative).max() < 3e-4
    assert (np.diff(cdf, axis=0) >= -1e-15).all()
    assert ((cdf >= 0) & (cdf <= 1)).all()


@subjects(*MANY)
def test_cdf_of_several_targets_is_the_mass_of_the_corner(subject):
    shape = [len(e) - 1 for e in subject.edges]
    masses = subject.masses.reshape(*shape, subject.n)
    for share in (0.4, 0.5, 0.6):
        corner = [round(share * size) for size in shape]
        y = np.array([e[i] for e, i in zip(subject.edges, corner, strict=True)])
        truth = masses[tuple(slice(i) for i in corner)].sum(axis=tuple(range(subject.D)))
        cdf = subject.dist.cdf(subject.rows(y[None]))[0]
        assert (np.abs(cdf - truth) < 4 * 0.5 * subject.error + 2e-3).all()


@subjects(*MANY)
def test_cdf_with_the_other_targets_at_infinity_inverts_the_marginal_quantiles(subject):
    levels = [0.05, 0.3, 0.5, 0.8, 0.95]
    quantiles = subject.dist.quantile(levels)
    for d in range(subject.D):
        y = np.full_like(quantiles, np.inf)
        y[..., d] = quantiles[..., d]
        cdf = subject.dist.cdf(y)
        assert (np.abs(cdf - np.array(levels)[:, None]) < 0.02).all()  # a staircase: the largest weight


@subjects(*MANY)
def test_marginal_quantiles_are_those_of_the_grid_and_of_the_samples(subject):
    levels = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    quantiles = subject.dist.quantile(levels)  # (Q, n, D)
    spread = np.sqrt(levels * (1 - levels))[:, None]
    for d in range(subject.D):
        below = marginal_cdf(subject, d)
        for row in range(subject.n):
            at = below(quantiles[:, row, d], row)
            assert (np.abs(at - levels) < 4 * spread[:, 0] * subject.error[row] + 3e-3).all()
        share = (subject.samples[:, None, :, d] <= quantiles[None, ..., d]).mean(axis=0)
        assert (np.abs(share - levels[:, None]) < 4 * spread * subject.sample_error + 1e-3).all()


def marginal_cdf(subject: Subject, d: int) -> Callable[[np.ndarray, int], np.ndarray]:
    """By the grid: values (S,) of a row -> (S,)."""
    shape = [len(e) - 1 for e in subject.edges]
    others = tuple(k for k in range(subject.D) if k != d)
    masses = subject.masses.reshape(*shape, subject.n).sum(axis=others)
    below = np.concatenate([np.zeros((1, subject.n)), masses.cumsum(axis=0)]) / masses.sum(axis=0)
    return lambda y, row: np.interp(y, subject.edges[d], below[:, row])


@subjects(*ALL)
def test_interval_is_a_pair_of_quantiles(subject):
    interval = subject.dist.interval(0.8)
    assert interval.shape == ((subject.n, 2) if subject.D == 1 else (subject.n, 2, subject.D))
    np.testing.assert_allclose(np.moveaxis(interval, 1, 0), subject.dist.quantile([0.1, 0.9]), rtol=1e-9)
    np.testing.assert_allclose(subject.dist.quantile([0.1])[0], subject.dist.quantile(0.1), rtol=1e-12)
    if subject.D == 1:
        inside = subject.dist.cdf(interval[:, 1]) - subject.dist.cdf(interval[:, 0])
        np.testing.assert_allclose(inside, 0.8, atol=1e-9)


# Moments and expectations


@subjects(*ALL)
def test_moments_are_those_of_the_density(subject):
    points = subject.points.reshape(-1, subject.D)
    mean = subject.average(points)
    centred = points - mean.mean(axis=0)
    second = subject.average(centred[:, :, None] * centred[:, None])
    shift = mean - mean.mean(axis=0)
    covariance = second - shift[:, :, None] * shift[:, None]
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    found = subject.dist.mean.reshape(subject.n, subject.D)
    error = np.full(subject.n, 1e-3) if subject.D == 1 or subject.exact else 4 * subject.error
    assert (np.abs(found - mean) < (error[:, None] + 1e-3) * sd).all()
    # The error of a product of two is larger by the root of a kurtosis, 3 for a Gaussian and more in tails.
    unit = sd[:, :, None] * sd[:, None]
    assert (np.abs(subject.dist.covariance - covariance) < (3 * error[:, None, None] + 3e-3) * unit).all()
    variance = subject.dist.variance.reshape(subject.n, subject.D)
    np.testing.assert_allclose(np.diagonal(subject.dist.covariance, axis1=1, axis2=2), variance, rtol=1e-9)
    np.testing.assert_allclose(subject.dist.stddev**2, subject.dist.variance, rtol=1e-9)


@subjects(*ALL)
def test_expectations_are_those_of_the_density(subject):
    centre, unit = subject.dist.mean.mean(axis=0), subject.dist.stddev.mean(axis=0)
    for fn in (np.sin, np.tanh, lambda z: z > 0.3, lambda z: np.exp(-(z**2))):
        found = subject.dist.expectation(lambda y, fn=fn: fn((y - centre) / unit))
        truth = subject.average(np.asarray(fn((subject.points - centre) / unit), dtype=float))
        step = 2e-3 if subject.D == 1 else 0.02  # of the grid, where fn jumps
        slack = np.full(subject.n, step if fn(np.ones(1)).dtype == bool else 1e-3)
        slack = slack + (0 if subject.D == 1 else 4 * subject.error)
        assert (np.abs(found - truth).reshape(subject.n, -1).max(axis=1) < slack).all()
    np.testing.assert_allclose(subject.dist.expectation(np.ones_like), 1, atol=1e-12)


@subjects(*ALL)
def test_expectation_of_the_target_is_the_mean(subject):
    gap = np.abs(subject.dist.expectation(lambda y: y) - subject.dist.mean)
    slack = 4 / 64 if subject.exact and subject.D > 1 else 5e-4
    assert (gap < slack * subject.dist.stddev).all()
    centre = subject.dist.mean.mean(axis=0)
    pair = subject.dist.expectation(lambda y: np.stack([y - centre, (y - centre) ** 2], axis=-1))
    assert pair.shape == (*subject.dist.mean.shape, 2)


# Samples


@subjects(*ALL)
def test_moments_of_samples(subject):
    y = subject.samples.reshape(N_SAMPLES, subject.n, subject.D)
    mean = subject.dist.mean.reshape(subject.n, subject.D)
    sd = subject.dist.stddev.reshape(subject.n, subject.D)
    z = (y - mean) / sd
    assert (np.abs(z.mean(axis=0)) < 4 * subject.sample_error[:, None]).all()
    products = z[..., :, None] * z[..., None, :]
    correlation = subject.dist.covariance / (sd[:, :, None] * sd[:, None])
    error = products.std(axis=0) * subject.sample_error[:, None, None]
    assert (np.abs(products.mean(axis=0) - correlation) < 4 * error + 1e-3).all()


@subjects(*SINGLE)
def test_samples_have_the_distribution_function_and_the_quantiles(subject):
    u = subject.dist.cdf(subject.samples)
    for row in range(subject.n):
        assert stats.kstest(u[:, row], "uniform").pvalue > 1e-4
    levels = np.array([0.05, 0.3, 0.5, 0.8, 0.99])[:, None]
    share = (subject.samples[:, None] <= subject.dist.icdf(levels[:, 0])).mean(axis=0)
    assert (np.abs(share - levels) < 4 * np.sqrt(levels * (1 - levels) / N_SAMPLES)).all()


@subjects(*MANY)
def test_samples_have_the_marginals_and_the_densities_of_the_grid(subject):
    limit = 2.1 * math.sqrt(POOLED / N_SAMPLES)  # Kolmogorov: exceeded in 3 of 10,000 rows
    for d in range(subject.D):
        below = marginal_cdf(subject, d)
        for row in range(subject.n):
            u = below(subject.samples[:, row, d], row)
            assert stats.kstest(u, "uniform").statistic < limit + 2e-3
    log_p = subject.dist.log_prob(subject.samples)
    for row in range(subject.n):
        order = subject.log_density[:, row].argsort()
        below = subject.masses[order, row].cumsum() / subject.masses[:, row].sum()
        u = np.interp(log_p[:, row], subject.log_density[order, row], below)
        assert stats.kstest(u, "uniform").statistic < limit + 0.01  # cells hold a few percent near the top


@subjects(*MANY)
def test_samples_fall_into_cells_as_often_as_the_grid_says(subject):
    n_blocks = {2: 12, 3: 7}[subject.D]
    sizes = [(len(e) - 1) // n_blocks for e in subject.edges]
    borders = [e[::size] for e, size in zip(subject.edges, sizes, strict=True)]
    shape = [part for size in sizes for part in (n_blocks, size)]
    masses = subject.masses.reshape(*shape, subject.n).sum(axis=tuple(range(1, 2 * subject.D, 2)))
    for row in range(subject.n):
        counts, _ = np.histogramdd(subject.samples[:, row], bins=borders)
        expected = N_SAMPLES * masses[..., row] / masses[..., row].sum()
        rare = expected < 10
        observed = np.append(counts[~rare], N_SAMPLES - counts[~rare].sum())
        wanted = np.append(expected[~rare], expected[rare].sum())
        statistic = ((observed - wanted) ** 2 / np.maximum(wanted, 1)).sum() / POOLED
        assert statistic < stats.chi2.isf(1e-4, len(wanted) - 1)


@subjects(*ALL)
def test_samples_repeat_with_the_seed_and_only_then(subject):
    first, again, other = (subject.dist.sample(20, random_state=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9
    assert subject.dist.sample(0).shape == (0, *subject.dist.mean.shape)


# Regions


@subjects(*SINGLE)
@pytest.mark.parametrize("mass", [0.5, 0.9])
def test_region_holds_its_mass_in_disjoint_intervals(subject, mass):
    dist = subject.dist
    region = dist.highest_density_region(mass)
    flat = subject.case is not None and subject.case.flat
    assert len(region.intervals) == subject.n
    lengths = np.zeros(subject.n)
    for row, ends in enumerate(region.intervals):
        alone = dist[row]
        assert ends.shape == (len(ends), 2)
        assert (np.diff(ends.ravel()) > 0).all()
        lengths[row] = np.diff(ends).sum()
        inside = np.diff(alone.cdf(ends.reshape(-1, 1)).reshape(-1, 2)).sum()
        assert inside >= mass - 5e-4
        assert flat or inside <= mass + 5e-4
        # Its border has the threshold's density, unless it is the border of everything.
        border = alone.log_prob(ends.reshape(-1, 1)).ravel()
        at_end = (ends.ravel() == subject.low) | (ends.ravel() == subject.high)
        np.testing.assert_allclose(border[~at_end], region.log_threshold[row], atol=2e-3)
        assert (border[at_end] >= region.log_threshold[row] - 2e-3).all()
    inside = region.contains(subject.samples).mean(axis=0)
    error = 4 * math.sqrt(mass * (1 - mass) / N_SAMPLES) + 5e-4
    assert (inside > mass - error).all()
    assert flat or (inside < mass + error).all()
    # No set of the same mass is smaller: not an interval with equal tails, nor one put together from cells.
    assert flat or (lengths <= np.diff(dist.interval(mass))[:, 0] * (1 + 1e-9)).all()
    order = (-subject.log_density).argsort(axis=0, kind="stable")
    held = np.take_along_axis(subject.masses, order, axis=0).cumsum(axis=0)
    for row in range(subject.n):
        size = subject.volumes[order[:, row]][held[:, row] < mass].sum()
        assert flat or abs(lengths[row] / size - 1) < 0.01


@subjects(*MANY)
@pytest.mark.parametrize("mass", [0.5, 0.9])
def test_region_of_several_targets_holds_its_mass(subject, mass):
    region = subject.dist.highest_density_region(mass)
    assert region.intervals is None
    spread = math.sqrt(mass * (1 - mass))
    inside = subject.log_density >= region.log_threshold
    assert (inside[::37] == region.contains(subject.rows(subject.points[::37]))).all()
    by_grid = (subject.masses * inside).sum(axis=0) / subject.masses.sum(axis=0)
    assert (np.abs(by_grid - mass) < 4 * spread * subject.error + 0.01).all()
    by_samples = region.contains(subject.samples).mean(axis=0)
    assert (np.abs(by_samples - mass) < 4 * spread * subject.sample_error).all()


# Modes


@subjects(*SINGLE)
def test_modes_are_maxima_and_their_hills_share_the_mass(subject):
    points = subject.points
    for row, mode in enumerate(subject.dist.modes()):
        alone = subject.dist[row]
        assert mode.locations.shape == mode.masses.shape == mode.log_densities.shape == (len(mode),)
        assert abs(mode.masses.sum() - 1) < 1e-9
        assert (np.diff(mode.masses) <= 0).all()
        np.testing.assert_allclose(
            mode.log_densities, alone.log_prob(mode.locations[:, None])[:, 0], atol=1e-3
        )
        assert subject.case is None or len(mode) == subject.case.modes
        # The hills end where the density is lowest between two modes, and no point of one is above its top.
        places = np.sort(mode.locations)
        column = subject.log_density[:, row]
        borders = [-np.inf]
        for a, b in pairwise(places):
            between = (points > a) & (points < b)
            borders.append(points[between][column[between].argmin()])
        borders.append(np.inf)
        for place, a, b in zip(places, borders[:-1], borders[1:], strict=True):
            top = mode.log_densities[mode.locations == place][0]
            assert column[(points > a) & (points < b)].max() < top + 2e-3
            mass = np.diff(alone.cdf(np.array([[a], [b]]))[:, 0])[0]
            assert abs(mass - mode.masses[mode.locations == place][0]) < 2e-3


@subjects(*MANY)
def test_modes_of_several_targets_are_maxima_and_share_the_mass(subject):
    directions = np.random.default_rng(3).normal(size=(64, subject.D))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    sd = subject.dist.stddev
    for row, mode in enumerate(subject.dist.modes()):
        alone = subject.dist[row]
        assert mode.locations.shape == (len(mode), subject.D)
        assert mode.masses.shape == mode.log_densities.shape == (len(mode),)
        assert abs(mode.masses.sum() - 1) < 1e-9
        assert (np.diff(mode.masses) <= 0).all()
        np.testing.assert_allclose(
            mode.log_densities, alone.log_prob(mode.locations[:, None])[:, 0], atol=1e-6
        )
        for place, top in zip(mode.locations, mode.log_densities, strict=True):
            for radius in (0.05, 0.2):
                around = np.clip(place + radius * sd[row] * directions, subject.low, subject.high)
                assert (alone.log_prob(around[:, None]) < top + 2e-3).all()
        assert mode.log_densities.max() > subject.log_density[:, row].max() - 0.01


@subjects(*SEVERAL)
def test_modes_of_several_targets_are_as_many_as_there_are(subject):
    modes = subject.dist.modes()
    assert modes.counts.tolist() == [subject.case.modes] * subject.n
    if subject.case.modes == 2:
        for mode in modes:
            error = math.sqrt(0.24 * (1 / 128 + subject.error.max() ** 2))
            assert abs(mode.masses[0] - 0.6) < 4 * error


# Bounds


@pytest.mark.filterwarnings("ignore:quantiles at a level:ebreg.errors.TrustWarning")
@subjects(*BOUNDED)
def test_nothing_lies_outside_the_bounds_and_the_bounds_belong_to_the_inside(subject):
    dist, low, high = subject.dist, subject.low, subject.high
    answers = [subject.samples, dist.mean, dist.quantile([1e-12, 1e-3, 0.5, 1 - 1e-3, 1 - 1e-12])]
    answers += [mode.locations for mode in dist.modes()]
    answers += [ends[..., None] for ends in dist.highest_density_region(0.99).intervals or ()]
    dist.expectation(lambda y: answers.append(y) or y)
    for values in answers:
        values = values[..., None] if subject.D == 1 and values.shape[-1] != 1 else values
        assert ((values >= low) & (values <= high)).all()
    middle = dist.quantile(0.5).reshape(subject.n, subject.D)
    for d in range(subject.D):
        for end, away in ((low[d], -1), (high[d], 1)):
            if np.isinf(end):
                continue
            y = middle.copy()
            y[:, d] = end
            at_end = y[:, 0] if subject.D == 1 else y
            assert np.isfinite(dist.log_prob(at_end)).all()
            for step in (1e-9, 1e-3, 1.0, 1e6):
                y[:, d] = end + away * step * max(1.0, abs(end))
                outside = y[:, 0] if subject.D == 1 else y
                assert (dist.log_prob(outside) == -np.inf).all()
                if subject.D == 1:
                    np.testing.assert_allclose(dist.cdf(outside), away > 0, rtol=0, atol=1e-12)
                elif away < 0:
                    assert (dist.cdf(outside) == 0).all()


# Rows do not know each other, nor the chunk they are computed in


def answers(dist: Prediction, y: np.ndarray, with_modes: bool = True) -> dict[str, list]:
    """Every answer that is not random, for each row; y has shape (S, n) or (S, n, D)."""
    region = dist.highest_density_region(0.7)
    given = {
        "mean": dist.mean,
        "covariance": dist.covariance,
        "log_partition": dist.log_partition,
        "log_partition_error": dist.log_partition_error,
        "effective_sample_size": dist.effective_sample_size,
        "pareto_k": dist.pareto_k,
        "unreliable": dist.unreliable,
        "log_prob": dist.log_prob(y).T,
        "cdf": dist.cdf(y).T,
        "quantile": np.moveaxis(dist.quantile([0.1, 0.5, 0.77]), 0, 1),
        "interval": dist.interval(0.9),
        "threshold": region.log_threshold,
        "contains": region.contains(y).T,
        "expectation": dist.expectation(np.sin),
    }
    if region.intervals is not None:
        given["intervals"] = region.intervals
    if with_modes:
        modes = dist.modes()
        # By climbing, a top is known to the root of a rounding error, and no better.
        digits = 10 if dist.n_targets == 1 else 5
        given["locations"] = [
            (m.locations / sd).round(digits) for m, sd in zip(modes, dist.stddev, strict=True)
        ]
        given["masses"] = [m.masses for m in modes]
    return {name: list(rows) for name, rows in given.items()}


def assert_same(found: dict[str, list], wanted: dict[str, list], rows: list[int]) -> None:
    for name, values in wanted.items():
        assert len(found[name]) == len(rows)
        atol = 2e-5 if name == "locations" else 1e-10
        for mine, row in zip(found[name], rows, strict=True):
            np.testing.assert_allclose(mine, values[row], rtol=1e-10, atol=atol, err_msg=name)


@subjects(*ALL)
def test_answers_depend_on_no_other_row_and_no_chunk(subject):
    x = torch.tensor([[-1.2], [0.4], [1.1]], dtype=torch.float64)
    y = subject.samples[:6]
    few = {} if subject.exact or subject.D == 1 else {"n_draws": 512, "max_draws": 2048}
    # Climbing takes most of the time.
    with_modes = subject.D == 1 or subject in map(
        build, ("2 with two hills", "MixtureDensityRegressor 2 open")
    )

    def ask(rows: list[int], chunk: int) -> dict[str, list]:
        dist = prediction(subject.model, x[rows], subject.D == 1, chunk=chunk, **few)
        return answers(dist, y[:, rows], with_modes)

    assert_same(ask([2, 0, 1], 2), ask([0, 1, 2], 3), [2, 0, 1])


@subjects("two hills", "2 with two hills", "MixtureDensityRegressor 1 bounded")
def test_some_of_the_rows_answer_as_all_of_them(subject):
    x = torch.linspace(-1.2, 1.1, 5, dtype=torch.float64)[:, None]
    y = subject.samples[:6, [0, 1, 2, 1, 0]]
    dist = prediction(subject.model, x, subject.D == 1, chunk=2)
    whole = answers(dist, y, with_modes=False)
    mask = np.array([True, False, False, True, True])
    for part, rows in (
        (dist[1:4], [1, 2, 3]),
        (dist[-1], [4]),
        (dist[mask], [0, 3, 4]),
        (dist[[2, 2]], [2, 2]),
    ):
        assert len(part) == len(rows)
        assert_same(answers(part, y[:, rows], with_modes=False), whole, rows)


@subjects("two hills", "2 correlated", "MixtureDensityRegressor 2 open")
def test_many_rows_take_several_chunks(subject):
    n = 300 if subject.D == 1 else 70
    x = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
    few = {} if subject.exact or subject.D == 1 else {"n_draws": 128, "max_draws": 128}
    y = subject.samples[:2, np.arange(n) % subject.n]
    chunked = prediction(subject.model, x, subject.D == 1, **few)
    at_once = prediction(subject.model, x, subject.D == 1, chunk=n, **few)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        for ask in (
            lambda p: p.mean,
            lambda p: p.log_prob(y),
            lambda p: p.cdf(y),
            lambda p: p.quantile(0.2),
            lambda p: p.apply(lambda q, y: q.log_prob(y), y[0]),
        ):
            np.testing.assert_allclose(ask(chunked), ask(at_once), rtol=1e-10, atol=1e-10)
        draws = chunked.sample(20, random_state=0)
        z = (draws - chunked.mean) / chunked.stddev
    assert draws.shape == (20, *chunked.mean.shape)
    assert (np.abs(z.mean(axis=(0, 1))) < 4 * 2 * math.sqrt(POOLED / (20 * n))).all()


@subjects("two hills", "beta", "2 with two hills", "3 bounded in one", *TRAINED)
def test_no_rows_have_empty_answers(subject):
    dist = prediction(subject.model, torch.empty(0, 1, dtype=torch.float64), subject.D == 1)
    tail = () if subject.D == 1 else (subject.D,)
    assert len(dist) == 0
    for value in (dist.mean, dist.variance, dist.stddev, dist.quantile(0.5), dist.expectation(np.sin)):
        assert value.shape == (0, *tail)
    assert dist.covariance.shape == (0, subject.D, subject.D)
    for value in (dist.log_partition, dist.log_partition_error, dist.effective_sample_size, dist.pareto_k):
        assert value.shape == (0,)
    assert dist.unreliable.shape == (0,)
    assert dist.quantile([0.1, 0.9]).shape == (2, 0, *tail)
    assert dist.interval().shape == (0, 2, *tail)
    assert dist.sample(4).shape == (4, 0, *tail)
    assert dist.log_prob(np.empty((7, 0, *tail))).shape == (7, 0)
    assert dist.cdf(np.empty((7, 0, *tail))).shape == (7, 0)
    assert len(dist.modes()) == 0
    region = dist.highest_density_region(0.5)
    assert region.log_threshold.shape == (0,)
    assert region.intervals == (() if subject.D == 1 else None)
    assert region.contains(np.empty((7, 0, *tail))).shape == (7, 0)


@subjects(*ALL)
def test_no_points_have_no_densities(subject):
    nothing = np.empty((0, *subject.dist.mean.shape))
    assert subject.dist.log_prob(nothing).shape == (0, subject.n)
    assert subject.dist.cdf(nothing).shape == (0, subject.n)
    assert subject.dist.quantile([]).shape == nothing.shape


# Refinement, and what is said where it does not suffice


def uneven(D: int) -> EnergyModel:
    """Rows that are the harder the larger x: waves, with two targets more spikes than a fit can follow."""

    def log_f(x: Tensor, z: Tensor) -> Tensor:
        hill = log_normal(z, 0.0, 1.0).sum(dim=-1)
        if D == 1:
            return hill + 3 * x.clamp_min(0) * torch.cos(40 * z[..., 0])
        return hill + 6 * x.clamp_min(0) * torch.cos(25 * z).sum(dim=-1)

    case = Case(
        log_f,
        lambda r: r.normal(size=(400, D)),
        ([1.0], [[0.1] * D], [[1.2] * D]),
        low=(-math.inf,) * D,
        high=(math.inf,) * D,
    )
    return case.model()


UNEVEN = {1: {"n_nodes": 32, "max_nodes": 2048}, 2: {"n_draws": 256, "max_draws": 16384}}
ONE_SIZE = {1: {"n_nodes": 32, "max_nodes": 32}, 2: {"n_draws": 256, "max_draws": 256}}


@pytest.mark.parametrize("D", [1, 2])
def test_rows_get_the_nodes_or_draws_they_need_and_the_answer_they_get_alone(D):
    model = uneven(D)
    x = torch.tensor([[1.0], [-1.0], [0.3], [0.0]], dtype=torch.float64)
    n = len(x)
    y = 1000 + 50 * np.random.default_rng(0).normal(size=(4, n, D))
    y = y[..., 0] if D == 1 else y * np.array([1.0, 1e-3])
    whole = prediction(model, x, D == 1, **UNEVEN[D])
    together = answers(whole, y, with_modes=D == 1)
    for row in range(n):
        alone = prediction(model, x[[row]], D == 1, **UNEVEN[D])
        assert_same(answers(alone, y[:, [row]], with_modes=D == 1), together, [row])
    trust = (
        (lambda p: p.log_partition_error <= 0.01) if D == 1 else (lambda p: p.effective_sample_size >= 200)
    )
    assert trust(whole).all()
    once = prediction(model, x, D == 1, **ONE_SIZE[D])
    assert trust(once).tolist() == [False, True, False, True]
    # Easy rows are left as they were.
    with pytest.warns(TrustWarning):
        log_p = once.log_prob(y)
    np.testing.assert_allclose(whole.log_prob(y)[:, [1, 3]], log_p[:, [1, 3]], rtol=1e-10)
    z = (whole.sample(1000, random_state=0) - whole.mean) / whole.stddev
    assert (np.abs(z.mean(axis=0)).reshape(n, -1).max(axis=1) < 4 * np.sqrt(1.1 / 1000 + 1 / 200)).all()


QUESTIONS = {
    "mean": lambda p, y: p.mean,
    "variance": lambda p, y: p.variance,
    "stddev": lambda p, y: p.stddev,
    "covariance": lambda p, y: p.covariance,
    "log_prob": lambda p, y: p.log_prob(y),
    "cdf": lambda p, y: p.cdf(y),
    "quantile": lambda p, y: p.quantile(0.5),
    "interval": lambda p, y: p.interval(),
    "sample": lambda p, y: p.sample(2, random_state=0),
    "modes": lambda p, y: p.modes(),
    "region": lambda p, y: p.highest_density_region(),
    "expectation": lambda p, y: p.expectation(np.sin),
}


@pytest.mark.parametrize(
    ("D", "question"),
    [
        *((1, question) for question in QUESTIONS),
        *((2, question) for question in ("mean", "sample", "region")),
    ],
)
def test_unreliable_rows_are_named_once(D, question):
    x = torch.tensor([[-1.0], [1.0], [-0.5], [1.0]], dtype=torch.float64)
    y = np.full((4,) if D == 1 else (4, 2), 1000.0)
    dist = prediction(uneven(D), x, D == 1, chunk=3, **ONE_SIZE[D])
    assert dist.unreliable.tolist() == [False, True, False, True]
    with pytest.warns(TrustWarning) as caught:
        QUESTIONS[question](dist, y)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "in 2 of 4 rows (1, 3)" in message
    assert ("n_nodes" if D == 1 else "n_draws") in message
    for again in (question, "mean", "log_prob"):
        QUESTIONS[again](dist, y)  # a warning would be an error


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_warning_of_unreliable_rows_points_to_the_caller(question):
    dist = prediction(uneven(1), torch.ones(1, 1, dtype=torch.float64), True, **ONE_SIZE[1])
    with pytest.warns(TrustWarning) as caught:
        QUESTIONS[question](dist, np.full(1, 1000.0))
    assert caught[0].filename == __file__


def test_many_unreliable_rows_are_counted_and_some_are_named():
    dist = prediction(uneven(1), torch.ones(30, 1, dtype=torch.float64), True, chunk=7, **ONE_SIZE[1])
    with pytest.warns(TrustWarning, match=r"in 30 of 30 rows \(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.\)"):
        dist.interval()
    dist[3:5].stddev  # noqa: B018 (its rows have been named)


@pytest.mark.parametrize("D", [1, 2])
def test_good_rows_are_not_warned_of(D):
    model = uneven(D)
    hard = prediction(model, torch.ones(2, 1, dtype=torch.float64), D == 1, **UNEVEN[D])
    easy = prediction(model, -torch.ones(2, 1, dtype=torch.float64), D == 1, **ONE_SIZE[D])
    y = np.full((2,) if D == 1 else (2, 2), 1000.0)
    for dist in (hard, easy):
        for ask in QUESTIONS.values():
            ask(dist, y)  # a warning would be an error
        assert not dist.unreliable.any()
