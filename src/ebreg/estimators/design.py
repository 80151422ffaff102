"""Design: the few numbers from which a regressor's networks are built, and rebuilt when it is loaded."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ebreg.models import evaluation_mode
from ebreg.networks import Networks, smooth_heads, table
from ebreg.units import Bounds


@dataclass(frozen=True)
class Design:
    """The networks of a regressor.

    Attributes:
        n_inputs: Columns of a table; None where the user brings the backbone.
        n_features: H, of the backbone.
        n_targets: D.
        n_components: K.
        width: Of the layers.
        min_scale: Lower bound of the mixture's standard deviations, in standard units.
        bounded: Whether a target ends somewhere.
    """

    n_inputs: int | None
    n_features: int
    n_targets: int
    n_components: int
    width: int
    min_scale: float
    bounded: bool

    def parts(self, bounds: Bounds, backbone: nn.Module | None = None) -> Networks:
        """The networks, for bounds in standard units."""
        shared = (self.n_targets, self.n_components, self.width, self.min_scale, bounds)
        if self.n_inputs is not None:
            return table(self.n_inputs, *shared)
        if backbone is None:
            raise ValueError("the networks were built on a backbone of the user's own, which must be given")
        return replace(smooth_heads(self.n_features, *shared), backbone=backbone)


def count_features(backbone: nn.Module, x: Tensor) -> int:
    """H, found by showing the backbone an example or two; x has shape (n, ...)."""
    if not isinstance(backbone, nn.Module):
        raise TypeError(f"backbone must be a torch.nn.Module, got {type(backbone).__name__}")
    like = next(backbone.parameters(), torch.empty(0))
    some = x[:2].to(like.device)
    try:
        with torch.no_grad(), evaluation_mode(backbone):
            h = backbone(some.to(like.dtype) if some.is_floating_point() else some)
    except Exception as error:
        raise ValueError(
            f"backbone failed on examples of shape {tuple(x.shape[1:])} and dtype {x.dtype}: {error}"
        ) from error
    if not isinstance(h, Tensor) or h.dim() != 2 or len(h) != len(some) or not h.shape[1]:
        got = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
        raise ValueError(
            f"backbone must turn a batch of B examples into features (B, H), got {got} for B = {len(some)}"
        )
    return h.shape[1]
