"""BACKBONES: the networks for images by name, each with the units of its pixels."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ebreg.backbones.efficientnet import efficientnet_lite0
from ebreg.backbones.pixels import PixelUnits
from ebreg.backbones.resnet import resnet18
from ebreg.backbones.small import small_cnn


@dataclass(frozen=True)
class Backbone:
    """A network that turns images (B, 3, H, W) into features (B, H).

    Attributes:
        name: Its name in ``BACKBONES``.
        network: Makes it: from the path of a checkpoint or None, or from nothing if ``pretrained``.
        units: Makes the units of its pixels.
        n_features: H.
        pretrained: Whether its weights come with it, trained.
    """

    name: str
    network: Callable[..., nn.Module]
    units: Callable[[], PixelUnits]
    n_features: int
    pretrained: bool

    def build(self, weights: str | Path | None = None) -> nn.Module:
        """Make the network.

        Args:
            weights: The path of a checkpoint. None: the weights it comes with, or random ones where it comes
                with none.
        """
        if not self.pretrained:
            return self.network(weights)
        if weights is not None:
            raise ValueError(
                f"{self.name} comes with its own weights and takes no file, got {weights}; leave weights "
                f"out, or take {_names(pretrained=False)}"
            )
        return self.network()

    def build_trained(self, weights: str | Path | None = None) -> nn.Module:
        """The same, but random weights are an error."""
        if weights is None and not self.pretrained:
            raise ValueError(
                f"{self.name} comes without trained weights; give the path of a checkpoint as weights, or "
                f"take {_names(pretrained=True)}"
            )
        return self.build(weights)


def _names(pretrained: bool) -> str:
    return " or ".join(name for name, backbone in BACKBONES.items() if backbone.pretrained == pretrained)


_ALL = (
    Backbone("resnet18", resnet18, PixelUnits.imagenet, n_features=512, pretrained=False),
    Backbone(
        "efficientnet-lite0",
        efficientnet_lite0,
        PixelUnits.efficientnet_lite,
        n_features=1280,
        pretrained=True,
    ),
    Backbone("small-cnn", small_cnn, PixelUnits.imagenet, n_features=128, pretrained=False),
)
BACKBONES: dict[str, Backbone] = {backbone.name: backbone for backbone in _ALL}
