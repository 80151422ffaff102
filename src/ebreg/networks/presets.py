"""Presets: the networks of the paper, and the defaults for tables."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import nn

from ebreg.networks.energy_head import EnergyHead
from ebreg.networks.mixture_head import MixtureHead
from ebreg.networks.mlp import MLP
from ebreg.units import Bounds


@dataclass(frozen=True)
class Networks:
    """Networks of one model: the backbone, and on its features the energy head and the head that gives q."""

    backbone: nn.Module
    energy: nn.Module
    mixture: nn.Module


def paper_1d(n_components: int = 4) -> Networks:
    """The networks of the paper's 1-D experiments: width 10, one input, one target."""
    return Networks(
        MLP(1, (10, 10)),
        EnergyHead(10, 1, target_widths=(10, 10), joint_widths=(10, 10), activation="relu", residual=True),
        MixtureHead(10, 1, n_components),
    )


def image_heads(n_targets: int = 1, n_components: int = 4, n_features: int = 512) -> Networks:
    """The heads of the paper's image experiments, with an identity as backbone."""
    return Networks(
        nn.Identity(),
        EnergyHead(
            n_features,
            n_targets,
            target_widths=(16, 32, 64, 128),
            joint_widths=(n_features,),
            activation="relu",
            residual=False,
        ),
        MixtureHead(n_features, n_targets, n_components),
    )


def table(
    n_inputs: int,
    n_targets: int = 1,
    n_components: int = 8,
    width: int = 64,
    min_scale: float = 1e-3,
    bounds: Bounds | None = None,
) -> Networks:
    """The default networks for tables, for standardised inputs and targets: SiLU, residual, width 64."""
    heads = smooth_heads(width, n_targets, n_components, width, min_scale, bounds)
    return replace(heads, backbone=MLP(n_inputs, (width, width), activation="silu", residual=True))


def smooth_heads(
    n_features: int,
    n_targets: int = 1,
    n_components: int = 8,
    width: int = 64,
    min_scale: float = 1e-3,
    bounds: Bounds | None = None,
) -> Networks:
    """The heads of :func:`table`, with an identity as backbone.

    Args:
        n_features: H.
        n_targets: D.
        n_components: K.
        width: Width of the energy head's layers.
        min_scale: Lower bound of the mixture's standard deviations, in standard units.
        bounds: Bounds of the targets, in standard units.
    """
    return Networks(
        nn.Identity(),
        EnergyHead(
            n_features,
            n_targets,
            target_widths=(width, width),
            joint_widths=(width, width),
            activation="silu",
            residual=True,
        ),
        MixtureHead(
            n_features,
            n_targets,
            n_components,
            activation="silu",
            min_scale=min_scale,
            spread=True,
            bounds=bounds,
        ),
    )


NETWORKS: dict[str, Callable[..., Networks]] = {
    "paper-1d": paper_1d,
    "image-heads": image_heads,
    "smooth-heads": smooth_heads,
    "table": table,
}
