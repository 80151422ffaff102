"""GaussianMixture, which is both proposal and predictive distribution, and TargetNoise, the hand-set noise."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ebreg import checks, uniforms
from ebreg.ascent import modes_by_ascent
from ebreg.loglinear import LogLinear
from ebreg.regions import Modes, Region

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class GaussianMixture(Distribution):
    r"""Mixture of K diagonal Gaussians for each of B rows (Eq. 3).

    .. math:: q(y) = \textstyle\sum_k \pi_k \prod_d N(y_d; \mu_{kd}, \sigma_{kd}^2)

    A torch Distribution with batch shape (B,) and event shape (D,). It answers every question of
    :class:`ebreg.predictive.Predictive` for itself.

    Args:
        logits: Unnormalised log weights, shape (B, K).
        means: Shape (B, K, D).
        scales: Standard deviations, above 0, shape (B, K, D).
        validate_args: False skips the checks of values, for use inside a training step.
    """

    arg_constraints = {  # noqa: RUF012 (torch's convention)
        "logits": constraints.real_vector,
        "means": constraints.independent(constraints.real, 2),
        "scales": constraints.independent(constraints.positive, 2),
    }
    support = constraints.real_vector

    def __init__(self, logits: Tensor, means: Tensor, scales: Tensor, validate_args: bool | None = None):
        checks.shape("logits", logits, ("B", "K"))
        checks.shape("means", means, (*logits.shape, "D"))
        checks.shape("scales", scales, tuple(means.shape))
        checks.at_least("K, the number of components (second dimension of logits),", logits.shape[1], 1)
        if validate_args is not False:
            for name, value in (("logits", logits), ("means", means), ("scales", scales)):
                checks.finite(name, value)
            if not (scales > 0).all():
                raise ValueError(f"scales must be above 0, got {scales.min().item()}")
        self.logits = logits.log_softmax(dim=1)
        self.means = means
        self.scales = scales
        super().__init__(means.shape[:1], means.shape[2:], validate_args=False)

    @property
    def n_targets(self) -> int:
        """D."""
        return self.event_shape[0]

    @property
    def mean(self) -> Tensor:
        """Shape (B, D)."""
        return (self.logits.exp()[:, :, None] * self.means).sum(dim=1)

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        centred = self.means - self.mean[:, None]
        return (self.logits.exp()[:, :, None] * (self.scales**2 + centred**2)).sum(dim=1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density: (..., B, D) -> (..., B)."""
        return self._log_joint(value).logsumexp(dim=0)

    def sample(  # type: ignore[override]
        self, sample_shape: int | Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Independent draws, shape (*sample_shape, B, D); from the global state unless a generator is given."""
        sample_shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        n, (B, D) = math.prod(sample_shape), (self.batch_shape[0], self.n_targets)
        with torch.no_grad():
            options = {"generator": generator, "device": self.means.device}
            component, _ = self._component(torch.rand(n, B, **options).to(self.means.dtype))
            z = torch.randn(n, B, D, dtype=self.means.dtype, **options)
            return self._from_component(component, z).reshape(*sample_shape, B, D)

    def from_uniform(self, u: Tensor) -> Tensor:
        """Turn points of the unit cube into draws; uniform points become draws of the mixture.

        The first coordinate chooses the component, and what it says beyond that gives the first target.

        Args:
            u: Shape (M, B, D), or (M, D) for the same points in every row.

        Returns:
            Shape (M, B, D), not differentiated.
        """
        B, D = self.batch_shape[0], self.n_targets
        u = u[:, None].expand(-1, B, -1) if u.dim() == 2 else u
        checks.shape("u", u, ("M", B, D))
        with torch.no_grad():
            u = u.to(self.means)
            component, rest = self._component(u[..., 0])
            return self._from_component(component, _normal_icdf(torch.cat([rest[..., None], u[..., 1:]], dim=-1)))

    def place(self, y: Tensor, u: Tensor) -> Tensor:
        """The first coordinate of a point that :meth:`from_uniform` sends to y: its random inverse.

        Many points lead to y, one for each component; the component is drawn from its responsibilities,
        so that targets drawn from the mixture get uniform places.

        Args:
            y: Targets, shape (B, D).
            u: Uniform numbers that draw the component, shape (B,).

        Returns:
            Shape (B,), in [0, 1].
        """
        with torch.no_grad():
            responsibility = self._log_joint(y).softmax(dim=0).T  # (B, K)
            component = (u[:, None] > responsibility.cumsum(dim=1)[:, :-1]).sum(dim=1, keepdim=True)
            weights = self.logits.exp()
            below = (weights.cumsum(dim=1) - weights).gather(1, component)
            z = (y[:, :1] - self.means[..., 0].gather(1, component)) / self.scales[..., 0].gather(1, component)
            return (below + weights.gather(1, component) * torch.special.ndtr(z))[:, 0].clamp(0, 1)

    def cdf(self, value: Tensor) -> Tensor:
        """P(Y <= value in every target): (..., B, D) -> (..., B)."""
        z = (value[..., None, :] - self.means) / self.scales  # (..., B, K, D)
        return (self.logits.exp() * torch.special.ndtr(z).prod(dim=-1)).sum(dim=-1)

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles of a single target: levels (), (Q,) or (Q, B) in (0, 1) -> (B, 1) or (Q, B, 1)."""
        return quantiles(self._icdf, value, self.batch_shape[0], self.n_targets)

    def modes(self) -> Modes:
        """The modes with their masses."""
        if self.n_targets == 1:
            return self._curve.modes()
        return modes_by_ascent(self.log_prob, self.from_uniform(uniforms.sobol(128, self.n_targets)))

    def highest_density_region(self, mass: float) -> Region:
        """The smallest region that holds ``mass``."""
        check_mass(mass)
        if self.n_targets == 1:
            return self._curve.highest_density_region(mass)
        log_prob = self.log_prob(self.from_uniform(uniforms.sobol(4096, self.n_targets)))
        return Region(mass, log_prob.quantile(1 - mass, dim=0), self.log_prob)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, which maps (M, B, D) to (M, B, ...); returns (B, ...)."""
        if self.n_targets == 1:
            return self._curve.expectation(lambda y: fn(y[..., None]))
        return fn(self.from_uniform(uniforms.sobol(4096, self.n_targets))).mean(dim=0)

    def rescaled(self, shift: Tensor, scale: Tensor) -> "GaussianMixture":
        """The distribution of shift + scale * y; both have shape (D,), and their dtype is the result's."""
        return GaussianMixture(
            self.logits.to(scale), shift + scale * self.means, scale * self.scales, validate_args=False
        )

    def double(self) -> "GaussianMixture":
        """The same mixture, not differentiated, in float64."""
        parts = (part.detach().double() for part in (self.logits, self.means, self.scales))
        return GaussianMixture(*parts, validate_args=False)

    # A mixture is exact: these answer the same questions as for an energy-based model.

    @property
    def proposal(self) -> "GaussianMixture":
        """Itself."""
        return self

    @property
    def effective_sample_size(self) -> Tensor:
        """Infinite: nothing is estimated by sampling. Shape (B,)."""
        return torch.full_like(self.logits[:, 0], math.inf)

    @property
    def pareto_k(self) -> Tensor:
        """Minus infinity: the importance ratios are constant. Shape (B,)."""
        return torch.full_like(self.logits[:, 0], -math.inf)

    @property
    def log_partition(self) -> Tensor:
        """Zero: the density is normalised. Shape (B,)."""
        return torch.zeros_like(self.logits[:, 0])

    @property
    def log_partition_error(self) -> Tensor:
        """Zero. Shape (B,)."""
        return torch.zeros_like(self.logits[:, 0])

    def _log_joint(self, value: Tensor) -> Tensor:
        # log pi_k + log N_k, components first: reductions over a leading axis are several times faster.
        checks.shape("value", value, (*["..."] * (value.dim() - 2), *self.batch_shape, *self.event_shape))
        scales, log_norm = self.scales, self.logits - self.scales.log().sum(dim=-1)
        log_joint = (log_norm - self.n_targets * _LOG_SQRT_2PI).T.reshape(-1, *[1] * (value.dim() - 2), len(scales))
        for d in range(self.n_targets):
            shape = log_joint.shape[:1] + (1,) * (value.dim() - 2) + self.batch_shape
            z = (value[..., d] - self.means[..., d].T.reshape(shape)) / scales[..., d].T.reshape(shape)
            log_joint = log_joint - 0.5 * z * z
        return log_joint

    def _component(self, v: Tensor) -> tuple[Tensor, Tensor]:
        # The component whose interval v falls into, and how far into it, for v of shape (M, B).
        upper = self.logits.exp().cumsum(dim=1)
        component = torch.zeros_like(v, dtype=torch.long)
        for k in range(upper.shape[1] - 1):  # K comparisons of (M, B) beat one of (M, B, K)
            component += v >= upper[:, k]
        rows = torch.arange(v.shape[1], device=v.device)
        weight = self.logits.exp()[rows, component]
        return component, (v - (upper[rows, component] - weight)) / weight

    def _from_component(self, component: Tensor, z: Tensor) -> Tensor:
        rows = torch.arange(component.shape[1], device=component.device)
        return self.means[rows, component] + self.scales[rows, component] * z

    @cached_property
    def _curve(self) -> LogLinear:
        # For questions about the shape of the density, which have no closed form.
        levels = torch.linspace(0, 1, 514, dtype=torch.float64, device=self.means.device)[1:-1]
        tails = torch.logspace(-12, -3, 24, dtype=torch.float64, device=self.means.device)
        levels = torch.cat([tails, levels, 1 - tails])
        exact = self.double()
        nodes = torch.cat([exact.icdf(levels)[..., 0], exact.means[..., 0].T]).sort(dim=0).values
        return LogLinear(nodes, exact.log_prob(nodes[..., None]))

    def _icdf(self, q: Tensor) -> Tensor:
        # Newton steps, kept inside a bracket that halves when they leave it: (Q, B) -> (Q, B).
        exact, q = self.double(), q.to(self.means.device, torch.float64)
        ends = exact.means[..., 0] + exact.scales[..., 0] * torch.special.ndtri(q)[..., None]  # (Q, B, K)
        low, high = ends.amin(dim=-1), ends.amax(dim=-1)
        y = 0.5 * (low + high)
        for _ in range(80):
            gap = exact.cdf(y[..., None]) - q
            low, high = torch.where(gap < 0, y, low), torch.where(gap > 0, y, high)
            newton = y - gap / exact.log_prob(y[..., None]).exp()
            moved = torch.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
            # An entry that has settled stays where it is, so no row depends on how long others take.
            settled = (gap == 0) | ((moved - y).abs() <= 4 * torch.finfo(y.dtype).eps * y.abs()) | (low >= high)
            y = torch.where(settled, y, moved)
            if settled.all():
                break
        return y.to(self.means.dtype)


class TargetNoise:
    """Hand-set NCE noise: an equal mixture of Gaussians centred at the true target.

    Args:
        sigmas: Standard deviations of the components, the same for every target dimension.
    """

    def __init__(self, sigmas: Sequence[float]):
        self.sigmas = tuple(checks.positive("sigmas", float(sigma)) for sigma in sigmas)
        checks.at_least("the number of sigmas", len(self.sigmas), 1)

    def around(self, y: Tensor, unit: Tensor | float = 1.0) -> GaussianMixture:
        """The noise for targets y, shape (B, D); ``unit`` (D,) is what one sigma of 1 means in units of y."""
        B, D = y.shape
        K = len(self.sigmas)
        scales = y.new_tensor(self.sigmas)[:, None] / torch.as_tensor(unit, dtype=y.dtype, device=y.device)
        return GaussianMixture(
            y.new_zeros(B, K),
            y[:, None].expand(B, K, D),
            scales.expand(K, D).expand(B, K, D),
            validate_args=False,
        )


def quantiles(icdf: Callable[[Tensor], Tensor], q: Tensor | float, B: int, D: int) -> Tensor:
    """Call ``icdf``, (Q, B) -> (Q, B), with levels of any allowed shape, and add the target's dimension."""
    if D != 1:
        raise ValueError(
            f"icdf exists for one target only, and this distribution has {D}: quantiles do not order points "
            "of several dimensions. Ask for a highest_density_region, or for quantiles of samples of one target."
        )
    q = torch.as_tensor(q, dtype=torch.float64)
    if not ((q > 0) & (q < 1)).all():
        raise ValueError(f"quantile levels must lie in (0, 1), got {q.flatten().tolist()}")
    if q.dim() == 2:
        checks.shape("q", q, ("Q", B))
    levels = q.reshape(-1, 1).expand(-1, B) if q.dim() < 2 else q
    values = icdf(levels)[..., None]
    return values[0] if q.dim() == 0 else values


def check_mass(mass: float) -> None:
    """Require a mass in (0, 1)."""
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie in (0, 1), got {mass}")


def _normal_icdf(u: Tensor) -> Tensor:
    eps = torch.finfo(u.dtype).eps
    u = u.clamp(eps / 4, 1 - eps / 2)
    # erfinv is several times faster and as good as single precision deserves; ndtri keeps its digits in the tails.
    return math.sqrt(2) * torch.erfinv(2 * u - 1) if u.dtype == torch.float32 else torch.special.ndtri(u)
