"""The paper's image experiments: Tables 2 to 6, and single trainings."""

from ebreg.experiments.images.evaluation import evaluate
from ebreg.experiments.images.experiment import ImageExperiment
from ebreg.experiments.images.recipes import IMAGE_RECIPES, ImageRecipe
from ebreg.experiments.images.saving import save
from ebreg.experiments.images.source import ImageSource

__all__ = [
    "IMAGE_RECIPES",
    "ImageExperiment",
    "ImageRecipe",
    "ImageSource",
    "evaluate",
    "save",
]
