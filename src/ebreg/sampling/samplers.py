"""Samplers: the draws of a training step, independent or stratified."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from ebreg._utils import checks
from ebreg.sampling.draws import draw, place
from ebreg.sampling.points import independent, stratified


@dataclass(frozen=True)
class Draws:
    """Draws of q for a batch.

    Attributes:
        y: Shape (M, B, D).
        taken: The draw whose stratum the target took, shape (B,); None where draws are independent.
    """

    y: Tensor
    taken: Tensor | None = None

    def with_target(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """All that takes part in NCE, and where the target is among it.

        The target is in the place of the draw whose stratum it took, and before draws that are independent.

        Args:
            y: Targets, shape (B, D).

        Returns:
            Values (N, B, D), and the place of the target among them, (B,).
        """
        if self.taken is None:
            return torch.cat([y[None], self.y]), y.new_zeros(len(y), dtype=torch.long)
        places = self.taken[None, :, None].expand(1, *y.shape)
        return self.y.scatter(0, places, y[None]), self.taken

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
        return Draws(draw(q, u).to(y.dtype))


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
        strata = u[:-1]
        position = place(q, y, u[-1, :, 0].to(y))
        if position is None:  # NCE cannot know the strata either: back to M independent points
            points = strata[1:].clone()
            points[..., 0] = (points[..., 0] * len(strata)) % 1
            return Draws(draw(q, points.clamp(2.0**-25, 1 - 2.0**-24)).to(y.dtype))
        taken = (position * len(strata)).long().clamp(0, len(strata) - 1)
        return Draws(draw(q, strata).to(y.dtype), taken)


Sampler = Independent | Stratified
SAMPLERS: dict[str, type[Independent] | type[Stratified]] = {
    "independent": Independent,
    "stratified": Stratified,
}


def sampler(draws: str, n_draws: int) -> Sampler:
    """The sampler of that name."""
    checks.one_of("draws", draws, SAMPLERS)
    return SAMPLERS[draws](n_draws)
