"""GaussianMixture: the proposal, and a predictive distribution by itself."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ebreg import sampling
from ebreg._utils import checks, gradients
from ebreg._utils.row_index import row_index
from ebreg.distributions import components, level_sets, mixture_curves, normal
from ebreg.distributions.ascent import modes_by_ascent
from ebreg.distributions.exact_diagnostics import ExactDiagnostics
from ebreg.distributions.log_linear import LogLinear
from ebreg.distributions.mixture_log_prob import MixtureLogDensity
from ebreg.distributions.mixture_quantiles import at_levels
from ebreg.distributions.node_positions import NodePositions
from ebreg.distributions.quantiles import quantiles
from ebreg.distributions.regions import Modes, Region


class GaussianMixture(ExactDiagnostics, Distribution):
    r"""Mixture of K diagonal Gaussians for each of B rows (Eq. 3).

    .. math:: q(y) = \textstyle\sum_k \pi_k \prod_d N(y_d; \mu_{kd}, \sigma_{kd}^2)

    The paper has one scale per component; here each target has its own.

    A torch Distribution with batch shape (B,) and event shape (D,). It has every
    verb of :class:`ebreg.predictive.Predictive`.

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
        # Along the leading axis it is several times faster, for training. Along the rows the last bits of one
        # row do not depend on how many others there are, for predictions.
        self.logits = logits.T.log_softmax(dim=0).T if logits.requires_grad else logits.log_softmax(dim=1)
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
        means, _ = self._component_moments()
        return (self.logits.exp()[:, :, None] * means).sum(dim=1)

    @property
    def variance(self) -> Tensor:
        """Shape (B, D)."""
        weights, centred, deviations = self._centred_moments()
        return (weights * (deviations**2 + centred**2)).sum(dim=1)

    @property
    def stddev(self) -> Tensor:
        """Shape (B, D)."""
        weights, centred, deviations = self._centred_moments()
        # In a unit of the row no square overflows or vanishes.
        unit = torch.maximum(deviations, centred.abs()).detach().amax(dim=1, keepdim=True)  # (B, 1, D)
        unit = unit.clamp_min(torch.finfo(unit.dtype).tiny)
        variance = (weights * ((deviations / unit) ** 2 + (centred / unit) ** 2)).sum(dim=1)
        return unit[:, 0] * gradients.sqrt(variance)

    @property
    def covariance(self) -> Tensor:
        """Shape (B, D, D)."""
        weights, centred, deviations = self._centred_moments()
        return torch.diag_embed((weights * deviations**2).sum(dim=1)) + (weights * centred).mT @ centred

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density: (..., B, D) -> (..., B)."""
        self._check_value(value)
        means, scales = (part.permute(2, 1, 0).contiguous() for part in (self.means, self.scales))
        log_prob = MixtureLogDensity.apply(
            value.reshape(math.prod(value.shape[:-2]), *value.shape[-2:]),
            self._log_weights.T.contiguous(),
            means,
            scales,
        )
        if not log_prob.requires_grad:
            # In training the smallest number is as good; outside of it, no density is -inf.
            log_prob = log_prob.masked_fill(log_prob <= torch.finfo(log_prob.dtype).min, -torch.inf)
        return log_prob.reshape(value.shape[:-1])

    def sample(
        self, sample_shape: int | Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Independent draws, shape sample_shape + (B, D); from the global state if no generator is given."""
        sample_shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        n, B = math.prod(sample_shape), self.batch_shape[0]
        with torch.no_grad():
            # 1 - rand lies in (0, 1]: 0 itself could fall to a component without weight.
            v = 1 - torch.rand(n, B, generator=generator, dtype=self.means.dtype, device=self.means.device)
            component, _ = components.choose(self.logits.exp(), v)
            return self._draw(component, generator).reshape(*sample_shape, B, self.n_targets)

    def from_uniform(self, u: Tensor) -> Tensor:
        """Turn points of the unit cube into draws; uniform points become draws of the mixture.

        The first coordinate chooses the component; its position in the component's interval gives the first
        target.

        Args:
            u: Shape (M, B, D), or (M, D) for the same points in every row.

        Returns:
            Shape (M, B, D), not differentiated.
        """
        u = components.points(u, self.batch_shape[0], self.n_targets)
        with torch.no_grad():
            u = u.to(self.means, copy=True)
            component, u[..., 0] = components.choose(self.logits.exp(), u[..., 0])
            return self._from_component(component, u)

    def place(self, y: Tensor, u: Tensor) -> Tensor:
        """The first coordinate of a point that :meth:`from_uniform` sends to y: its random inverse.

        Many points are sent to y, one for each component; the component is drawn from its responsibilities,
        so that targets drawn from the mixture get uniform positions.

        Args:
            y: Targets, shape (B, D).
            u: Uniform numbers that draw the component, shape (B,).

        Returns:
            Shape (B,), in [0, 1].
        """
        with torch.no_grad():
            z = (y[:, None] - self.means) / self.scales  # (B, K, D)
            log_joint = self._log_weights - (self.scales.log() + 0.5 * z * z).sum(dim=-1)
            share_below = self._share_below(y[:, None], z)[..., 0]
            return components.place(self.logits.exp(), log_joint, share_below, u)

    def cdf(self, value: Tensor) -> Tensor:
        """P(Y <= value in every target): (..., B, D) -> (..., B)."""
        # Rounding must not lift a probability above 1.
        return (self.logits.exp() * self._shares_below(value).prod(dim=-1)).sum(dim=-1).clamp(max=1)

    def levels(self, value: Tensor) -> Tensor:
        """P(Y_d <= value_d) of each target d by itself, to 0.01: (..., B, D) -> (..., B, D).

        Of logistic distributions in place of the Gaussians, at a third of the cost, and without bounds.
        """
        self._check_value(value)
        slopes = normal.LOGISTIC / self.scales
        shares = torch.sigmoid((value[..., None, :] - self.means) * slopes)
        return (self.logits.exp()[..., None] * shares).sum(dim=-2)

    def icdf(self, value: Tensor | float) -> Tensor:
        """Quantiles of a single target: levels (), (Q,) or (Q, B) in (0, 1) -> (B, 1) or (Q, B, 1)."""
        return quantiles(partial(at_levels, self), value, self.batch_shape[0], self.n_targets)

    def quantile(self, q: Tensor | float) -> Tensor:
        """Quantiles of each target by itself: levels () or (Q,) in (0, 1) -> (B, D) or (Q, B, D)."""
        exact = self.to(torch.float64)
        values = torch.cat([exact.marginal(d).icdf(q) for d in range(self.n_targets)], dim=-1)
        return values.to(self.means.dtype)

    def marginal(self, d: int) -> "GaussianMixture":
        """The mixture of target d alone."""
        return self._replaced(
            self.logits, self.means[..., [d]], self.scales[..., [d]], lambda bound: bound[[d]]
        )

    @torch.no_grad()
    def modes(self) -> Modes:
        """Local maxima with the mass of their hills; not differentiated."""
        if self.n_targets == 1:
            return mixture_curves.modes(self)
        return self._climb(self.from_uniform(sampling.sobol(128, self.n_targets)))

    @torch.no_grad()
    def highest_density_region(self, mass: float) -> Region:
        """The smallest region that holds ``mass``; not differentiated."""
        mass = checks.fraction("mass", mass)
        if self.n_targets == 1:
            regions = [curve.highest_density_region(mass) for curve in self.shapes()]
            intervals = tuple(row for region in regions for row in region.intervals or ())
            return Region(mass, torch.cat([r.log_threshold for r in regions]), self.log_prob, intervals)
        draws, log_prob = self._draws_of_regions()
        threshold = log_prob.sort(dim=0).values[int((1 - mass) * len(log_prob))]
        weights = torch.full_like(log_prob, 1 / len(log_prob))
        cut = level_sets.cut_of(log_prob, weights, draws[..., 0], threshold, mass)
        return Region(mass, threshold, self.log_prob, cut=cut)

    @torch.no_grad()
    def hpd_mass(self, y: Tensor) -> Tensor:
        """The mass of the highest-density region that y just enters: (..., B, D) -> (..., B)."""
        self._check_value(y)
        if self.n_targets == 1:
            curves, start, parts = self.shapes(), 0, []
            for curve in curves:
                parts.append(curve.hpd_mass(y[..., start : start + len(curve), :]))
                start += len(curve)
            return torch.cat(parts, dim=-1)
        draws, log_prob = self._draws_of_regions()
        weights = torch.full_like(log_prob, 1 / len(log_prob))
        return level_sets.hpd_mass_by_draws(log_prob, weights, draws[..., 0], self.log_prob(y), y)

    @torch.no_grad()
    def region_above(self, log_threshold: Tensor, mass: float) -> Region:
        """Where the log density of several targets is at least a threshold, (B,), said to hold ``mass``."""
        return Region(mass, log_threshold, self.log_prob)

    def expectation(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """Expectation of ``fn``, which maps (M, B, D) to (M, B, ...); returns (B, ...)."""
        if self.n_targets == 1:
            return mixture_curves.curve(self).expectation(fn)
        draws = self.from_uniform(sampling.sobol(4096, self.n_targets))
        values = fn(draws)
        if not gradients.tracked(self.logits, self.means, self.scales):
            return values.mean(dim=0)
        log_p = self.log_prob(draws)
        weights = gradients.weights_of_fixed_points(torch.full_like(log_p, 1 / len(draws)), log_p)
        return (weights.reshape(weights.shape + (1,) * (values.dim() - 2)) * values).sum(dim=0)

    def with_components(self, logits: Tensor, means: Tensor, scales: Tensor) -> "GaussianMixture":
        """A mixture of the same family and bounds with other components: (B, K), (B, K, D), (B, K, D)."""
        return self._replaced(logits, means, scales)

    def rescaled(self, shift: Tensor, scale: Tensor) -> "GaussianMixture":
        """The distribution of shift + scale * y; both have shape (D,), and their dtype is the result's."""
        return self._replaced(
            self.logits.to(scale),
            shift + scale * self.means,
            scale * self.scales,
            lambda bound: shift + scale * bound,
        )

    def double(self) -> "GaussianMixture":
        """The same mixture, not differentiated, in float64."""
        logits, means, scales = (part.detach().double() for part in (self.logits, self.means, self.scales))
        return self._replaced(logits, means, scales, torch.Tensor.double)

    def cdf_and_density(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """At a value of a single target in each row: (B,) -> two of shape (B,)."""
        y = y[:, None, None]
        z = (y - self.means) / self.scales  # (B, K, 1)
        density = self._log_weights.exp() * (normal.density(z) / self.scales)[..., 0]
        mass = self.logits.exp() * self._share_below(y, z)[..., 0]
        return mass.sum(dim=1), density.sum(dim=1)

    def at_nodes(self, centre: Tensor | None = None, unit: Tensor | None = None) -> NodePositions:
        """What is known of it at many values of its single target, in single precision.

        Args:
            centre: A value near the mass of each row, shape (B,); None: the mean.
            unit: A distance for each row, shape (B,), in which the density is measured; None: 1.
        """
        centre = self.mean[:, 0] if centre is None else centre
        unit = torch.ones_like(centre) if unit is None else unit
        means, scales = self.means[..., 0], self.scales[..., 0]
        return NodePositions(self.logits, self._log_weights, means, scales, centre, unit)

    def shapes(self) -> Iterator[LogLinear]:
        """The density of a single target between nodes, in single precision, a few rows at a time.

        Regions and :meth:`hpd_mass` are answered by these.
        """
        return mixture_curves.shapes(self)

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: Any) -> "GaussianMixture":
        """The mixtures of some of the rows: a number, a slice, row numbers or a mask."""
        # A copy: the weights are normalised, and doing it again would change their last bits.
        rows, taken = row_index(rows), copy.copy(self)
        taken.logits, taken.means, taken.scales = self.logits[rows], self.means[rows], self.scales[rows]
        taken._batch_shape = taken.means.shape[:1]
        return taken

    def joined(self, others: Sequence["GaussianMixture"]) -> "GaussianMixture":
        """These rows and, below them, those of others of the same family and bounds."""
        parts = [self, *others]
        return self._replaced(
            torch.cat([part.logits for part in parts]),
            torch.cat([part.means for part in parts]),
            torch.cat([part.scales for part in parts]),
        )

    def to(self, *args: Any) -> "GaussianMixture":
        """On another device, or in another dtype; arguments as those of ``Tensor.to``."""
        logits, means, scales = (part.to(*args) for part in (self.logits, self.means, self.scales))
        return self._replaced(logits, means, scales, lambda bound: bound.to(*args))

    # What a family with other components or bounds overrides.

    def _replaced(
        self,
        logits: Tensor,
        means: Tensor,
        scales: Tensor,
        bound: Callable[[Tensor], Tensor] = lambda bound: bound,
    ) -> "GaussianMixture":
        # The same family with other parameters; ``bound`` maps the bounds of the targets, (D,).
        return GaussianMixture(logits, means, scales, validate_args=False)

    @property
    def _log_weights(self) -> Tensor:
        # (B, K), of the densities N(y; means, scales) in the density of the mixture.
        return self.logits

    def _component_moments(self) -> tuple[Tensor, Tensor]:
        # Means and standard deviations, (B, K, D).
        return self.means, self.scales

    def _share_below(self, value: Tensor, z: Tensor) -> Tensor:
        # Mass of each component below values (..., B, 1, D), which are z scales from its mean (..., B, K, D).
        return normal.cdf(z)

    def _shares_below(self, value: Tensor) -> Tensor:
        # Mass of each component below values: (..., B, D) -> (..., B, K, D).
        self._check_value(value)
        value = value[..., None, :]
        return self._share_below(value, (value - self.means) / self.scales)

    def component_icdf(self, q: Tensor) -> Tensor:
        """Quantiles of each component and target by itself: (..., B, 1, 1) -> (..., B, K, D)."""
        return self.means + self.scales * torch.special.ndtri(q)

    def _from_component(self, component: Tensor, u: Tensor) -> Tensor:
        # Levels u, (M, B, D), of the chosen components, (M, B) -> (M, B, D).
        means, scales = (components.pick(table, component) for table in (self.means, self.scales))
        return torch.addcmul(means, scales, normal.icdf(u))

    def _draw(self, component: Tensor, generator: torch.Generator | None) -> Tensor:
        # A draw from each chosen component: (M, B) -> (M, B, D). Faster than levels, and finer in the tails.
        means, scales = (components.pick(table, component) for table in (self.means, self.scales))
        z = torch.randn(means.shape, generator=generator, dtype=means.dtype, device=means.device)
        return torch.addcmul(means, scales, z)

    def target_bounds(self) -> tuple[Tensor, Tensor]:
        """Of the targets, (D,) each; infinite where there is none."""
        infinity = self.means.new_full((self.n_targets,), torch.inf)
        return -infinity, infinity

    def _climb(self, starts: Tensor) -> Modes:
        # The modes above starting points, (S, B, D).
        return modes_by_ascent(self.log_prob, starts)

    def _check_value(self, value: Tensor) -> None:
        checks.shape("value", value, (*["..."] * (value.dim() - 2), *self.batch_shape, *self.event_shape))

    def _centred_moments(self) -> tuple[Tensor, Tensor, Tensor]:
        # Weights, (B, K, 1); means of the components less that of the mixture, and deviations, (B, K, D).
        weights = self.logits.exp()[:, :, None]
        means, deviations = self._component_moments()
        return weights, means - (weights * means).sum(dim=1, keepdim=True), deviations

    def _draws_of_regions(self) -> tuple[Tensor, Tensor]:
        # Draws of several targets, (M, B, D), and their log densities, (M, B).
        draws = self.from_uniform(sampling.sobol(4096, self.n_targets))
        return draws, self.log_prob(draws)
