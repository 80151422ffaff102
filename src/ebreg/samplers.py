"""How a method draws from its proposal in a step: independently, or one draw from each stratum."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from ebreg import checks, uniforms
from ebreg.proposals import draw


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
        return uniforms.independent(self.n_draws, B, D, generator)

    def __call__(self, q: Distribution, y: Tensor, u: Tensor) -> Draws:
        """Draw from q for targets y, shape (B, D)."""
        return Draws(draw(q, u))


@dataclass(frozen=True)
class Stratified:
    """One draw from each of M + 1 equal parts of the mixture: less variance, so fewer draws do.

    Log Z uses all of them. NCE must not know the target by its place, so the target takes the stratum it
    would have been drawn from and stands in for that draw; then target and noise are exchangeable.
    """

    n_draws: int

    def __post_init__(self) -> None:
        checks.at_least("n_draws", self.n_draws, 1)

    def points(self, B: int, D: int, generator: torch.Generator | None = None) -> Tensor:
        """Shape (M + 2, B, D): the strata, and one more point that helps to place the target."""
        strata = uniforms.stratified(self.n_draws + 1, B, D, generator)
        return torch.cat([strata, uniforms.independent(1, B, D, generator)])

    def __call__(self, q: Distribution, y: Tensor, u: Tensor) -> Draws:
        """Draw from q for targets y, shape (B, D)."""
        strata, place = u[:-1], u[-1, :, 0]
        if not hasattr(q, "place"):  # nor can NCE know the strata: back to M independent points
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
