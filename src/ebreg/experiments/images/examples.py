"""A figure of a trained model: test images and their predicted densities."""

import copy
from typing import TYPE_CHECKING

import torch

from ebreg import plots
from ebreg.estimators.chunks import Chunks
from ebreg.estimators.prediction import Prediction
from ebreg.experiments.images.experiment import ImageExperiment
from ebreg.models import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IMAGES = 6


def draw(experiment: ImageExperiment, model: Model) -> "Figure":
    """Some test images with their densities by a finished model, in ascending order of the first target."""
    test, task = experiment.source.load().test, experiment.source.task
    n = min(_IMAGES, len(test))
    ranks = (torch.arange(n) + 0.5) / n * len(test)
    index = test.y[:, 0].argsort(stable=True)[ranks.long()]
    images, y = test.__getitems__(index.tolist())
    dist = Prediction(Chunks(copy.deepcopy(model).to_float64(), images))
    return plots.examples(dist, images, y, task.target_names[: y.shape[1]])[0]
