import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import MultivariateNormal

from ebreg import importance
from ebreg.distributions import GaussianMixture
from ebreg.predictive import Accuracy, Predictive, importance_sampling, quadrature
from ebreg.units import Tail
from support import draws_of, nodes_of, rng, target_of

# Every case is a known density of a standard variable z; row b holds y = LOC[b] + SCALE[b] z, with energy
# f = log p + OFFSET[b], so that its log Z is OFFSET[b].
LOC = torch.tensor([0.0, -2.0, 3.0], dtype=torch.float64)
SCALE = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
OFFSET = torch.tensor([0.0, -5.0, 40.0], dtype=torch.float64)
B = 3
TAIL = Tail(*(torch.tensor([v], dtype=torch.float64) for v in (-8.0, 10.0, 2.0)))
EDGE = 0.02  # width of the edges of the case "edged"


def ndtr(z: Tensor, mean: float, scale: float) -> Tensor:
    return torch.special.ndtr((z - mean) / scale)


def log_normal(z: Tensor, mean: float, scale: float) -> Tensor:
    return -0.5 * ((z - mean) / scale) ** 2 - math.log(scale * math.sqrt(2 * math.pi))


def mixture(weights: list[float], means: list[float], scales: list[float]) -> GaussianMixture:
    """The same mixture of z in every row, in the row's place."""
    K = len(weights)
    return GaussianMixture(
        torch.tensor(weights, dtype=torch.float64).log().expand(B, K),
        (LOC[:, None] + SCALE[:, None] * torch.tensor(means, dtype=torch.float64))[..., None],
        (SCALE[:, None] * torch.tensor(scales, dtype=torch.float64))[..., None],
    )


def t_cdf(z: Tensor) -> Tensor:
    return torch.from_numpy(stats.t(5).cdf(z.numpy()))


def edged_cdf(z: Tensor) -> Tensor:
    # The uniform on [-1, 1] plus logistic noise.
    softplus = torch.nn.functional.softplus
    return EDGE * (softplus((z + 1) / EDGE, threshold=600) - softplus((z - 1) / EDGE, threshold=600)) / 2


def edged_log_pdf(z: Tensor) -> Tensor:
    sigmoid = torch.nn.functional.logsigmoid
    return sigmoid((z + 1) / EDGE) + sigmoid((1 - z) / EDGE) - math.log(2)


@dataclass(frozen=True)
class Case:
    log_pdf: Callable[[Tensor], Tensor]
    cdf: Callable[[Tensor], Tensor]
    mean: float
    variance: float
    modes: list[tuple[float, float]]  # location and mass, heaviest first
    proposal: GaussianMixture
    tail: Tail | None = None

    def energy(self, y: Tensor) -> Tensor:
        return self.log_pdf((y[..., 0] - LOC) / SCALE) - SCALE.log() + OFFSET

    def truth(self, y: Tensor) -> Tensor:
        return self.cdf((y[..., 0] - LOC) / SCALE)


TWO_HILLS = {
    "log_pdf": lambda z: torch.logaddexp(
        log_normal(z, -2, 0.3) + math.log(0.7), log_normal(z, 1.5, 0.6) + math.log(0.3)
    ),
    "cdf": lambda z: 0.7 * ndtr(z, -2, 0.3) + 0.3 * ndtr(z, 1.5, 0.6),
    "mean": -0.95,
    "variance": 0.7 * 0.09 + 0.3 * 0.36 + 0.21 * 3.5**2,
    "modes": [(-2, 0.7), (1.5, 0.3)],
}
CASES = {
    "bimodal": Case(**TWO_HILLS, proposal=mixture([0.6, 0.4], [-1.9, 1.3], [0.4, 0.8])),
    "one mode missed": Case(**TWO_HILLS, proposal=mixture([1.0], [-2.1], [0.35]), tail=TAIL),
    "skewed": Case(
        log_pdf=lambda z: -z - torch.exp(-z),
        cdf=lambda z: torch.exp(-torch.exp(-z)),
        mean=0.5772156649015329,
        variance=math.pi**2 / 6,
        modes=[(0, 1)],
        proposal=mixture([0.7, 0.3], [0.0, 1.5], [1.2, 2.0]),
    ),
    "heavy tails": Case(
        log_pdf=lambda z: -3 * torch.log1p(z**2 / 5) - math.log(3 * math.pi * math.sqrt(5) / 8),
        cdf=t_cdf,
        mean=0.0,
        variance=5 / 3,
        modes=[(0, 1)],
        proposal=mixture([0.7, 0.3], [0.0, 0.0], [1.0, 3.5]),
    ),
    "edged": Case(
        log_pdf=edged_log_pdf,
        cdf=edged_cdf,
        mean=0.0,
        variance=1 / 3 + (EDGE * math.pi) ** 2 / 3,
        modes=[(0, 1)],
        proposal=mixture([0.5, 0.5], [-0.5, 0.5], [0.5, 0.5]),
    ),
}


