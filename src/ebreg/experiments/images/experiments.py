"""An experiment on images: a setting, a source of images, a recipe and a seed; trained and judged."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ebreg._utils.random_state import seeded
from ebreg.datasets.images import ImageSplit
from ebreg.experiments.cells import Cell
from ebreg.experiments.images.measures import give_end, measure
from ebreg.experiments.images.recipes import RANDOM, ImageRecipe
from ebreg.experiments.images.sources import ImageSource
from ebreg.methods import Method
from ebreg.models import MixtureModel, Model
from ebreg.networks import backbones
from ebreg.networks.backbones import DOWNLOAD, PixelUnits
from ebreg.training import Training, fit
from ebreg.training.batches import Data
from ebreg.training.config import TrainingConfig
from ebreg.training.frozen_features import FrozenFeatures


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
        """Settings of the loop."""
        alone = self.recipe.mixture_epochs
        if alone is None:
            alone = min(int(self._split.train.y.shape[1] > 1), self.recipe.config.epochs - 1)
        return replace(self.recipe.config, mixture_epochs=alone, seed=self.seed)

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
            "neck": recipe.neck,
            **asdict(self.config),
        }

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W) of the images."""
        return tuple(self._split.train.__getitems__([0])[0].shape[1:])

    def check(self) -> None:
        """Fail where the training would, before anything is written."""
        _ = self.settings
        self.method()
        if self.recipe.on_features:
            self.recipe.build_backbone()
        if self.config.patience is not None:
            self._split.validation_split()

    def prepare(self) -> None:
        """Load the images, and compute the features that are needed."""
        _ = self._features if self.recipe.on_features else self._split

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
        method = self.method().to(device)
        data, validation = self._parts()
        training = fit(
            method,
            self.recipe.data(data, self.source.task),
            validation,
            config=self.config,
            checkpoint=checkpoint,
            resume=resume,
            progress=progress,
            identity=self.settings,
        )
        return method.model, training

    def finished(self, model: Model) -> Model:
        """A trained model as it is used, in place: it takes images, and its energy ends somewhere."""
        give_end(model, self._split.train.y)
        if self.recipe.on_features:
            attach(model, self.recipe.build_backbone(), self.recipe.backbone)
        return expect(model, self.image_shape)

    def judge(self, model: Model) -> dict[str, float]:
        """Measure a trained model by the test images."""
        takes_features = self.recipe.on_features and model.x_units is None
        data = self._features[1] if takes_features else self._split.test
        return measure(self.source.task, data, model, self._split.train.y)

    def _parts(self) -> tuple[Data, Data | None]:
        # What is learned from, and what tells when to stop, if anything does.
        train: Any = self._features[0] if self.recipe.on_features else self._split.train
        if self.config.patience is None:
            return train, None
        rest, held_out = (torch.from_numpy(places) for places in self._split.validation_split())
        return train.take(rest), train.take(held_out)

    @property
    def _split(self) -> ImageSplit:
        return self.source.load()

    @property
    def _features(self) -> tuple[Data, Data]:
        return _features_of(self.source, self.recipe.backbone, self.recipe.weights)


def attach(model: Model, backbone: nn.Module, name: str) -> Model:
    """Put a backbone, and the units of its pixels, before a model of its features; in place."""
    model.backbone = nn.Sequential(backbone, model.backbone)
    model.x_units = backbones.find(name).units()
    return model.to(model.reference.device)


def expect(model: Model, image_shape: Sequence[int]) -> Model:
    """Have a model refuse images of another shape; in place."""
    assert isinstance(model.x_units, PixelUnits)
    model.x_units.expect(image_shape)
    return model


@lru_cache(maxsize=4)
def _features_of(source: ImageSource, backbone: str, weights: str | None) -> tuple[Data, Data]:
    known = backbones.find(backbone)
    model = MixtureModel(known.build_trained(weights), nn.Identity(), n_targets=1, x_units=known.units())
    embedding, split = FrozenFeatures(model, n_rows=128), source.load()
    return embedding.of(split.train), embedding.of(split.test)


@lru_cache(maxsize=4)
def _fingerprint(weights: str | None) -> str | None:
    if weights in (None, RANDOM, DOWNLOAD):
        return weights
    path = Path(str(weights))
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there; give the path of the backbone's checkpoint, or {RANDOM}"
        )
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
