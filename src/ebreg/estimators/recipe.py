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
class Pace:
    """How fast a training goes, and for how long.

    Attributes:
        learning_rate: Highest learning rate of Adam.
        n_steps: Steps after which it ends at the latest, for a small table and for a large one.
        steps_per_row: Steps for each row, between those of a small table and of a large one.
        schedule: Of the learning rate of several members.
        patience: Of early stopping with several members, as a share of the epochs.
        patience_growth: See :class:`ebreg.training.TrainingConfig`; with several members.
    """

    learning_rate: float
    n_steps: tuple[int, int]
    steps_per_row: float = 1.3
    schedule: str = "late-decay"
    patience: float = 1 / 12
    patience_growth: float = 0.5

    def most_steps(self, n_rows: int) -> int:
        """Steps after which training ends at the latest."""
        small, large = self.n_steps
        return min(large, max(small, round(self.steps_per_row * n_rows)))


def _short(n_steps: tuple[int, int], steps_per_row: float) -> Pace:
    # A high rate that rises and falls to 0 in few steps: most members learn until the end.
    return Pace(1e-2, n_steps, steps_per_row, "one-cycle", patience=0.3, patience_growth=0.0)


@dataclass(frozen=True)
class Recipe:
    """Settings of a fit.

    Attributes:
        n_members: E.
        dropout: Rates, given to the members in turn.
        n_draws: Draws for each row and step; None: as many as the method needs.
        pace: Of the training.
        refit: Whether to fine-tune on all rows at the end.
        fine_tuning: How.
        n_correction_steps: Steps of the training of a correction at least.
        n_components: K.
        pilot: The pace of a short training before, which is enough for most tables; None: there is none. See
            :mod:`ebreg.estimators.pilot`.
    """

    n_members: int
    dropout: tuple[float, ...]
    n_draws: int | None
    pace: Pace
    refit: bool
    fine_tuning: FineTuning = FineTuning()
    n_correction_steps: int = 500
    n_components: int = 5  # of each member: their mean has several times as many
    pilot: Pace | None = None

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
SINGLE = Recipe(1, (0.0,), None, Pace(2e-3, (4500, 4500)), refit=True, n_components=8)
# Several members, trained faster: their mean smooths what a high rate leaves rough.
_GENTLE, _RATES = FineTuning(epochs=0.1, rate=0.3), (0.0, 0.1)
PRESETS: dict[str, Recipe] = {
    "fast": Recipe(4, _RATES, 2, _short((600, 2400), 0.3), True, _GENTLE, 150),
    "default": Recipe(
        8, _RATES, 4, Pace(5e-3, (6000, 12_000)), True, _GENTLE, pilot=_short((1500, 4800), 0.5)
    ),
    "best": Recipe(
        16, _RATES, 8, Pace(5e-3, (12_000, 36_000)), True, _GENTLE, pilot=_short((2000, 7200), 0.75)
    ),
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
        given: Fields of a recipe, and ``learning_rate``.
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
    learning_rate = given.pop("learning_rate", None)
    if learning_rate is not None:
        recipe = replace(recipe, pace=replace(recipe.pace, learning_rate=learning_rate), pilot=None)
    return replace(recipe, **{name: value for name, value in given.items() if value is not None})