class Quadrature:
    """How far an answer by quadrature may be from the truth."""

    def __init__(self, case: Case):
        self.dist = nodes_of(case.energy, case.proposal, case.tail)
        self.shift, self.scale = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        self.log_z = torch.full((B,), 1.3e-4)

    def moment(self, spread: Tensor) -> Tensor:
        return 2e-3 * spread

    quantile = 1e-9


class RescaledQuadrature(Quadrature):
    def __init__(self, case: Case):
        super().__init__(case)
        self.shift, self.scale = self.shift - 70, self.scale * 1e-4
        self.dist = nodes_of(case.energy, case.proposal, case.tail, self.shift, self.scale)


class Importance:
    """Five standard errors; those of log Z come from eight replicates, those of a mean from the ESS."""

    def __init__(self, case: Case):
        self.dist = draws_of(case.energy, case.proposal, case.tail, n_draws=8192)
        self.shift, self.scale = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        self.log_z = 5 * self.dist.log_partition_error + 1e-4

    def moment(self, spread: Tensor) -> Tensor:
        return 5 * spread / self.dist.effective_sample_size[:, None].sqrt()

    quantile = 5e-3  # a staircase: the largest weight


class Exact(Quadrature):
    def __init__(self, case: Case):
        super().__init__(case)
        self.dist = mixture([0.7, 0.3], [-2.0, 1.5], [0.3, 0.6])


SUBJECTS = [
    *((name, kind) for name in CASES for kind in (Quadrature, Importance)),
    *((name, RescaledQuadrature) for name in ("one mode missed", "edged")),
    ("bimodal", Exact),
]


@pytest.fixture(params=SUBJECTS, ids=[f"{name}-{kind.__name__}" for name, kind in SUBJECTS], scope="module")
def subject(request):
    name, kind = request.param
    return CASES[name], kind(CASES[name]), kind


def grid(subject) -> Tensor:
    """A fine grid of y for every row, in the subject's units, shape (G, B, 1)."""
    _, answer, _ = subject
    z = torch.cat(
        [torch.linspace(a, b, 20001, dtype=torch.float64) for a, b in ((-60, -6), (-6, 8), (8, 60))]
    )
    return answer.shift + answer.scale * (LOC + SCALE * z[:, None])[..., None]


def standard(answer, y: Tensor) -> Tensor:
    return (y - answer.shift) / answer.scale


# One family of bodies over all cases and all who answer


def test_protocol_and_shapes(subject):
    _, answer, _ = subject
    dist = answer.dist
    assert isinstance(dist, Predictive)
    y = dist.sample(4, rng())
    assert y.shape == (4, B, 1)
    for moment in (dist.mean, dist.variance, dist.stddev):
        assert moment.shape == (B, 1)
    for number in (dist.effective_sample_size, dist.pareto_k, dist.log_partition, dist.log_partition_error):
        assert number.shape == (B,)
    for verb in (dist.log_prob, dist.cdf):
        assert verb(y).shape == (4, B)
        assert verb(y[0]).shape == (B,)
        assert verb(y[:, None]).shape == (4, 1, B)
    assert dist.icdf(0.3).shape == (B, 1)
    assert dist.icdf(torch.tensor([0.3, 0.6])).shape == (2, B, 1)
    assert dist.expectation(lambda y: y.square()).shape == (B, 1)
    assert dist.expectation(lambda y: y[..., 0]).shape == (B,)
    assert len(dist.modes()) == B
    assert dist.highest_density_region(0.5).contains(y).shape == (4, B)
    assert dist.proposal.log_prob(y).shape == (4, B)


def test_density_integrates_to_one(subject):
    _, answer, _ = subject
    y = grid(subject)
    total = torch.trapezoid(answer.dist.log_prob(y).exp(), y[..., 0], dim=0)
    assert ((total - 1).abs() < answer.log_z + 5e-5).all()


def test_density_is_the_truth(subject):
    case, answer, _ = subject
    z = torch.linspace(-3.2, 4, 500, dtype=torch.float64)[:, None].expand(-1, B)
    y = LOC + SCALE * z
    truth = case.log_pdf(z) - SCALE.log() - answer.scale.log()
    log_p = answer.dist.log_prob(answer.shift + answer.scale * y[..., None])
    seen = truth > truth.amax(dim=0) - 5  # further down hardly a hundredth of the mass lies, and few nodes
    assert ((log_p - truth).abs() < answer.log_z + 0.02)[seen].all()


