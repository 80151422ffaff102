"""How methods are trained on images: the backbone, the units, the draws, and the schedule."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ebreg import networks
from ebreg._utils import checks
from ebreg.datasets.images import ImageTask
from ebreg.experiments.building import method_of
from ebreg.experiments.cells import Cell
from ebreg.methods import Method
from ebreg.networks import Networks, backbones
from ebreg.networks.backbones import Backbone
from ebreg.training.batches import Augmented, Data
from ebreg.training.config import PAPER, TrainingConfig
from ebreg.units import Tail, Units

RANDOM = "random"
UNITS = ("raw", "standard")


@dataclass(frozen=True)
class ImageRecipe:
    """Settings of a training on images, beside those of a cell.

    Attributes:
        config: Settings of the loop, up to the seed.
        backbone: A name that :func:`ebreg.networks.backbones.find` knows.
        weights: Path of its checkpoint; "download" for those of its library; "random" to learn it from
            nothing; None: those that come with it.
        units: Whether targets are learned as they are, "raw", or "standard".
        n_draws: M.
        draws: A name in ``ebreg.sampling.SAMPLERS``, for the methods that draw from q.
        augments: Whether training images are changed at random, for the tasks that know how.
        mixture_epochs: Epochs at the start with the mixture alone; None: one where there are several targets,
            as the authors do, else none.
        neck: Width of a layer that learns on the features of a backbone that never does, which are then
            computed once; None: the backbone learns.
    """

    config: TrainingConfig
    backbone: str = "resnet18"
    weights: str | None = None
    units: str = "standard"
    n_draws: int = 128
    draws: str = "stratified"
    augments: bool = True
    mixture_epochs: int | None = None
    neck: int | None = None

    def __post_init__(self) -> None:
        known = backbones.find(self.backbone)
        checks.one_of("units", self.units, UNITS)
        checks.flag("augments", self.augments)
        if self.weights == RANDOM and known.pretrained:
            raise ValueError(f"{self.backbone} comes with its own weights; leave out weights, not {RANDOM!r}")
        frozen, epochs = self.config.frozen_epochs, self.config.epochs
        if self.weights == RANDOM and (frozen or self.neck is not None):
            raise ValueError(
                "heads on a backbone of random weights that does not learn would learn from nothing; give "
                "weights, or take the recipe 'scratch' without frozen epochs"
            )
        if self.neck is None and frozen >= epochs:
            raise ValueError(
                f"a backbone that is frozen for {frozen} of {epochs} epochs never learns; give fewer "
                "frozen_epochs, or take the recipe 'features'"
            )
        if self.neck is not None and (frozen or self.augments):
            raise ValueError(
                "features that stay have nothing to freeze, and no augmentation; leave out frozen_epochs and "
                "augmentation, or take the recipe 'paper' or 'scratch'"
            )

    def data(self, train: Any, task: ImageTask) -> Data:
        """What is trained on."""
        if self.augments and task.augmentation is not None:
            return Augmented(train, task.augmentation)
        return train

    @property
    def on_features(self) -> bool:
        """Whether what learns takes features as its inputs."""
        return self.neck is not None

    def build_backbone(self) -> nn.Module:
        """The backbone with its weights; random ones only where they are asked for."""
        return self._known.build() if self.weights == RANDOM else self._known.build_trained(self.weights)

    def method(self, cell: Cell, y: Tensor) -> Method:
        """A new method for a cell, with weights from torch's random state.

        Args:
            cell: The setting.
            y: Targets of the training images, shape (n, D).
        """
        D = y.shape[1]

        def parts() -> Networks:
            heads = networks.image_heads(D, cell.n_components, self.neck or self._known.n_features)
            return replace(heads, backbone=self._learning_part())

        pixels = None if self.on_features else self._known.units()
        units = self._raw(y) if self.units == "raw" else Units.of(None, y)
        return method_of(cell, parts, replace(units, x=pixels), self.n_draws, self.draws)

    @property
    def _known(self) -> Backbone:
        return backbones.find(self.backbone)

    def _raw(self, y: Tensor) -> Units:
        units = Units.raw(None, y.shape[1])
        # The paper's energies have no end, and get one when they are used. What says when to stop must be the
        # NLL of the density in use, so then they have it from the start.
        return units if self.config.patience is None else replace(units, tail=Tail.of(y))

    def _learning_part(self) -> nn.Module:
        # On features that stay, a layer that learns stands for the backbone.
        return (
            self.build_backbone() if self.neck is None else networks.MLP(self._known.n_features, (self.neck,))
        )


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
    "features": ImageRecipe(PAPER, backbone="efficientnet-lite0", augments=False, neck=256),
    # From random weights, all at once. The rate goes down to 0: at a constant one batch-norm's averages lag
    # behind the weights, and an NLL of 4.2 in training mode was 10.5 in use.
    "scratch": ImageRecipe(replace(PAPER, schedule="one-cycle"), weights=RANDOM),
}
