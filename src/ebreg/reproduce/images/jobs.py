"""The runs of Tables 2 to 6: a cell on the images of a task."""

from dataclasses import dataclass
from typing import Any

from ebreg.models import Model
from ebreg.reproduce.cells import Run
from ebreg.reproduce.images.experiments import Experiment
from ebreg.reproduce.images.recipes import ImageRecipe
from ebreg.reproduce.images.sources import ImageSource
from ebreg.reproduce.jobs import Job


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