def test_log_partition(subject):
    _, answer, kind = subject
    truth = torch.zeros(B) if kind is Exact else OFFSET + answer.scale.log().sum()
    assert ((answer.dist.log_partition - truth).abs() <= answer.log_z).all()
    assert (answer.dist.log_partition_error >= 0).all()


def test_cdf_and_icdf_invert_each_other(subject):
    case, answer, _ = subject
    q = torch.tensor([1e-3, 0.05, 0.3, 0.5, 0.69, 0.9, 0.999], dtype=torch.float64)
    y = answer.dist.icdf(q)
    assert ((answer.dist.cdf(y) - q[:, None]).abs() < answer.quantile).all()
    assert (y.diff(dim=0) > 0).all()
    each = torch.tensor(
        [[0.1, 0.5, 0.9], [0.7, 0.4, 0.2]], dtype=torch.float64
    )  # levels of their own for rows
    for level, found in zip(each, answer.dist.icdf(each), strict=True):
        alone = torch.stack([answer.dist.icdf(level[b])[b] for b in range(B)])
        torch.testing.assert_close(found, alone)
    tolerance = answer.moment(torch.ones(B, 1))[:, 0] * 0.5
    assert ((case.truth(standard(answer, y)) - q[:, None]).abs() < tolerance).all()


def test_moments_and_expectations(subject):
    case, answer, kind = subject
    sd = SCALE[:, None] * math.sqrt(case.variance)
    mean, variance = LOC[:, None] + SCALE[:, None] * case.mean, sd**2
    assert ((standard(answer, answer.dist.mean) - mean).abs() < answer.moment(sd)).all()
    # The error of a variance is that of the mean of squares, whose spread is the root of the kurtosis.
    assert ((answer.dist.variance / answer.scale**2 - variance).abs() < 3 * answer.moment(variance)).all()
    torch.testing.assert_close(answer.dist.stddev**2, answer.dist.variance)
    # F(Y) is uniform: E F = 1/2, E F^2 = 1/3.
    powers = answer.dist.expectation(
        lambda y: torch.stack([case.truth(standard(answer, y)) ** k for k in (1, 2)], dim=-1)
    )
    assert ((powers - torch.tensor([1 / 2, 1 / 3])).abs() < answer.moment(torch.full((B, 1), 0.3))).all()
    shift = answer.dist.expectation(lambda y: y) - answer.dist.mean
    # A mixture has its mean in closed form, and expectations of anything by interpolation.
    tolerance = 2e-4 if kind is Exact else 1e-6
    assert (shift.abs() < tolerance * answer.dist.stddev + 1e-12 * answer.dist.mean.abs()).all()


def test_samples_agree_with_cdf_and_density(subject):
    case, answer, _ = subject
    n = 2000
    y = answer.dist.sample(n, rng(1))
    u = case.truth(standard(answer, y)).sort(dim=0).values
    steps = torch.arange(n + 1, dtype=torch.float64)[:, None] / n
    distance = torch.maximum(u - steps[:-1], steps[1:] - u).amax(dim=0)
    assert (distance < 2.1 / math.sqrt(n)).all()  # Kolmogorov: exceeded in 3 of 10,000 rows
    log_p = answer.dist.log_prob(y)
    entropy = answer.dist.expectation(lambda y: answer.dist.log_prob(y))
    # A resampled set is worth 10/11 of an independent one; the ESS adds the error of the expectation.
    error = log_p.std(dim=0) * (1.1 / n + answer.moment(torch.ones(B, 1))[:, 0] ** 2 / 25).sqrt()
    assert ((log_p.mean(dim=0) - entropy).abs() < 4.5 * error + 1e-4).all()


