"""The runs of Tables 2 to 6: a cell on the images of a task."""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from ebreg.batches import Data
from ebreg.config import TrainingConfig
from ebreg.datasets.images import ImageSplit
from ebreg.embedding import Embedding
from ebreg.models import Model
from ebreg.randomness import seeded
from ebreg.reproduce.cells import Run
from ebreg.reproduce.images.measures import measure, resolution_of
from ebreg.reproduce.images.recipes import ImageRecipe
from ebreg.reproduce.images.sources import ImageSource
from ebreg.reproduce.jobs import Job
from ebreg.training import fit


@dataclass(frozen=True)
class ImageJob(Job):
    """Does the runs of the tables of images.

    Attributes:
        sources: Where the images of each task come from.
        recipe: How they are trained on.
    """

    sources: tuple[ImageSource, ...]
    recipe: ImageRecipe
