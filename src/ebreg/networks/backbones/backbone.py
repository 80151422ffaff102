"""Backbone: a network for images by its name, with the units of its pixels."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ebreg.networks.backbones.pixels import PixelUnits

# In place of a path: the trained weights of the library that the network is from, which it may download.
DOWNLOAD = "download"


@dataclass(frozen=True)
class Backbone:
    """A network that turns images (B, 3, H, W) into features (B, H).

    Attributes:
        name: What it is called by :func:`ebreg.networks.backbones.find`.
        network: Makes it: from the path of a checkpoint, ``"download"`` or None, or from nothing if
            ``pretrained``.
        units: Makes the units of its pixels.
        n_features: H.
        pretrained: Whether its weights come with it, trained.
        downloads: Whether its library can download trained weights.
    """

    name: str
    network: Callable[..., nn.Module]
    units: Callable[[], PixelUnits]
    n_features: int
    pretrained: bool = False
    downloads: bool = False

    def build(self, weights: str | Path | None = None) -> nn.Module:
        """Make the network.

        Args:
            weights: The path of a checkpoint, or ``"download"`` for those of the library it is from. None:
                the weights it comes with, or random ones where it comes with none.
        """
        if weights == DOWNLOAD and not self.downloads:
            raise ValueError(
                f"{self.name} is from no library that downloads weights; "
                + ("leave weights out" if self.pretrained else "give the path of a checkpoint")
            )
        if not self.pretrained:
            return self.network(weights)
        if weights is not None:
            raise ValueError(
                f"{self.name} comes with its own weights and takes no file, got {weights}; leave weights "
                "out, or take another backbone"
            )
        return self.network()

    def build_trained(self, weights: str | Path | None = None) -> nn.Module:
        """The same, but random weights are an error."""
        if weights is None and not self.pretrained:
            raise ValueError(
                f"{self.name} comes without trained weights; give the path of a checkpoint as weights, or "
                + (f"{DOWNLOAD!r}" if self.downloads else "take efficientnet-lite0")
            )
        return self.build(weights)