def test_highest_density_region(subject):
    case, answer, _ = subject
    dist, mass, n = answer.dist, 0.8, 2000
    region = dist.highest_density_region(mass)
    inside = region.contains(dist.sample(n, rng(2))).double().mean(dim=0)
    slack = 5 * math.sqrt(mass * (1 - mass) / n * 1.1) + 0.4 * answer.moment(torch.ones(B, 1))[:, 0]
    if (
        case is not CASES["edged"]
    ):  # on a plateau the log densities of border and inside are equal to rounding
        assert ((inside - mass).abs() < slack).all()
    # The smallest set: no longer than the truth's, found by sorting a grid.
    z = torch.linspace(-12, 20, 200_001, dtype=torch.float64)
    density = case.log_pdf(z).exp().sort(descending=True).values
    size = (density.cumsum(0) < mass * density.sum()).sum() * (z[1] - z[0])
    y = grid(subject)
    lengths = torch.trapezoid(region.contains(y).double(), y[..., 0], dim=0) / (SCALE * answer.scale)
    assert ((lengths / size - 1).abs() < 0.03 + 1.5 * answer.moment(torch.ones(B, 1))[:, 0]).all()
    if region.intervals is not None:
        for b, ends in enumerate(region.intervals):
            middles = ends.mean(dim=1)[:, None, None].expand(-1, B, 1)
            assert region.contains(middles)[:, b].all()
            assert (ends.diff(dim=1) > 0).all()
            outside = ends + (ends.diff(dim=1) * 1e-3) * torch.tensor([-1.0, 1.0])
            assert not region.contains(outside.flatten()[:, None, None].expand(-1, B, 1))[:, b].any()
            torch.testing.assert_close(
                ends.diff(dim=1).sum(), lengths[b] * SCALE[b] * answer.scale[0], **close()
            )


def close(rtol: float = 1e-2) -> dict[str, float]:
    return {"rtol": rtol, "atol": 0.0}


def test_modes_and_their_masses(subject):
    case, answer, kind = subject
    if case is CASES["edged"] and kind is Importance:
        pytest.skip("on a plateau there is nothing to climb; one target is answered by quadrature")
    for b, found in enumerate(answer.dist.modes()):
        assert len(found) == len(case.modes)
        wide = 1.0 if case is CASES["edged"] else 0.06  # anywhere on the plateau
        for (location, mass), place, its_mass, log_p in zip(
            case.modes, found.locations, found.masses, found.log_densities, strict=True
        ):
            z = (standard(answer, place) - LOC[b]) / SCALE[b]
            assert abs(z.item() - location) < wide
            assert abs(its_mass.item() - mass) < 2e-3 + answer.moment(torch.ones(B, 1))[b].item()
            y = place.expand(B, 1)
            torch.testing.assert_close(log_p, answer.dist.log_prob(y)[b], rtol=0, atol=5e-4)
        assert abs(found.masses.sum().item() - 1) < 1e-6


def test_answers_are_deterministic_and_leave_the_random_state(subject):
    case, answer, kind = subject
    before = torch.random.get_rng_state()
    again = kind(case)
    for first, second in zip(verbs(answer.dist), verbs(again.dist), strict=True):
        assert torch.equal(first, second)
    answer.dist.sample(3, rng())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(answer.dist.sample(5, rng(7)), again.dist.sample(5, rng(7)))


def verbs(dist) -> list[Tensor]:
    """Every deterministic answer, rows last."""
    y = dist.mean + torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None, None] * dist.stddev
    one = dist.mean.shape[-1] == 1
    region, modes = dist.highest_density_region(0.7), dist.modes()
    return [
        dist.mean.T,
        dist.variance.T,
        dist.log_partition,
        dist.log_partition_error,
        dist.effective_sample_size,
        dist.pareto_k,
        dist.log_prob(y),
        dist.cdf(y),
        dist.icdf(torch.tensor([0.1, 0.5, 0.77]))[..., 0] if one else dist.mean.T,
        region.log_threshold,
        region.contains(y),
        dist.expectation(lambda y: y.sin()).T,
        torch.stack([mode.locations[0] for mode in modes], dim=-1),
        modes.counts,
    ]


# Rows do not know each other


def rows_problem(D: int, n: int = 5):
    """Different densities in every row: the builder of a distribution over any choice of rows."""
    logits, means, scales = (
        torch.randn(n, 3, *shape, generator=rng(D), dtype=torch.float64) for shape in ((), (D,), (D,))
    )
    target = 1.5 * means + 0.3

    def build(rows: list[int], shift=None, scale=None):
        p = GaussianMixture(logits[rows], target[rows], scales[rows].mul(0.3).exp())
        q = GaussianMixture(logits[rows] * 0.5, means[rows], scales[rows].mul(0.3).exp() * 1.6)
        tail = wide_tail(D)
        if D == 1:
            return nodes_of(p.log_prob, q, tail, shift, scale)
        return draws_of(p.log_prob, q, tail, shift, scale, n_draws=1024)

    return build


@pytest.mark.parametrize("D", [1, 2, 3])
def test_a_row_answers_alone_as_in_a_batch(D):
    build = rows_problem(D)
    together = verbs(build([0, 1, 2, 3, 4]))
    for rows in ([2], [4, 0, 3], [3, 3]):
        for all_rows, some in zip(together, verbs(build(rows)), strict=True):
            torch.testing.assert_close(some, all_rows[..., rows], rtol=1e-9, atol=1e-9)


