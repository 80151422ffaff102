"""Design: the sizes from which a regressor's networks are built, and built again when it is loaded."""

from dataclasses import dataclass, replace

from torch import nn

from ebreg.networks import Networks, smooth_heads, table
from ebreg.units import Bounds


@dataclass(frozen=True)
class Design:
    """The sizes of a regressor's networks.

    Attributes:
        n_inputs: Columns of a table; None with a backbone of the user's own.
        n_features: H, the number of features that the backbone gives.
        n_targets: D.
        n_components: K.
        width: Of the layers.
        min_scale: Smallest standard deviation of a mixture component, in standard units.
        bounded: Whether any target has a finite bound.
    """

    n_inputs: int | None
    n_features: int
    n_targets: int
    n_components: int
    width: int
    min_scale: float
    bounded: bool

    def networks(self, bounds: Bounds, backbone: nn.Module | None = None) -> Networks:
        """New networks, for bounds in standard units; a backbone of the user's own is used as it is."""
        shared = (self.n_targets, self.n_components, self.width, self.min_scale, bounds)
        if self.n_inputs is not None:
            return table(self.n_inputs, *shared)
        if backbone is None:
            raise ValueError("the model was fitted with a backbone of the user's own: pass it as backbone")
        return replace(smooth_heads(self.n_features, *shared), backbone=backbone)
