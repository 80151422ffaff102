"""TruncatedMixture: the Gaussian mixture for targets that lie in a box."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from ebreg._utils import checks, gradients
from ebreg._utils.row_index import row_index
from ebreg.distributions import components, normal
from ebreg.distributions.ascent import modes_by_ascent
from ebreg.distributions.gauss_legendre import gauss_legendre
from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.distributions.regions import Modes

# A mean further out than this, in scales, changes little but the digits that are lost.
_REACH = 6.0
# Stands for an infinite bound, in scales: no mass lies beyond that a float64 could hold.
_FAR = 40.0
# Integrates the density of a Gaussian exactly where the box is less than one scale wide.
_ROOTS, _WEIGHTS = gauss_legendre(10)


class TruncatedMixture(GaussianMixture):
    r"""Mixture of K diagonal Gaussians for each of B rows, each truncated to a box and normalised.

    .. math::
        q(y) = \sum_k \pi_k \prod_d \frac{N(y_d; \mu_{kd}, \sigma_{kd}^2)}
        {\Phi((b_d - \mu_{kd}) / \sigma_{kd}) - \Phi((a_d - \mu_{kd}) / \sigma_{kd})},
        \quad a_d \le y_d \le b_d

    and zero elsewhere; the bounds belong to the box. The mean of a component may lie outside, by 6 scales at
    most: one further out counts as one 6 scales from the box. Without that rule the mass of a component could
    be too small for its logarithm to have digits, with nothing gained: so far out, the density in the box is
    close to an exponential, and a smaller scale makes it as steep as any.

    The box is the same in every row. It has every verb of a :class:`GaussianMixture`, and with infinite
    bounds both are the same.

    Args:
        logits: Unnormalised log weights, shape (B, K).
        means: Of the Gaussians before truncation, shape (B, K, D).
        scales: Their standard deviations, above 0, shape (B, K, D).
        low: Lower bounds, or -inf, shape (D,). Kept in their own precision.
        high: Upper bounds, or inf, shape (D,).
        validate_args: False skips the checks of values, for use inside a training step.
    """

    arg_constraints = {  # noqa: RUF012 (torch's convention)
        **GaussianMixture.arg_constraints,
        "low": constraints.real_vector,
        "high": constraints.real_vector,
    }

    def __init__(
        self,
        logits: Tensor,
        means: Tensor,
        scales: Tensor,
        low: Tensor,
        high: Tensor,
        validate_args: bool | None = None,
    ):
        super().__init__(logits, means, scales, validate_args=validate_args)
        checks.shape("low", low, (self.n_targets,))
        checks.shape("high", high, (self.n_targets,))
        if validate_args is not False and not (low < high).all():  # NaN included
            raise ValueError(
                f"low must lie below high in every target, got {low.tolist()} and {high.tolist()}"
            )
        self.low, self.high = low.to(means.device), high.to(means.device)
        low, high = self._bounds_in(means.dtype)
        self.means = means.clamp(low - _REACH * scales, high + _REACH * scales)
        self._cut = _Cut.of(self.means, scales, low, high)
        self._log_mass = self._cut.log_mass()  # (B, K, D)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        """The box."""
        return constraints.independent(constraints.interval(self.low, self.high), 1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density, -inf outside of the box: (..., B, D) -> (..., B)."""
        self._check_value(value)
        low, high = self._bounds_in(value.dtype)
        outside = ((value < low) | (value > high)).any(dim=-1)
        return super().log_prob(value.clamp(low, high)).masked_fill(outside, -torch.inf)

    def between(self, low: Tensor, high: Tensor) -> "TruncatedMixture":
        """The same components, truncated to other bounds, each of shape (D,)."""
        return TruncatedMixture(self.logits, self.means, self.scales, low, high, validate_args=False)

    def __getitem__(self, rows: Any) -> "TruncatedMixture":
        """See :meth:`GaussianMixture.__getitem__`."""
        taken, rows = super().__getitem__(rows), row_index(rows)
        assert isinstance(taken, TruncatedMixture)
        taken._cut, taken._log_mass = self._cut[rows], self._log_mass[rows]
        return taken

    def _bounds_in(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        # A value on the border is still there after rounding, if both are rounded to one precision.
        return self.low.to(dtype), self.high.to(dtype)

    def _replaced(
        self,
        logits: Tensor,
        means: Tensor,
        scales: Tensor,
        bound: Callable[[Tensor], Tensor] = lambda bound: bound,
    ) -> GaussianMixture:
        return TruncatedMixture(logits, means, scales, bound(self.low), bound(self.high), validate_args=False)

    @property
    def _log_weights(self) -> Tensor:
        return self.logits - self._log_mass.sum(dim=-1)

    def _component_moments(self) -> tuple[Tensor, Tensor]:
        # In float64: variances of what is left of a tail are small differences.
        low, high = self._bounds_in(torch.float64)
        means, scales = self.means.double(), self.scales.double()
        moments = _Cut.of(means, scales, low, high).moments(means, scales, low)
        return moments[0].to(self.means.dtype), moments[1].to(self.means.dtype)

    def _share_below(self, value: Tensor, z: Tensor) -> Tensor:
        low, high = self._bounds_in(value.dtype)
        # Only finite boxes need a value's place in them; infinity would reach the gradients.
        infinite = low.isinf() | high.isinf()
        place = (value - low.masked_fill(infinite, 0)) / (high - low).masked_fill(infinite, 1)
        return self._cut.share_below(z, place)

    def component_icdf(self, q: Tensor) -> Tensor:
        """See :meth:`GaussianMixture.component_icdf`."""
        return self._at_level(q, *self._level_tables())

    def _from_component(self, component: Tensor, u: Tensor) -> Tensor:
        return self._at_level(
            normal.inner(u), *(components.pick(table, component) for table in self._level_tables())
        )

    def _draw(self, component: Tensor, generator: torch.Generator | None) -> Tensor:
        shape, like = (*component.shape, self.n_targets), self.means
        u = torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device)
        return self._from_component(component, u)

    def _level_tables(self) -> tuple[Tensor, ...]:
        # What _at_level has to know of each component, (B, K, D).
        cut = self._cut
        below, above = normal.cdf(cut.start), normal.cdf(-cut.end)
        return self.means, self.scales, below, above, cut.mass, cut.tilt, cut.width

    def _at_level(
        self,
        u: Tensor,
        means: Tensor,
        scales: Tensor,
        below: Tensor,
        above: Tensor,
        mass: Tensor,
        tilt: Tensor,
        width: Tensor,
    ) -> Tensor:
        # The value below which a component has the share u of its mass; shapes that broadcast.
        low, high = self._bounds_in(means.dtype)
        # The mass of the whole Gaussian to the left, and to the right: the smaller has more digits.
        left, right = below + u * mass, above + (1 - u) * mass
        z = torch.special.ndtri(torch.minimum(left, right))
        curved = means + scales * torch.where(left < right, z, -z)
        # The inverse of the series in _Cut.share_below.
        t = u - u * (1 - u) * (tilt / 2 - (tilt**2 / 6 + width**2 / 12) * (1 - 2 * u))
        return torch.where(_is_flat(width), low + scales * width * t, curved).clamp(low, high)

    def target_bounds(self) -> tuple[Tensor, Tensor]:
        """Of the targets, (D,) each."""
        return self._bounds_in(self.means.dtype)

    def _climb(self, starts: Tensor) -> Modes:
        # Beyond a bound the density continues as at the bound and slowly falls: steps along it stay long,
        # where a wall would stop them.
        low, high = self._bounds_in(starts.dtype)
        spread = self.stddev.detach()

        def hill(y: Tensor) -> Tensor:
            inside = y.clamp(low, high)
            return self.log_prob(inside) - 0.5 * ((y - inside) / spread).square().sum(dim=-1)

        modes = modes_by_ascent(hill, starts)
        return Modes(tuple(replace(row, locations=row.locations.clamp(low, high)) for row in modes))