# Several targets: closed forms of a correlated Gaussian


def wide_tail(D: int) -> Tail:
    return Tail(*(torch.full((D,), v, dtype=torch.float64) for v in (-6.0, 6.0, 1.0)))


def gaussians(D: int) -> MultivariateNormal:
    """Two rows, the second of them strongly correlated."""
    correlation = torch.tensor([0.2, 0.8], dtype=torch.float64)[:, None, None]
    sd = torch.linspace(0.5, 1.5, D, dtype=torch.float64)
    eye = torch.eye(D, dtype=torch.float64)
    covariance = sd[:, None] * sd * (eye + correlation * (1 - eye))
    return MultivariateNormal(torch.linspace(-1, 1, D, dtype=torch.float64).expand(2, D), covariance)


def gaussian_problem(D: int, widen: float = 1.3, **settings):
    p = gaussians(D)
    sd = p.covariance_matrix.diagonal(dim1=-2, dim2=-1).sqrt()
    q = GaussianMixture(torch.zeros(2, 1, dtype=torch.float64), p.mean[:, None], widen * sd[:, None])
    offset = torch.tensor([3.0, -7.0], dtype=torch.float64)
    settings = {"n_draws": 8192, **settings}
    return p, offset, draws_of(lambda y: p.log_prob(y) + offset, q, **settings)


@pytest.mark.parametrize("D", [2, 3])
@pytest.mark.parametrize("wide", [False, True])
def test_correlated_gaussian(D, wide):
    tail = Tail(*(torch.full((D,), v, dtype=torch.float64) for v in (-5.0, 5.0, 1.0))) if wide else None
    p, offset, dist = gaussian_problem(D, tail=tail)
    ess, sd = dist.effective_sample_size, p.variance.sqrt()
    assert ((dist.log_partition - offset).abs() < 5 * dist.log_partition_error).all()
    assert (dist.log_partition_error < 0.02).all()
    assert ((dist.mean - p.mean).abs() < 4 * sd / ess.sqrt()[:, None]).all()
    assert ((dist.variance / p.variance - 1).abs() < 4 * math.sqrt(2) / ess.sqrt()[:, None]).all()
    products = dist.expectation(lambda y: (y - p.mean)[..., 0] * (y - p.mean)[..., 1])
    error = (sd[:, 0] * sd[:, 1]) * math.sqrt(2) / ess.sqrt()
    assert ((products - p.covariance_matrix[:, 0, 1]).abs() < 4 * error).all()
    # Sheppard: two targets lie below their means together with probability 1/4 + asin(r) / 2 pi.
    low = torch.full((2, D), 50.0, dtype=torch.float64)
    low[:, :2] = p.mean[:, :2]
    truth = 0.25 + torch.tensor([0.2, 0.8]).asin() / (2 * math.pi)
    assert ((dist.cdf(low) - truth).abs() < 4 * 0.5 / ess.sqrt()).all()
    torch.testing.assert_close(dist.log_prob(low) + dist.log_partition, p.log_prob(low) + offset)


@pytest.mark.parametrize("D", [2, 3])
def test_correlated_gaussian_samples_modes_and_region(D):
    p, _, dist = gaussian_problem(D)
    n = 2000
    y = dist.sample(n, rng(3))
    # Squared Mahalanobis distances follow a chi-square law, and their level sets are the densest regions.
    distance = 2 * (p.log_prob(p.mean) - p.log_prob(y))
    for b in range(2):
        assert stats.kstest(distance[:, b].numpy(), stats.chi2(D).cdf).statistic < 2.1 / math.sqrt(n)
    assert ((y.mean(dim=0) - p.mean).abs() < 4.5 * p.variance.sqrt() * math.sqrt(1.1 / n)).all()
    region = dist.highest_density_region(0.6)
    share = stats.chi2(D).cdf(2 * (p.log_prob(p.mean) - region.log_threshold + 0.0).numpy())
    assert abs(share - 0.6).max() < 5 * 0.5 / math.sqrt(dist.effective_sample_size.min())
    assert region.intervals is None
    inside = region.contains(y).double().mean(dim=0)
    assert ((inside - 0.6).abs() < 5 * 0.5 / math.sqrt(n) + 0.02).all()
    for b, modes in enumerate(dist.modes()):
        assert len(modes) == 1
        torch.testing.assert_close(modes.locations[0], p.mean[b], rtol=0, atol=0.02)
        torch.testing.assert_close(modes.masses.sum(), torch.ones((), dtype=modes.masses.dtype))


