"""Recipes of trainings on images: backbone, units, draws and training loop."""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from ebreg._utils import checks
from ebreg.estimators.ties import Ties
from ebreg.experiments.images.design import ImageDesign
from ebreg.experiments.settings import Setting
from ebreg.methods import Method, ResidualNCE
from ebreg.networks import Networks, backbones
from ebreg.networks.backbones import Backbone
from ebreg.training.config import PAPER, TrainingConfig
from ebreg.units import Tail, Units

RANDOM = "random"
UNITS = ("raw", "standard")


@dataclass(frozen=True)
class ImageRecipe:
    """How a setting is trained on images.

    Attributes:
        config: Settings of the training loop, but for the seed.
        backbone: A name that :func:`ebreg.networks.backbones.find` knows.
        weights: Path of its checkpoint; "download" for those of its library; "random" to train it from
            scratch; None: those that come with it.
        units: Of the targets in the training: "raw" or "standard".
        n_draws: M.
        draws: A name in ``ebreg.sampling.SAMPLERS``, for the methods that draw from q.
        augments: Whether training images are augmented, for the tasks that have an augmentation.
        mixture_epochs: Epochs at the start with the mixture alone; None: one where there are several targets,
            as the authors do, else none.
        neck: Width of a trained layer on the features of a frozen backbone, which are computed once; None:
            the backbone is trained.
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
                "a frozen backbone needs trained weights, got 'random'; give weights, or take the recipe "
                "'scratch' without frozen epochs"
            )
        if self.neck is None and frozen >= epochs:
            raise ValueError(
                f"a backbone that is frozen for {frozen} of {epochs} epochs never learns; give fewer "
                "frozen_epochs, or take the recipe 'features'"
            )
        if self.neck is not None and (frozen or self.augments):
            raise ValueError(
                "fixed features have nothing to freeze, and no augmentation; leave out frozen_epochs and "
                "augmentation, or take the recipe 'paper' or 'scratch'"
            )

    @property
    def on_features(self) -> bool:
        """Whether the networks are trained on features that are computed once."""
        return self.neck is not None

    def build_backbone(self) -> nn.Module:
        """The backbone with its weights; random ones only where they are asked for."""
        return self._known.build() if self.weights == RANDOM else self._known.build_trained(self.weights)

    def build(self, setting: Setting, y: Tensor) -> Method:
        """Build the method of a setting for targets y (n, D), with weights from torch's random state."""
        design = self.design(setting, y)

        def build_networks() -> Networks:
            heads = design.build_heads()
            return replace(heads, backbone=design.build_neck() if self.on_features else self.build_backbone())

        pixels = None if self.on_features else self._known.units()
        return setting.build(build_networks, replace(self._units(y), x=pixels), self.n_draws, self.draws)

    def design(self, setting: Setting, y: Tensor) -> ImageDesign:
        """The sizes of the networks of a setting for targets y (n, D)."""
        return ImageDesign(
            self.backbone,
            self.neck,
            y.shape[1],
            setting.n_components,
            setting.n_members,
            setting.dropout if self.on_features else (),
            Ties.of(y).min_scale(self._units(y).y.scale),
            residual=setting.method == ResidualNCE.name,
        )

    @property
    def _known(self) -> Backbone:
        return backbones.find(self.backbone)

    def _units(self, y: Tensor) -> Units:
        if self.units == "standard":
            return Units.of(None, y)
        units = Units.raw(None, y.shape[1])
        # The paper's energies have no tail, and get one when they are used. Early stopping needs the NLL of
        # the density in use, so with it they have a tail from the start.
        return units if self.config.patience is None else replace(units, tail=Tail.of(y))


IMAGE_RECIPES: dict[str, ImageRecipe] = {
    # The authors' code: the backbone is frozen for 20 epochs with batch-norm in training mode, which the
    # paper does not say; targets in their own units, 1,024 independent draws.
    "paper": ImageRecipe(
        replace(PAPER, frozen_epochs=20, frozen_norm="training"),
        units="raw",
        n_draws=1024,
        draws="independent",
    ),
    # A frozen backbone, its features computed once, and a trained layer on them: minutes instead of hours.
    "features": ImageRecipe(PAPER, backbone="efficientnet-lite0", augments=False, neck=256),
    # From random weights. The learning rate falls to 0: at a constant rate batch-norm's averages lag behind
    # the weights, and an NLL of 4.2 in training mode was 10.5 in evaluation mode.
    "scratch": ImageRecipe(replace(PAPER, schedule="one-cycle"), weights=RANDOM),
}
