"""Sampling: points of the unit cube, draws from any proposal, and the samplers of a training step.

Randomness is made apart from the distributions that use it: the same points serve every row, every
number of processes and every proposal. All points lie inside the cube: a point on its border would be sent to
infinity, or into a component that has next to no weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, TransformedDistribution
from torch.quasirandom import SobolEngine

from ebreg._utils import checks


def independent(n: int, B: int, D: int, generator: torch.Generator | None = None) -> Tensor:
    """Independent points, shape (n, B, D)."""
    # torch.rand gives multiples of 2^-24; its zero stands for everything below.
    return torch.rand(n, B, D, generator=generator, device=_device(generator)).clamp_min_(2.0**-25)


def stratified(n: int, B: int, D: int, generator: torch.Generator | None = None) -> Tensor:
    """Points whose first coordinate takes each of n equal intervals once, shape (n, B, D).

    Each interval's point is uniform in it and independent of the others, so averages over the n points
    are unbiased. In a mixture the first coordinate chooses the component: component k gets n pi_k draws
    on average, and differs from that by less than one for each of its two borders that cuts an interval.
    """
    u = independent(n, B, D, generator)
    u[..., 0] = (u[..., 0] + torch.arange(n, device=u.device)[:, None]) / n
    return u.clamp_max_(1 - 2.0**-24)


def sobol(n: int, D: int, seed: int = 0) -> Tensor:
    """A scrambled Sobol sequence, (n, D), float64; a longer one of the same seed continues a shorter one."""
    return _sobol(n, D, seed).clone()


@lru_cache(maxsize=32)
def _sobol(n: int, D: int, seed: int) -> Tensor:
    points = SobolEngine(D, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    return points.clamp(2.0**-32, 1 - 2.0**-32)  # moves a point by less than the sequence's resolution


def _device(generator: torch.Generator | None) -> torch.device | None:
    return None if generator is None else generator.device


def draw(proposal: Distribution, u: Tensor) -> Tensor:
    """Draws that depend on nothing but the proposal and the points u; not differentiated.

    A proposal with ``from_uniform`` turns the points into draws. From any other one the draws are
    independent, taken under a random state that is seeded by the points and leaves the global one as it was.

    Args:
        proposal: Batch shape (B,), event shape (D,).
        u: Points in the unit cube, shape (M, B, D).

    Returns:
        Shape (M, B, D).
    """
    if hasattr(proposal, "from_uniform"):
        return proposal.from_uniform(u)
    devices = [u.device] if u.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.random.manual_seed(int(u.flatten()[0].item() * 2**53))
        return proposal.sample(u.shape[:1])


class RowByRow:
    """A proposal whose draws for a row do not depend on the other rows.

    A torch Distribution samples a batch as a whole; here every row is built and sampled by itself.

    Args:
        head: Turns features (B, H) into a Distribution.
        h: Features, shape (B, H).
        shift: Of the units of y, shape (D,); None: 0.
        scale: Of the units of y, shape (D,); None: 1.
    """

    def __init__(
        self,
        head: Callable[[Tensor], Distribution],
        h: Tensor,
        shift: Tensor | None = None,
        scale: Tensor | None = None,
    ):
        self._head, self._h, self._shift, self._scale = head, h, shift, scale

    def __len__(self) -> int:
        return len(self._h)

    def __getitem__(self, rows: Any) -> "RowByRow":
        """The proposals of some of the rows: a slice, row numbers or a mask."""
        return RowByRow(self._head, self._h[rows], self._shift, self._scale)

    def joined(self, others: Sequence["RowByRow"]) -> "RowByRow":
        """These rows and, below them, those of others with the same head and units."""
        h = torch.cat([self._h, *(other._h for other in others)])
        return RowByRow(self._head, h, self._shift, self._scale)

    def rescaled(self, shift: Tensor, scale: Tensor) -> "RowByRow":
        """The distribution of shift + scale * y, for y in the units of the head; both have shape (D,)."""
        return RowByRow(self._head, self._h, shift, scale)

    @cached_property
    def distribution(self) -> Distribution:
        """All rows as one torch Distribution."""
        return self._of(self._h)

    def log_prob(self, y: Tensor) -> Tensor:
        """(M, B, D) -> (M, B)."""
        return self.distribution.log_prob(y)

    def from_uniform(self, u: Tensor) -> Tensor:
        """(M, B, D) -> (M, B, D)."""
        u = u.to(self._h.device)
        rows = [draw(self._of(self._h[i : i + 1]), u[:, i : i + 1]) for i in range(len(self))]
        return torch.cat(rows, dim=1) if rows else u.to(self._h)

    def _of(self, h: Tensor) -> Distribution:
        q = self._head(h)
        if self._shift is None or self._scale is None:
            return q
        units = AffineTransform(self._shift, self._scale, event_dim=1)
        return TransformedDistribution(q, units, validate_args=False)


@dataclass(frozen=True)
class Draws:
    """Draws of q for a batch.

    Attributes:
        y: Shape (M, B, D).
        taken: The draw whose stratum the target took, shape (B,); None where draws are independent.
    """

    y: Tensor
    taken: Tensor | None = None

    def as_noise(self, f: Tensor) -> Tensor:
        """Energies (M, B) of the draws that NCE may use: the target takes part in place of one of them."""
        return f if self.taken is None else f.scatter(0, self.taken[None], -torch.inf)


@dataclass(frozen=True)
class Independent:
    """M independent draws, as in the paper."""

    n_draws: int

    def __post_init__(self) -> None:
        checks.at_least("n_draws", self.n_draws, 1)

    def points(self, B: int, D: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (M, B, D)."""
        return independent(self.n_draws, B, D, generator)

    def __call__(self, q: Distribution, y: Tensor, u: Tensor) -> Draws:
        """Draw from q for targets y, shape (B, D)."""
        return Draws(draw(q, u))


@dataclass(frozen=True)
class Stratified:
    """One draw from each of M + 1 equal strata of the mixture: less variance, so fewer draws suffice.

    Log Z uses all of them. NCE must not recognise the target by its stratum, so the target takes the stratum
    that it would have been drawn from and replaces that draw; then target and noise are exchangeable.
    """

    n_draws: int

    def __post_init__(self) -> None:
        checks.at_least("n_draws", self.n_draws, 1)

    def points(self, B: int, D: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (M + 2, B, D): the strata, and one more point that helps to place the target."""
        strata = stratified(self.n_draws + 1, B, D, generator)
        return torch.cat([strata, independent(1, B, D, generator)])

    def __call__(self, q: Distribution, y: Tensor, u: Tensor) -> Draws:
        """Draw from q for targets y, shape (B, D)."""
        strata, place = u[:-1], u[-1, :, 0]
        if not hasattr(q, "place"):  # NCE cannot know the strata either: back to M independent points
            return Draws(draw(q, (strata[1:] * len(strata)) % 1))
        draws = draw(q, strata)
        taken = (q.place(y, place.to(y)) * len(strata)).long().clamp(0, len(strata) - 1)
        return Draws(draws, taken)


SAMPLERS: dict[str, type[Independent] | type[Stratified]] = {
    "independent": Independent,
    "stratified": Stratified,
}


def sampler(draws: str, n_draws: int) -> Independent | Stratified:
    """The sampler of that name."""
    checks.one_of("draws", draws, SAMPLERS)
    return SAMPLERS[draws](n_draws)