def test_error_of_log_partition_is_the_spread_over_seeds():
    _, offset, _ = gaussian_problem(2, n_draws=256)
    runs = [gaussian_problem(2, n_draws=256, seed=100 * seed)[2] for seed in range(60)]
    spread = mean_square([dist.log_partition - offset for dist in runs])
    stated = mean_square([dist.log_partition_error for dist in runs])
    independent = mean_square(
        [
            importance.log_partition_error(dist.log_weights, torch.zeros_like(dist.log_weights))
            for dist in runs
        ]
    )
    # Sixty runs know their spread to one part in eleven; an error from eight replicates is noisy itself.
    assert (spread < 1.5**2 * stated).all()
    # The error is not overstated, but for a share of that of independent draws, which it is never below.
    assert (stated < spread / 0.6**2 + (0.4**2) * independent).all()
    assert (stated > (0.4**2) * independent).all()


def mean_square(values: list[Tensor]) -> Tensor:
    return torch.stack(values).square().mean(dim=0)


def test_replicates_tell_more_than_independent_draws_would():
    _, _, dist = gaussian_problem(2)
    independent = importance.log_partition_error(dist.log_weights, torch.zeros_like(dist.log_weights))
    assert (dist.log_partition_error < 0.6 * independent).all()


# Trust


@pytest.mark.parametrize("D", [1, 2])
def test_a_good_proposal_is_trusted_and_a_narrow_one_is_not(D):
    def ask(width: float):
        zeros, ones = torch.zeros(2, 1, D, dtype=torch.float64), torch.ones(2, 1, D, dtype=torch.float64)
        p = GaussianMixture(zeros[..., 0], zeros, ones)
        q = GaussianMixture(zeros[..., 0], zeros, width * ones)
        if D == 1:
            return nodes_of(p.log_prob, q, n_diagnostic_draws=1024), 1024
        return draws_of(p.log_prob, q, n_draws=1024), 1024

    good, n = ask(1.05)
    assert (good.effective_sample_size > 0.97 * n).all()
    assert (good.effective_sample_size <= n).all()
    assert (good.pareto_k < 0.5).all()
    narrow, n = ask(0.4)
    assert (narrow.pareto_k > 0.7).all()
    assert (narrow.effective_sample_size < 0.2 * n).all()
    exact, n = ask(1.0)
    torch.testing.assert_close(exact.effective_sample_size, torch.full((2,), float(n), dtype=torch.float64))


def test_wide_draws_see_what_the_proposal_misses():
    D, row = 2, torch.zeros(1, 1, dtype=torch.float64)
    means = torch.tensor([[[-3.0, -3.0], [3.0, 3.0]]], dtype=torch.float64)
    p = GaussianMixture(row.expand(1, 2), means, 0.5 * torch.ones_like(means))
    q = GaussianMixture(row, means[:, :1], 0.5 * torch.ones(1, 1, D, dtype=torch.float64))
    tail = Tail(*(torch.full((D,), v, dtype=torch.float64) for v in (-5.0, 5.0, 1.0)))
    blind = draws_of(p.log_prob, q)
    seeing = draws_of(p.log_prob, q, tail, n_draws=16384)
    torch.testing.assert_close(
        blind.log_partition, torch.tensor([math.log(0.5)], dtype=torch.float64), **close()
    )
    assert (seeing.log_partition.abs() < 5 * seeing.log_partition_error).all()
    assert (seeing.log_partition_error < 0.1).all()
    assert seeing.modes().counts.tolist() == [2]


@pytest.mark.parametrize("counts", [(32, 64, 128), (256, 512, 1024, 2048)])
def test_nodes_double_and_the_error_falls_fourfold(counts):
    case = CASES["bimodal"]
    errors = [
        (nodes_of(case.energy, case.proposal, n_nodes=n).log_partition - OFFSET).abs().max().item()
        for n in counts
    ]
    slope = math.log2(errors[0] / errors[-1]) / (len(counts) - 1)
    assert 1.6 < slope < 2.4


@pytest.mark.parametrize("name", CASES)
def test_error_of_quadrature_is_of_the_right_size(name):
    case = CASES[name]
    for n in (256, 512):
        dist = nodes_of(case.energy, case.proposal, case.tail, n_nodes=n)
        error = (dist.log_partition - OFFSET).abs()
        assert (error < 1.1 * dist.log_partition_error + 1e-5).all()
        assert (dist.log_partition_error < 5 * error + 1e-5).all()


# Gradients


