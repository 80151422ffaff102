"""One run of Table 1: a setting on one of the two 1-D data sets."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from ebreg.experiments.experiment import Experiment
from ebreg.experiments.toy.evaluation import evaluate
from ebreg.experiments.toy.recipes import RECIPES, Recipe
from ebreg.experiments.toy.source import ToySource
from ebreg.methods import Method
from ebreg.models import Model
from ebreg.training.config import TrainingConfig


@dataclass(frozen=True)
class ToyExperiment(Experiment):
    """One run of Table 1.

    Attributes:
        epochs: Instead of the recipe's, for a quick test.
    """

    source: ToySource
    epochs: int | None = None

    @property
    def recipe(self) -> Recipe:
        """The recipe of the setting."""
        return RECIPES[self.setting.recipe]

    @property
    def config(self) -> TrainingConfig:
        """See :class:`Experiment`."""
        config = replace(self.recipe.configs[self.source.name], seed=self.seed)
        return config if self.epochs is None else replace(config, epochs=self.epochs)

    @property
    def settings(self) -> dict[str, Any]:
        """See :class:`Experiment`."""
        recipe = self.recipe
        return {
            "dataset": self.source.name,
            "points": self.source.fingerprint,
            **self.setting.as_json(),
            "recipe": self.setting.recipe,
            "standardizes": recipe.standardizes,
            "network": recipe.network,
            "network_settings": dict(recipe.network_settings),
            "n_draws": recipe.n_draws[self.source.name],
            "draws": recipe.draws,
            **asdict(self.config),
        }

    def data(self) -> tuple[tuple[Tensor, Tensor], None]:
        """See :class:`Experiment`."""
        task = self.source.load()
        return (task.x_train, task.y_train), None

    def build(self) -> Method:
        """See :class:`Experiment`."""
        return self.recipe.build(self.setting, self.source.load())

    def evaluate(self, model: Model) -> dict[str, float]:
        """See :class:`Experiment`."""
        return evaluate(self.source.load(), model)
