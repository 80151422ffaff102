"""An experiment on images: a setting, a source of images, a recipe and a seed; trained and judged."""

import hashlib
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ebreg.backbones import BACKBONES
from ebreg.batches import Data
from ebreg.config import TrainingConfig
from ebreg.datasets.images import ImageSplit
from ebreg.embedding import Embedding
from ebreg.methods import Method
from ebreg.models import MixtureModel, Model
from ebreg.randomness import seeded
from ebreg.reproduce.cells import Cell
from ebreg.reproduce.images.measures import measure, resolution_of
from ebreg.reproduce.images.recipes import RANDOM, ImageRecipe
from ebreg.reproduce.images.sources import ImageSource
from ebreg.training import Training, fit


@dataclass(frozen=True)
class Experiment:
    """One training on images.

    Attributes:
        cell: The setting.
        source: Where the images come from.
        recipe: How they are trained on.
        seed: Of the weights, the order of the images and the draws.
    """

    cell: Cell
    source: ImageSource
    recipe: ImageRecipe
    seed: int

    @property
    def config(self) -> TrainingConfig:
        """Settings of the loop; several targets begin with the mixture alone, as the authors do."""
        begins_alone = self._split.train.y.shape[1] > 1 and self.recipe.config.mixture_epochs == 0
        config = replace(self.recipe.config, mixture_epochs=1) if begins_alone else self.recipe.config
        return replace(config, seed=self.seed)

    @property
    def settings(self) -> dict[str, Any]:
        """All that the outcome depends on, as JSON holds it."""
        cell, recipe, split = self.cell, self.recipe, self._split
        return {
            "dataset": self.source.task_name,
            "split": split.how,
            "images": [split.train.checksum, split.test.checksum],
            "cell": cell.name,
            "method": cell.method,
            "n_components": cell.n_components,
            "sigmas": None if cell.sigmas is None else list(cell.sigmas),  # as JSON gives it back
            "shares_backbone": cell.shares_backbone,
            "backbone": recipe.backbone,
            "weights": _fingerprint(recipe.weights),
            "units": recipe.units,
            "n_draws": recipe.n_draws,
            "draws": recipe.draws,
            "augments": recipe.augments,
            "on_features": recipe.on_features,
            **asdict(self.config),
        }

    def method(self) -> Method:
        """A new one, with weights by the seed."""
        with seeded(self.seed):
            return self.recipe.method(self.cell, self._split.train.y)

    def train(
        self,
        device: str = "cpu",
        checkpoint: Path | None = None,
        resume: bool = False,
        progress: bool = True,
    ) -> tuple[Model, Training]:
        """Train; the arguments are those of :func:`ebreg.training.fit`."""
        method, config = self.method().to(device), self.config
        data: Data = self._split.train
        if self.recipe.on_features:
            # There is no backbone left to freeze, nor to compute with.
            data, config = self._features[0], replace(config, frozen_epochs=0)
        data = self.recipe.data(data, self.source.task)
        training = fit(method, data, config=config, checkpoint=checkpoint, resume=resume, progress=progress)
        return method.model, training

    def of_images(self, model: Model) -> Model:
        """A trained model that takes images, where it was trained on features of them; in place."""
        return (
            attach(model, self.recipe.build_backbone(), self.recipe.backbone)
            if self.recipe.on_features
            else model
        )

    def judge(self, model: Model) -> dict[str, float]:
        """Measure a trained model by the test images."""
        task = self.source.task
        resolution = (
            resolution_of(self._split.train.y) if task.spacing is None else torch.tensor([task.spacing])
        )
        takes_features = self.recipe.on_features and model.x_units is None
        data = self._features[1] if takes_features else self._split.test
        return measure(task, data, model, resolution)

    @property
    def _split(self) -> ImageSplit:
        return _load(self.source)

    @property
    def _features(self) -> tuple[Data, Data]:
        return _features_of(self.source, self.recipe.backbone, self.recipe.weights)


def attach(model: Model, backbone: nn.Module, name: str) -> Model:
    """Put a backbone, and the units of its pixels, before a model of its features; in place."""
    model.backbone = nn.Sequential(backbone, model.backbone)
    model.x_units = BACKBONES[name].units()
    return model.to(model.like.device)


# A process does many trainings on the same images.
@lru_cache(maxsize=4)
def _load(source: ImageSource) -> ImageSplit:
    return source.load()


@lru_cache(maxsize=4)
def _features_of(source: ImageSource, backbone: str, weights: str | None) -> tuple[Data, Data]:
    known = BACKBONES[backbone]
    model = MixtureModel(known.build_trained(weights), nn.Identity(), n_targets=1, x_units=known.units())
    embedding, split = Embedding(model, n_rows=128), _load(source)
    return embedding.of(split.train), embedding.of(split.test)


@lru_cache(maxsize=4)
def _fingerprint(weights: str | None) -> str | None:
    if weights in (None, RANDOM):
        return weights
    path = Path(str(weights))
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there; give the path of the backbone's checkpoint, or {RANDOM}"
        )
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
