"""The runs of Tables 2 to 6: a cell on the images of a task."""

from dataclasses import dataclass
from typing import Any

from ebreg.experiments.cells import Run
from ebreg.experiments.images.experiments import Experiment
from ebreg.experiments.images.recipes import ImageRecipe
from ebreg.experiments.images.sources import ImageSource
from ebreg.experiments.jobs import Job
from ebreg.models import Model


@dataclass(frozen=True)
class ImageJob(Job):
    """Does the runs of the tables of images.

    Attributes:
        sources: Where the images of each task come from.
        recipe: How they are trained on.
    """

    sources: tuple[ImageSource, ...]
    recipe: ImageRecipe

    def settings(self, run: Run) -> dict[str, Any]:
        """See :meth:`Job.settings`."""
        return self._experiment(run).settings

    def check(self, run: Run) -> None:
        """See :meth:`Job.check`."""
        self._experiment(run).check()

    def knows(self, run: Run) -> bool:
        """See :meth:`Job.knows`."""
        return any(source.task_name == run.dataset for source in self.sources)

    def prepare(self, run: Run) -> None:
        """See :meth:`Job.prepare`."""
        self._experiment(run).prepare()

    def train(self, run: Run) -> Model:
        """See :meth:`Job.train`."""
        model, training = self._experiment(run).train(progress=False)
        if training.interrupted:  # half a training is none
            raise KeyboardInterrupt
        return model

    def untrained(self, run: Run) -> Model:
        """See :meth:`Job.untrained`."""
        return self._experiment(run).method().model

    def measure(self, run: Run, model: Model) -> dict[str, float]:
        """See :meth:`Job.measure`."""
        return self._experiment(run).judge(model)

    def _experiment(self, run: Run) -> Experiment:
        source = next(source for source in self.sources if source.task_name == run.dataset)
        return Experiment(run.cell, source, self.recipe, run.seed)