@dataclass(frozen=True)
class _Cut:
    """The bounds of a box in scales of Gaussians from their means; any shape.

    Attributes:
        start: The lower bound.
        end: The upper bound.
        width: From one to the other; not their difference, which has no digits where it is small.
        mass: Mass of the Gaussian in the box; without digits where the box is narrow.
    """

    start: Tensor
    end: Tensor
    width: Tensor
    mass: Tensor

    @classmethod
    def of(cls, means: Tensor, scales: Tensor, low: Tensor, high: Tensor) -> "_Cut":
        """The cut of Gaussians by a box; shapes that broadcast."""
        # Measured from the point of the box that is nearest to the mean, no distance is a difference of large
        # numbers. Infinite ones are replaced before they are divided: their gradients would not be numbers.
        nearest = means.clamp(low, high)
        left, right = (
            torch.minimum(distance, _FAR * scales) / scales for distance in (nearest - low, high - nearest)
        )
        z = (nearest - means) / scales
        start, end = z - left, z + right
        return cls(start, end, left + right, normal.mass_between(start, end))

    def __getitem__(self, rows: Any) -> "_Cut":
        return _Cut(self.start[rows], self.end[rows], self.width[rows], self.mass[rows])

    @property
    def tilt(self) -> Tensor:
        """How far the log density falls from the lower bound to the upper one."""
        return 0.5 * (self.start + self.end) * self.width

    def log_mass(self) -> Tensor:
        """Log of the mass, with all its digits."""
        narrow = self.width < 1
        _, log_density = self._quadrature(narrow)
        log_narrow = torch.where(narrow, self.width, 1.0).log() + log_density.logsumexp(dim=0)
        return torch.where(narrow, log_narrow, torch.where(narrow, 1.0, self.mass).log())

    def moments(self, means: Tensor, scales: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the Gaussians after the cut."""
        narrow = self.width < 1
        t, log_density = self._quadrature(narrow)
        weights = log_density.softmax(dim=0)
        place = (weights * t).sum(dim=0)
        spread = (weights * (t - place) ** 2).sum(dim=0) * self.width**2

        mass = torch.where(narrow, 1.0, self.mass)
        at_start, at_end = normal.density(self.start) / mass, normal.density(self.end) / mass
        shift = at_start - at_end
        shrunk = 1 + self.start * at_start - self.end * at_end - shift**2
        return (
            torch.where(narrow, low + scales * self.width * place, means + scales * shift),
            gradients.sqrt(torch.where(narrow, spread, shrunk).clamp_min(0)) * scales,
        )

    def share_below(self, z: Tensor, t: Tensor) -> Tensor:
        """Share of the mass in the box that lies below a point; shapes that broadcast.

        Args:
            z: The point in scales from the mean.
            t: The point as a share of the box.
        """
        flat = _is_flat(self.width)
        z = z.clamp(self.start, self.end)
        curved = normal.mass_between(self.start, z) / torch.where(flat, 1.0, self.mass)
        # Where z has too few digits the log density is nearly level, and a series in its fall and in its
        # curvature does. Elsewhere the series could overflow, and reach the gradients.
        t = torch.where(flat, t.clamp(0, 1), 0.5)
        tilt, width = torch.where(flat, self.tilt, 0.0), torch.where(flat, self.width, 0.0)
        level = t + t * (1 - t) * (tilt / 2 + (tilt**2 - width**2) / 12 * (1 - 2 * t))
        return torch.where(flat, level, curved).clamp(0, 1)

    def _quadrature(self, narrow: Tensor) -> tuple[Tensor, Tensor]:
        # Places in the narrow boxes and the log of weight times density there, (10, ...). The other boxes
        # get harmless numbers.
        roots, weights = (part.to(self.start).reshape(-1, *[1] * narrow.dim()) for part in (_ROOTS, _WEIGHTS))
        z = torch.where(narrow, self.start, 0.0) + torch.where(narrow, self.width, 1.0) * roots
        return roots, weights.log() - 0.5 * z * z - normal.LOG_SQRT_2PI


def _is_flat(width: Tensor) -> Tensor:
    # Below this width the series is better than differences of distribution functions: their errors are of
    # the order of eps / width, its errors of the order of width cubed.
    return width < 4 * torch.finfo(width.dtype).eps ** (1 / 3)
