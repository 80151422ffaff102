"""The paper's image experiments: where images come from, how methods are trained on them, and judged."""

from ebreg.reproduce.images.experiments import Experiment
from ebreg.reproduce.images.jobs import ImageJob
from ebreg.reproduce.images.measures import measure
from ebreg.reproduce.images.recipes import IMAGE_RECIPES, ImageRecipe
from ebreg.reproduce.images.saving import load_images, save
from ebreg.reproduce.images.sources import ImageSource

__all__ = [
    "IMAGE_RECIPES",
    "Experiment",
    "ImageJob",
    "ImageRecipe",
    "ImageSource",
    "load_images",
    "measure",
    "save",
]
