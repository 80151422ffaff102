"""How methods are trained on images: the backbone, the units, the draws, and the schedule."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ebreg import checks, networks
from ebreg.backbones import BACKBONES
from ebreg.batches import Augmented, Data
from ebreg.config import PAPER, TrainingConfig
from ebreg.datasets.images import ImageTask
from ebreg.methods import METHODS, Method, MixtureNLL, MixtureTeacher
from ebreg.models import EnergyModel, MixtureModel
from ebreg.networks import Parts
from ebreg.reproduce.cells import Cell
from ebreg.units import Units

RANDOM = "random"
UNITS = ("raw", "standard")
# Width of the layer on features that stay: that of the paper's features.
_NECK = 512


@dataclass(frozen=True)
class ImageRecipe:
    """Settings of a training on images, beside those of a cell.

    Attributes:
        config: Settings of the loop, up to the seed.
        backbone: A name in ``ebreg.backbones.BACKBONES``.
        weights: Path of its checkpoint; "random" to learn it from nothing; None: those that come with it.
        units: Whether targets are learned as they are, "raw", or "standard".
        n_draws: M.
        draws: A name in ``ebreg.samplers.SAMPLERS``, for the methods that draw from q.
        augments: Whether training images are changed at random, for the tasks that know how.
    """

    config: TrainingConfig
    backbone: str = "resnet18"
    weights: str | None = None
    units: str = "standard"
    n_draws: int = 128
    draws: str = "stratified"
    augments: bool = True

    def __post_init__(self) -> None:
        checks.one_of("the backbone", self.backbone, BACKBONES)
        checks.one_of("units", self.units, UNITS)
        checks.flag("augments", self.augments)
        if self.weights == RANDOM and self.config.frozen_epochs:
            raise ValueError(
                f"{self.config.frozen_epochs} epochs with a frozen backbone of random weights learn from "
                "nothing; set frozen_epochs to 0, or give weights"
            )

    def data(self, train: Any, task: ImageTask) -> Data:
        """What is trained on."""
        if self.augments and task.augmentation is not None:
            return Augmented(train, task.augmentation)
        return train

    @property
    def on_features(self) -> bool:
        """Whether the backbone never learns, so that its features are inputs like any other."""
        frozen = self.config.frozen_epochs >= self.config.epochs and self.config.frozen_norm == "evaluation"
        return frozen and not self.augments

    def build_backbone(self) -> nn.Module:
        """The backbone with its weights; random ones only where they are asked for."""
        known = BACKBONES[self.backbone]
        return known.build() if self.weights == RANDOM else known.build_trained(self.weights)

    def method(self, cell: Cell, y: Tensor) -> Method:
        """A new method for a cell, with weights from torch's random state.

        Args:
            cell: The setting.
            y: Targets of the training images, shape (n, D).
        """
        parts = self._parts(cell, y.shape[1])
        units: dict[str, Any] = {"x_units": None if self.on_features else BACKBONES[self.backbone].units()}
        tail: dict[str, Any] = {}
        if self.units == "standard":
            learned = Units.of(None, y)
            units |= {"y_units": learned.y}
            tail = {"tail": learned.tail}
        sampling: dict[str, Any] = {"n_draws": self.n_draws, "draws": self.draws}
        if cell.method == MixtureNLL.name:
            return MixtureNLL(MixtureModel(parts.backbone, parts.mixture, **units))
        if cell.method == MixtureTeacher.name:
            student = MixtureModel(parts.backbone, parts.mixture, **units)
            own = None if cell.shares_backbone else self._learning_part()
            return MixtureTeacher(student, parts.energy, own, **tail, **sampling)
        if cell.sigmas is not None:  # noise around the target, drawn as in the paper
            sampling = {"n_draws": self.n_draws, "sigmas": cell.sigmas}
        model = EnergyModel(parts.backbone, parts.energy, parts.mixture, **units, **tail)
        return METHODS[cell.method](model, **sampling)

    def _parts(self, cell: Cell, n_targets: int) -> Parts:
        n_features = _NECK if self.on_features else BACKBONES[self.backbone].n_features
        heads = networks.image_heads(n_targets, cell.n_components, n_features)
        return replace(heads, backbone=self._learning_part())

    def _learning_part(self) -> nn.Module:
        # Features that stay need a layer that learns: it stands for the backbone, and shares its role.
        if self.on_features:
            return networks.MLP(BACKBONES[self.backbone].n_features, (_NECK,))
        return self.build_backbone()


IMAGE_RECIPES: dict[str, ImageRecipe] = {
    # The authors': the backbone rests for 20 epochs with batch-norm in training mode, which the paper does
    # not say; targets in their own units, 1,024 independent draws.
    "paper": ImageRecipe(
        replace(PAPER, frozen_epochs=20, frozen_norm="training"),
        units="raw",
        n_draws=1024,
        draws="independent",
    ),
    # A trained backbone that never learns, its features computed once, and a layer on them that does: minutes
    # instead of hours.
    "features": ImageRecipe(
        replace(PAPER, frozen_epochs=PAPER.epochs), backbone="efficientnet-lite0", augments=False
    ),
    # From random weights, all at once.
    "scratch": ImageRecipe(PAPER, weights=RANDOM),
}
