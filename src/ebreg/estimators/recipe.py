"""Recipe: the settings of a fit that the user leaves to the library."""

from dataclasses import dataclass, replace
from typing import Any

from ebreg._utils import checks
from ebreg.methods import MixtureNLL, ResidualNCE
from ebreg.networks import member_rates


@dataclass(frozen=True)
class FineTuning:
    """A training on all rows at the end, those for validation included.

    Attributes:
        epochs: As a share of the epochs behind the weights that it starts from.
        rate: Highest learning rate, as a share of that before.
    """

    epochs: float = 1 / 6
    rate: float = 1.0

    def n_epochs(self, before: int) -> int:
        """Number of epochs, from that of the epochs behind the weights."""
        return max(1, round(self.epochs * before))


@dataclass(frozen=True)
class Recipe:
    """Settings of a fit.

    Attributes:
        n_members: E.
        dropout: Rates, given to the members in turn.
        n_draws: Draws for each row and step; None: as many as the method needs.
        learning_rate: Highest learning rate of Adam.
        n_steps: Steps of the training, of its first cycle if there may be two, for a small table and for a
            large one.
        refit: Whether to fine-tune on all rows at the end.
        fine_tuning: How.
        steps_per_row: Steps for each row, between those of a small table and of a large one.
        n_correction_steps: Steps of the training of a correction at least.
        second_cycle: Epochs of a second cycle for members that still gain at the end of the first, as a
            multiple of those of the first; 0: there is only one.
    """

    n_members: int
    dropout: tuple[float, ...]
    n_draws: int | None
    learning_rate: float
    n_steps: tuple[int, int]
    refit: bool
    fine_tuning: FineTuning = FineTuning()
    steps_per_row: float = 1.3
    n_correction_steps: int = 500
    second_cycle: int = 0

    def n_steps_for(self, n_rows: int) -> int:
        """Steps of the training of some rows."""
        small, large = self.n_steps
        return min(large, max(small, round(self.steps_per_row * n_rows)))

    @property
    def n_settings(self) -> int:
        """Members one after the other that differ in their settings: all rates of dropout, where they fit."""
        n_rates = len(self.dropout)
        return n_rates if n_rates < self.n_members and self.n_members % n_rates == 0 else 1

    @property
    def member_dropout(self) -> tuple[float, ...]:
        """The rate of each member; none without dropout."""
        if not any(self.dropout):
            return ()
        return tuple(self.dropout[i % len(self.dropout)] for i in range(self.n_members))


# One member, trained as version 0.1 did: for the paper's methods and for networks of the user's own.
SINGLE = Recipe(1, (0.0,), None, 2e-3, (4500, 4500), refit=True)
# Several members, trained faster: their mean smooths what a high rate leaves rough.
_GENTLE = FineTuning(epochs=0.1, rate=0.3)
PRESETS: dict[str, Recipe] = {
    "fast": Recipe(4, (0.0, 0.1), 2, 1e-2, (600, 2400), True, _GENTLE, 0.3, 150),
    "default": Recipe(8, (0.0, 0.1), 4, 1e-2, (1500, 4800), True, _GENTLE, 0.5, 500, second_cycle=4),
    "best": Recipe(16, (0.0, 0.1), 8, 1e-2, (2000, 7200), True, _GENTLE, 0.75, 1000, second_cycle=4),
}
_DEFAULT = "default"
# Methods that are trained with several members unless the user says otherwise.
_WITH_MEMBERS = (MixtureNLL.name, ResidualNCE.name)


def find_recipe(method: str, preset: str, has_own_networks: bool, **given: Any) -> Recipe:
    """The settings of a fit; those that are given and not None take the place of the preset's.

    Args:
        method: Name of the training method.
        preset: A name in ``PRESETS``.
        has_own_networks: Whether the user brought a network.
        given: Fields of a recipe.
    """
    checks.one_of("preset", preset, PRESETS)
    many = PRESETS[preset] if method in _WITH_MEMBERS and not has_own_networks else SINGLE
    n_members = given.pop("n_members", None)
    n_members = many.n_members if n_members is None else checks.at_least("n_members", n_members, 1)
    if n_members == 1 and preset != _DEFAULT:
        raise ValueError(
            f"preset={preset!r} is for fits with several members, and this one has a single member, because "
            "of its method, its networks or n_members=1: leave preset out, and set max_iter or max_seconds "
            "to change the time that it takes"
        )
    recipe = replace(PRESETS[preset] if n_members > 1 else SINGLE, n_members=n_members)
    if method not in _WITH_MEMBERS:
        recipe = replace(recipe, n_draws=None)
    dropout = given.pop("dropout", None)
    if dropout is not None:
        recipe = replace(recipe, dropout=member_rates(dropout, n_members))
    elif n_members == 1:
        recipe = replace(recipe, dropout=(0.0,))
    return replace(recipe, **{name: value for name, value in given.items() if value is not None})
