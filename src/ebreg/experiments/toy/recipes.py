"""Recipes of Table 1: networks, units, draws and training loop for each data set."""

from collections.abc import Mapping
from dataclasses import dataclass

from ebreg.datasets import TASKS, ToyTask
from ebreg.experiments.settings import Setting
from ebreg.methods import Method
from ebreg.networks import NETWORKS
from ebreg.training.config import PAPER, TrainingConfig
from ebreg.units import Units


@dataclass(frozen=True)
class Recipe:
    """How a setting is trained.

    Attributes:
        configs: Settings of the training loop on each data set, but for the seed.
        network: A name in ``ebreg.networks.NETWORKS``.
        network_settings: Its arguments, but for the number of components.
        standardizes: Whether the networks see standardised data.
        n_draws: M, on each data set.
        draws: A name in ``ebreg.sampling.SAMPLERS``, for the methods that draw from q.
    """

    configs: Mapping[str, TrainingConfig]
    network: str
    network_settings: Mapping[str, int]
    standardizes: bool
    n_draws: Mapping[str, int]
    draws: str

    def build(self, setting: Setting, task: ToyTask) -> Method:
        """Build the method of a setting, with weights from torch's random state."""
        return setting.build(
            lambda: NETWORKS[self.network](n_components=setting.n_components, **self.network_settings),
            Units.of(task.x_train, task.y_train) if self.standardizes else None,
            self.n_draws[task.name],
            self.draws,
        )


RECIPES: dict[str, Recipe] = {
    # Ten-wide networks on raw data, Adam at 1e-3 for 75 epochs of batches of 32, 1,024 independent draws.
    "paper": Recipe(
        dict.fromkeys(TASKS, PAPER),
        "paper-1d",
        {},
        standardizes=False,
        n_draws=dict.fromkeys(TASKS, 1024),
        draws="independent",
    ),
    # The library's defaults: smooth networks, averaged weights, few and stratified draws. Width, learning
    # rate, epochs and draws were chosen on new draws of both distributions, never on the points of the table.
    "modern": Recipe(
        {
            "gustafsson": TrainingConfig(epochs=100, learning_rate=1e-3),
            "brando": TrainingConfig(epochs=170, learning_rate=2e-3),
        },
        "table",
        {"n_inputs": 1, "width": 128},
        standardizes=True,
        n_draws={"gustafsson": 16, "brando": 12},
        draws="stratified",
    ),
}
