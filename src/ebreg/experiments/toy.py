"""The runs of Table 1: a cell on one of the two 1-D sets."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ebreg._utils.random_state import seeded
from ebreg.datasets import ToyTask
from ebreg.experiments.cells import Cell, Run
from ebreg.experiments.jobs import Job
from ebreg.experiments.recipes import RECIPES
from ebreg.experiments.tasks import fingerprint, load, measure
from ebreg.methods import Method
from ebreg.models import Model
from ebreg.training import fit
from ebreg.training.config import TrainingConfig


@dataclass(frozen=True)
class ToyJob(Job):
    """Does the runs of Table 1.

    Attributes:
        points: Folder with the authors' points of the first set; None: points of the same law.
        epochs: In place of a recipe's own, for a quick look.
    """

    points: Path | None = None
    epochs: int | None = None

    def settings(self, run: Run) -> dict[str, Any]:
        """See :meth:`Job.settings`."""
        cell, recipe = run.cell, RECIPES[run.cell.recipe]
        return {
            "dataset": run.dataset,
            "points": fingerprint(load(run.dataset, self.points)),
            "cell": cell.name,
            "method": cell.method,
            "recipe": cell.recipe,
            "n_components": cell.n_components,
            "sigmas": None if cell.sigmas is None else list(cell.sigmas),  # as JSON gives it back
            "units": recipe.units,
            "network": recipe.network,
            "network_settings": dict(recipe.network_settings),
            "n_draws": recipe.n_draws[run.dataset],
            "draws": recipe.draws,
            **asdict(self._config(run)),
        }

    def prepare(self, run: Run) -> None:
        """There is nothing."""

    def train(self, run: Run) -> Model:
        """See :meth:`Job.train`."""
        return train(run.cell, load(run.dataset, self.points), self._config(run))

    def untrained(self, run: Run) -> Model:
        """See :meth:`Job.untrained`."""
        return method_of(run.cell, load(run.dataset, self.points), run.seed).model

    def measure(self, run: Run, model: Model) -> dict[str, float]:
        """See :meth:`Job.measure`."""
        return asdict(measure(load(run.dataset, self.points), model))

    def _config(self, run: Run) -> TrainingConfig:
        config = replace(RECIPES[run.cell.recipe].configs[run.dataset], seed=run.seed)
        return config if self.epochs is None else replace(config, epochs=self.epochs)


def method_of(cell: Cell, task: ToyTask, seed: int) -> Method:
    """A new method for a cell, with weights by the seed."""
    with seeded(seed):
        return RECIPES[cell.recipe].method(cell, task)


def train(
    cell: Cell,
    task: ToyTask,
    config: TrainingConfig,
    look: Callable[[Any, int], None] | None = None,
    progress: bool = False,
) -> Any:
    """Train a cell on a data set; returns the model.

    Args:
        cell: The setting.
        task: The data set.
        config: Of the training; its seed is that of the weights too.
        look: Called after each epoch with the model and the number of epochs finished.
        progress: Whether to show a progress bar.

    Raises:
        KeyboardInterrupt: After Ctrl-C: half a training is none.
    """
    method = method_of(cell, task, config.seed)
    after_epoch = None if look is None else lambda epoch: look(method.model, epoch)
    data = (task.x_train, task.y_train)
    if fit(method, data, config=config, progress=progress, after_epoch=after_epoch).interrupted:
        raise KeyboardInterrupt
    return method.model
