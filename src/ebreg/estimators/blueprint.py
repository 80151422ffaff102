"""Blueprint: everything that the networks of a new model are built from."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ebreg._utils import checks
from ebreg.estimators.custom_networks import CustomNetworks
from ebreg.estimators.design import Design
from ebreg.estimators.recipe import Recipe
from ebreg.estimators.rows import Rows
from ebreg.models import evaluation_mode
from ebreg.networks import Networks
from ebreg.training.batches import TensorData
from ebreg.units import Units


@dataclass(frozen=True)
class Blueprint:
    """Sizes and units of new networks.

    Attributes:
        design: The sizes.
        units: The scales of inputs and targets, and the bounds.
        own: The user's own networks, with the weights to start from.
    """

    design: Design
    units: Units
    own: CustomNetworks

    @classmethod
    def of(
        cls,
        rows: Rows,
        train: TensorData,
        width: int,
        own: CustomNetworks,
        proposal: Any,
        recipe: Recipe,
        residual: bool,
    ) -> "Blueprint":
        """For the rows of a fit; the units are those of the training rows."""
        own = own.copied()
        backbone = own.backbone
        units = Units.of(train.x if backbone is None else None, train.y, rows.bounds)
        width = checks.at_least("width", width, 1)
        design = Design(
            n_inputs=train.x.shape[1] if backbone is None else None,
            n_features=width if backbone is None else count_features(backbone, train.x),
            n_targets=train.y.shape[1],
            n_components=checks.at_least("n_components", recipe.n_components, 1),
            width=width,
            min_scale=rows.ties.min_scale(units.y.scale),
            bounded=not units.standard_bounds.are_open,
            proposal=proposal if isinstance(proposal, str) else None,
            n_members=recipe.n_members,
            dropout=recipe.member_dropout,
            residual=residual,
        )
        return cls(design, units, own)

    def networks(self) -> Networks:
        """New networks with random weights, and copies of the user's own."""
        own = self.own.copied()
        return self.design.with_heads(self.design.networks(self.units.standard_bounds, own), own)


def count_features(backbone: nn.Module, x: Tensor) -> int:
    """H, from a call of the backbone with the first two examples of x, shape (n, ...)."""
    if not isinstance(backbone, nn.Module):
        raise TypeError(f"backbone must be a torch.nn.Module, got {type(backbone).__name__}")
    reference = next(backbone.parameters(), torch.empty(0))
    some = x[:2].to(reference.device)
    try:
        with torch.no_grad(), evaluation_mode(backbone):
            h = backbone(some.to(reference.dtype) if some.is_floating_point() else some)
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
