"""Backbone: an entry of the registry: a network for images, with its pixel units."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ebreg.networks.backbones.pixels import PixelUnits

# In place of a path: the trained weights of the network's library, which may download them.
DOWNLOAD = "download"


@dataclass(frozen=True)
class Backbone:
    """A network from images (B, 3, H, W) to features (B, H).

    Attributes:
        name: Its name for :func:`ebreg.networks.backbones.find`.
        network: Builds the network from the path of a checkpoint, ``"download"`` or None; without arguments
            if ``pretrained``.
        units: Builds its pixel units.
        n_features: H.
        pretrained: Whether it always has trained weights.
        downloads: Whether its library can download trained weights.
    """

    name: str
    network: Callable[..., nn.Module]
    units: Callable[[], PixelUnits]
    n_features: int
    pretrained: bool = False
    downloads: bool = False

    def build(self, weights: str | Path | None = None) -> nn.Module:
        """Build the network.

        Args:
            weights: The path of a checkpoint, or ``"download"`` for the weights of its library. None: its
                trained weights if ``pretrained``, else random weights.
        """
        if weights == DOWNLOAD and not self.downloads:
            raise ValueError(
                f"{self.name} has no weights to download; "
                + ("leave out weights" if self.pretrained else "give the path of a checkpoint")
            )
        if not self.pretrained:
            return self.network(weights)
        if weights is not None:
            raise ValueError(
                f"{self.name} comes with its own weights and takes no file, got {weights}; leave out "
                "weights, or use another backbone"
            )
        return self.network()

    def build_trained(self, weights: str | Path | None = None) -> nn.Module:
        """Build the network; random weights are an error."""
        if weights is None and not self.pretrained:
            raise ValueError(
                f"{self.name} comes without trained weights; give the path of a checkpoint as weights, or "
                + (f"{DOWNLOAD!r}" if self.downloads else "use efficientnet-lite0")
            )
        return self.build(weights)
