"""Presets: the networks of the paper, and the defaults for tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from ebreg.networks.correction import Correction
from ebreg.networks.energy_head import EnergyHead
from ebreg.networks.member_energy_head import MemberEnergyHead
from ebreg.networks.member_layers import MemberDropout, linear_of
from ebreg.networks.mixture_head import LinearMixtureHead, MixtureHead
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
    n_members: int = 1,
    dropout: Sequence[float] = (),
) -> Networks:
    """The default networks for tables, for standardised inputs and targets: SiLU, residual, width 64.

    Args:
        n_inputs: Columns.
        n_targets: D.
        n_components: K.
        width: Width of the layers.
        min_scale: See :func:`smooth_heads`.
        bounds: See :func:`smooth_heads`.
        n_members: E.
        dropout: A rate for each member, after every layer of the backbone; none of them: no dropout.

    Several members have one layer more in the backbone, and a mixture that is linear in its features.
    """
    heads = smooth_heads(width, n_targets, n_components, width, min_scale, bounds, n_members)
    if n_members > 1:
        shared = (width, n_targets, n_components, min_scale, bounds, n_members)
        heads = replace(heads, mixture=_smooth_mixture(LinearMixtureHead, *shared))
    backbone = MLP(
        n_inputs,
        (width,) * (2 if n_members == 1 else 3),
        activation="silu",
        residual=True,
        linear=linear_of(n_members),
        dropout=MemberDropout(dropout) if any(dropout) else None,
    )
    return replace(heads, backbone=backbone)


def smooth_heads(
    n_features: int,
    n_targets: int = 1,
    n_components: int = 8,
    width: int = 64,
    min_scale: float = 1e-3,
    bounds: Bounds | None = None,
    n_members: int = 1,
) -> Networks:
    """The heads of :func:`table`, with an identity as backbone.

    Args:
        n_features: H.
        n_targets: D.
        n_components: K.
        width: Width of the energy head's layers.
        min_scale: Lower bound of the mixture's standard deviations, in standard units.
        bounds: Bounds of the targets, in standard units.
        n_members: E.
    """
    energy = _smooth_energy(n_features, n_targets, width, n_members)
    shared = (n_features, n_targets, n_components, min_scale, bounds, n_members)
    return Networks(nn.Identity(), energy, _smooth_mixture(MixtureHead, *shared))


def _smooth_mixture(
    head: type[MixtureHead],
    n_features: int,
    n_targets: int,
    n_components: int,
    min_scale: float,
    bounds: Bounds | None,
    n_members: int,
) -> nn.Module:
    return head(
        n_features,
        n_targets,
        n_components,
        activation="silu",
        min_scale=min_scale,
        spread=True,
        bounds=bounds,
        linear=linear_of(n_members),
    )


def _smooth_energy(n_features: int, n_targets: int, width: int, n_members: int) -> nn.Module:
    if n_members > 1:
        return MemberEnergyHead(n_members, n_features, n_targets, width, width, n_layers=2)
    widths = (width, width)
    return EnergyHead(n_features, n_targets, widths, widths, activation="silu", residual=True)


def residual_energy(n_features: int, n_targets: int = 1, width: int = 64, n_members: int = 1) -> nn.Module:
    """The energy of a :class:`ebreg.models.ResidualModel`: bounded, and 0 before training."""
    return Correction(n_members, n_features, n_targets, width)


NETWORKS: dict[str, Callable[..., Networks]] = {
    "paper-1d": paper_1d,
    "image-heads": image_heads,
    "smooth-heads": smooth_heads,
    "table": table,
}