def test_components_of_very_different_widths_are_resolved():
    # As members have them far from the data: log Z is 0, for widths over eight powers of ten.
    B, K = 20, 16
    means = 4 * torch.randn(B, K, 1, generator=rng(0), dtype=torch.float64)
    scales = 10 ** (8 * torch.rand(B, K, 1, generator=rng(1), dtype=torch.float64) - 3)
    q = GaussianMixture(torch.zeros(B, K, dtype=torch.float64), means, scales)
    p = quadrature(target_of(q.log_prob, q), Accuracy())
    assert (p.log_partition_error < Accuracy().tolerance).all()
    assert (p.log_partition.abs() < Accuracy().tolerance).all()
    assert not p.unreliable.any()


def test_log_density_is_differentiable_in_the_target_and_the_energy():
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    q = GaussianMixture(*(torch.ones(1, 1, *s, dtype=torch.float64) for s in ((), (2,), (2,))))
    dist = draws_of(lambda y: -weight * y.square().sum(dim=-1), q)
    y = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    assert not dist.modes()[0].log_densities.requires_grad
    assert not dist.sample(3, rng()).requires_grad
    slope, by_weight = torch.autograd.grad(dist.log_prob(y.requires_grad_()).sum(), (y, weight))
    torch.testing.assert_close(slope, -2 * y.detach())
    # log Z is -log weight and a constant, up to the error of 2048 draws.
    torch.testing.assert_close(by_weight, 1 - y.detach().square().sum(), rtol=0.02, atol=0)


# Units


