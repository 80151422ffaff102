"""A look at a trained model: test images, and what it says of them."""

import copy
from typing import TYPE_CHECKING

import torch

from ebreg import plots
from ebreg.estimators.chunks import Chunks
from ebreg.estimators.prediction import Prediction
from ebreg.experiments.images.experiments import Experiment
from ebreg.models import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IMAGES = 6


def draw(experiment: Experiment, model: Model) -> "Figure":
    """Some of the test images with their densities, from the lowest of the first target to its highest.

    Args:
        experiment: What the model was trained by.
        model: As it is used, see :meth:`Experiment.finished`.
    """
    test, task = experiment.source.load().test, experiment.source.task
    n = min(_IMAGES, len(test))
    ranks = (torch.arange(n) + 0.5) / n * len(test)
    index = test.y[:, 0].argsort(stable=True)[ranks.long()]
    images, y = test.__getitems__(index.tolist())
    dist = Prediction(Chunks(copy.deepcopy(model).to_float64(), images))
    return plots.examples(dist, images, y, task.target_names[: y.shape[1]])[0]
