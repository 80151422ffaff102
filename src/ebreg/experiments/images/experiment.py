"""One training on images: a setting, a source of images, a seed and a recipe."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ebreg.datasets.images import ImageSplit
from ebreg.estimators.ties import Ties
from ebreg.experiments.experiment import Experiment
from ebreg.experiments.images.design import ImageDesign
from ebreg.experiments.images.evaluation import evaluate, limit_energy
from ebreg.experiments.images.recipes import RANDOM, ImageRecipe
from ebreg.experiments.images.source import ImageSource
from ebreg.methods import Method
from ebreg.models import MixtureModel, Model
from ebreg.networks import backbones
from ebreg.networks.backbones import DOWNLOAD, PixelUnits
from ebreg.training import HeldOut, Training
from ebreg.training.batches import Augmented, Data, TensorData
from ebreg.training.calibration import calibrate
from ebreg.training.config import TrainingConfig
from ebreg.training.frozen_features import FrozenFeatures
from ebreg.units import Bounds


@dataclass(frozen=True)
class ImageExperiment(Experiment):
    """One training on images.

    Attributes:
        recipe: Backbone, units, draws and training loop.
    """

    source: ImageSource
    recipe: ImageRecipe

    @property
    def config(self) -> TrainingConfig:
        """See :class:`Experiment`."""
        alone = self.recipe.mixture_epochs
        if alone is None:
            alone = min(int(self._split.train.y.shape[1] > 1), self.recipe.config.epochs - 1)
        return replace(self.recipe.config, mixture_epochs=alone, seed=self.seed)

    @property
    def settings(self) -> dict[str, Any]:
        """See :class:`Experiment`."""
        recipe, split = self.recipe, self._split
        return {
            "dataset": self.source.name,
            "split": split.how,
            "images": [split.train.checksum, split.test.checksum],
            **self.setting.as_json(),
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
        """See :class:`Experiment`."""
        super().check()
        if self.recipe.on_features:
            self.recipe.build_backbone()
        if self.config.patience is not None:
            self._split.validation_split()

    def data(self) -> tuple[Data, Data | HeldOut | None]:
        """See :class:`Experiment`; features in place of images where the backbone never learns.

        Members are trained on targets that are spread over their rounding intervals; those with a neck of
        their own have validation images of their own.
        """
        train: Any = self._features[0] if self.recipe.on_features else self._split.train
        validation: Any = None
        if self.setting.n_members > 1:
            y = self._split.train.y
            train = train.with_targets(Ties.of(y).spread(y, Bounds.none(y.shape[1]), self.seed))
        if self.config.patience is not None and self._has_own_rows:
            validation = self._held_out()
        elif self.config.patience is not None:
            rest, held_out = (torch.from_numpy(index) for index in self._split.validation_split())
            train, validation = train.take(rest), train.take(held_out)
        augmentation = self.source.task.augmentation
        if self.recipe.augments and augmentation is not None:
            train = Augmented(train, augmentation)
        return train, validation

    def train(self, *arguments: Any, **settings: Any) -> tuple[Any, Training]:
        """See :class:`Experiment`; members are then calibrated on their validation images."""
        model, training = super().train(*arguments, **settings)
        data, validation = self.data()
        if isinstance(validation, HeldOut) and training.best_epoch is not None:
            assert isinstance(data, TensorData)
            calibrate(model, data, validation, self._n_rates)
        return model, training

    @property
    def _has_own_rows(self) -> bool:
        # Whether each member has validation images of its own.
        return self.setting.n_members > 1 and self.recipe.on_features

    @property
    def _n_rates(self) -> int:
        return max(1, len(self.setting.dropout))

    def _held_out(self) -> HeldOut:
        # Members with different rates of dropout have the same images, so that they can be compared.
        splits = self._split.validation_splits(-(-self.setting.n_members // self._n_rates))
        rows = [(torch.from_numpy(train), torch.from_numpy(validation)) for train, validation in splits]
        return HeldOut.of_splits([rows[i // self._n_rates] for i in range(self.setting.n_members)])

    @property
    def design(self) -> ImageDesign:
        """The sizes of its networks."""
        return self.recipe.design(self.setting, self._split.train.y)

    def build(self) -> Method:
        """See :class:`Experiment`."""
        return self.recipe.build(self.setting, self._split.train.y)

    def evaluate(self, model: Model) -> dict[str, float]:
        """See :class:`Experiment`; by the test images."""
        takes_features = self.recipe.on_features and model.x_units is None
        data = self._features[1] if takes_features else self._split.test
        return evaluate(self.source.task, data, model, self._split.train.y)

    def finished(self, model: Model) -> Model:
        """A trained model as it is used, in place: it takes images, and its energy has a tail."""
        limit_energy(model, self._split.train.y)
        if self.recipe.on_features:
            attach(model, self.recipe.build_backbone(), self.recipe.backbone)
        return expect(model, self.image_shape)

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
    """Let a model refuse images of another shape; in place."""
    assert isinstance(model.x_units, PixelUnits)
    model.x_units.expect(image_shape)
    return model


@lru_cache(maxsize=4)
def _features_of(source: ImageSource, backbone: str, weights: str | None) -> tuple[Data, Data]:
    known = backbones.find(backbone)
    model = MixtureModel(known.build_trained(weights), nn.Identity(), n_targets=1, x_units=known.units())
    features, split = FrozenFeatures(model, n_rows=128), source.load()
    return features.of(split.train), features.of(split.test)


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
