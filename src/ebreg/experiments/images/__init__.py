"""The paper's image experiments: where images come from, how methods are trained on them, and judged."""

from ebreg.experiments.images.experiments import Experiment
from ebreg.experiments.images.jobs import ImageJob
from ebreg.experiments.images.measures import measure
from ebreg.experiments.images.recipes import IMAGE_RECIPES, ImageRecipe
from ebreg.experiments.images.saving import save
from ebreg.experiments.images.sources import ImageSource

__all__ = [
    "IMAGE_RECIPES",
    "Experiment",
    "ImageJob",
    "ImageRecipe",
    "ImageSource",
    "measure",
    "save",
]