@pytest.mark.parametrize("D", [1, 2])
def test_other_units_change_the_answers_as_they_change_y(D):
    base = rows_problem(D)([0, 1, 2])
    shift = torch.linspace(-3e4, 5e4, D, dtype=torch.float64)
    scale = torch.tensor([2e3, 1e-3], dtype=torch.float64)[:D]
    dist = rows_problem(D)([0, 1, 2], shift, scale)
    z = base.sample(6, rng(4))
    y = shift + scale * z
    torch.testing.assert_close(dist.log_prob(y), base.log_prob(z) - scale.log().sum(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(dist.mean, shift + scale * base.mean)
    torch.testing.assert_close(dist.variance, scale**2 * base.variance)
    torch.testing.assert_close(dist.stddev, scale * base.stddev)
    torch.testing.assert_close(dist.sample(6, rng(4)), y)
    torch.testing.assert_close(dist.log_partition, base.log_partition + scale.log().sum())
    for name in ("effective_sample_size", "pareto_k", "log_partition_error"):
        torch.testing.assert_close(getattr(dist, name), getattr(base, name), rtol=1e-6, atol=1e-6)
    # An edge of the staircase may fall to the other side by rounding.
    torch.testing.assert_close(dist.cdf(y), base.cdf(z), rtol=0, atol=5e-3 if D > 1 else 1e-6)
    torch.testing.assert_close(
        dist.expectation(lambda y: y.sin()), base.expectation(lambda z: (shift + scale * z).sin())
    )
    # The density of the proposal in new units changes by the same Jacobian.
    torch.testing.assert_close(
        dist.proposal.log_prob(y), base.proposal.log_prob(z) - scale.log().sum(), rtol=1e-6, atol=1e-6
    )
    for here, there in zip(dist.modes(), base.modes(), strict=True):
        torch.testing.assert_close(here.locations, shift + scale * there.locations)
        torch.testing.assert_close(here.masses, there.masses)
        torch.testing.assert_close(here.log_densities, there.log_densities - scale.log().sum())
    here, there = dist.highest_density_region(0.7), base.highest_density_region(0.7)
    assert torch.equal(here.contains(y), there.contains(z))
    torch.testing.assert_close(here.log_threshold, there.log_threshold - scale.log().sum())
    torch.testing.assert_close(here.log_threshold.exp() * scale.prod(), there.log_threshold.exp())
    if D == 1:
        torch.testing.assert_close(dist.icdf(0.2), shift + scale * base.icdf(0.2))
        for row, base_row in zip(here.intervals, there.intervals, strict=True):
            torch.testing.assert_close(row, shift + scale * base_row)


# Refusals


def test_quantiles_of_several_targets_are_refused_with_the_reason():
    for dist in (rows_problem(2)([0]), rows_problem(2)([0]).proposal):
        with pytest.raises(ValueError, match=r"one target only.*has 2.*highest_density_region"):
            dist.icdf(0.5)


@pytest.mark.parametrize("D", [1, 2])
def test_wrong_arguments_are_refused(D):
    dist = rows_problem(D)([0, 1, 2])
    for shape in ((3,), (2, D), (3, D + 1), (4, 2, D), (D, 3, 3)):
        for verb in (dist.log_prob, dist.cdf):
            with pytest.raises(ValueError, match="y must have shape"):
                verb(torch.zeros(shape, dtype=torch.float64))
    for mass in (0.0, 1.0, -1, math.nan):
        with pytest.raises(ValueError, match="mass must lie in"):
            dist.highest_density_region(mass)
    for level in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match=r"q must lie in \(0, 1\)"):
            dist.quantile(level)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_nodes": 8}, "n_nodes must be at least 16"),
        ({"n_nodes": 64, "max_nodes": 32}, "max_nodes must be at least 64"),
        ({"n_draws": 100}, "n_draws must be at least 128"),
        ({"max_draws": 1000}, "max_draws must be at least 2048"),
        ({"n_replicates": 1}, "n_replicates must be at least 2"),
        ({"n_diagnostic_draws": 0}, "n_diagnostic_draws must be at least 1"),
        ({"tolerance": 0.0}, "tolerance must be a finite number above 0"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Accuracy(**settings)


# Rows: indexed, joined and pickled as tensors


@pytest.mark.parametrize("D", [1, 2])
def test_rows_can_be_chosen_joined_and_pickled(D):
    dist = rows_problem(D)([0, 1, 2, 3, 4])
    whole = verbs(dist)
    for rows in ([2], [4, 0, 3], slice(1, 3), torch.tensor([True, False, False, True, True])):
        for all_rows, some in zip(whole, verbs(dist[rows]), strict=True):
            torch.testing.assert_close(some, all_rows[..., rows], rtol=1e-9, atol=1e-9)
    for all_rows, joined in zip(whole, verbs(dist[:2].joined([dist[2:3], dist[3:]])), strict=True):
        torch.testing.assert_close(joined, all_rows, rtol=1e-9, atol=1e-9)
    if D == 1:  # the energy of this test cannot be pickled, a model's can
        for all_rows, again in zip(whole, verbs(pickle.loads(pickle.dumps(dist))), strict=True):
            assert torch.equal(again, all_rows)


@pytest.mark.parametrize("D", [1, 2])
def test_rows_that_need_more_do_not_change_the_others(D):
    # One easy row, one whose density is far narrower than the proposal knows.
    zeros, ones = torch.zeros(2, 1, D, dtype=torch.float64), torch.ones(2, 1, D, dtype=torch.float64)
    # One target has nodes over the box, which already suit less narrow ones.
    width = torch.tensor([1.0, 0.0005 if D == 1 else 0.004], dtype=torch.float64)[:, None, None]
    p = GaussianMixture(zeros[..., 0], zeros + 0.3, width * ones)
    target = target_of(p.log_prob, GaussianMixture(zeros[..., 0], zeros, ones), wide_tail(D))
    make = quadrature if D == 1 else importance_sampling
    both = make(target, Accuracy(n_nodes=32))
    easy = make(target[:1], Accuracy(n_nodes=32))
    size = (lambda dist: dist.nodes.shape[1]) if D == 1 else (lambda dist: dist.n_draws[0].item())
    assert D > 1 or size(both) > size(easy)
    for all_rows, some in zip(verbs(both), verbs(easy), strict=True):
        torch.testing.assert_close(some, all_rows[..., :1], rtol=1e-9, atol=1e-9)
    assert (both.log_partition.abs() < 5 * both.log_partition_error + 1e-3).all()
    torch.testing.assert_close(both.stddev, width[:, 0] * ones[:, 0], rtol=0.05, atol=0)


def test_samples_from_a_pool_in_pieces_are_those_of_one_pool():
    # With 1,100 rows the pool of 10,000 draws comes in some ten pieces.
    B = 1100
    scale = torch.tensor([1.0, 0.5])

    def energy(y: Tensor) -> Tensor:
        return -0.5 * ((y - 1) / scale.to(y)).square().sum(dim=-1)

    proposal = GaussianMixture(torch.zeros(B, 1), torch.zeros(B, 1, 2), torch.full((B, 1, 2), 2.0))
    p = draws_of(energy, proposal, n_draws=256)
    samples = p.sample(150, torch.Generator().manual_seed(0))
    assert samples.shape == (150, B, 2)
    errors = (samples.mean(dim=(0, 1)) - 1) / (scale / math.sqrt(150 * B))
    assert errors.abs().max() < 12  # a row's samples come from one pool and repeat some of its draws
    torch.testing.assert_close(samples.std(dim=(0, 1)), scale.double(), rtol=0.02, atol=0)
