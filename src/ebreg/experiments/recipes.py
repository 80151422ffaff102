"""Recipes: from a data set and a cell to a method that is ready to train, and its settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ebreg.datasets import TASKS, ToyTask
from ebreg.experiments.building import method_of
from ebreg.experiments.cells import Cell
from ebreg.methods import Method
from ebreg.networks import NETWORKS, Networks
from ebreg.training.config import PAPER, TrainingConfig
from ebreg.units import Units


@dataclass(frozen=True)
class Recipe:
    """How a cell is trained.

    Attributes:
        configs: Settings of the training on each data set, up to the seed.
        network: A name in ``ebreg.networks.NETWORKS``.
        network_settings: Its arguments, beside the number of components.
        units: Whether the networks see the data as they are, "raw", or "standard".
        n_draws: M, on each data set.
        draws: A name in ``ebreg.sampling.SAMPLERS``, for the methods that draw from q.
    """

    configs: Mapping[str, TrainingConfig]
    network: str
    network_settings: Mapping[str, int]
    units: str
    n_draws: Mapping[str, int]
    draws: str

    def method(self, cell: Cell, task: ToyTask) -> Method:
        """A new method for a cell, with weights from torch's random state."""

        def networks() -> Networks:
            return NETWORKS[self.network](n_components=cell.n_components, **self.network_settings)

        return method_of(cell, networks, _UNITS[self.units](task), self.n_draws[task.name], self.draws)


_UNITS: dict[str, Callable[[ToyTask], Units | None]] = {
    "raw": lambda task: None,
    "standard": lambda task: Units.of(task.x_train, task.y_train),
}
RECIPES: dict[str, Recipe] = {
    # Ten-wide networks on raw data, Adam at 1e-3 for 75 epochs of batches of 32, 1,024 independent draws.
    "paper": Recipe(
        dict.fromkeys(TASKS, PAPER),
        "paper-1d",
        {},
        "raw",
        n_draws=dict.fromkeys(TASKS, 1024),
        draws="independent",
    ),
    # The library's own: smooth networks, averaged weights, few and stratified draws. Width, rate, length
    # and draws were chosen on fresh draws of the two laws, never on the points that the table is about.
    "modern": Recipe(
        {
            "gustafsson": TrainingConfig(epochs=100, learning_rate=1e-3),
            "brando": TrainingConfig(epochs=170, learning_rate=2e-3),
        },
        "table",
        {"n_inputs": 1, "width": 128},
        "standard",
        n_draws={"gustafsson": 16, "brando": 12},
        draws="stratified",
    ),
}
