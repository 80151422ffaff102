"""Networks: features of x, the energy head, the mixture head, and presets of all three."""

from ebreg.networks.activations import ACTIVATIONS
from ebreg.networks.correction import Correction
from ebreg.networks.energy_head import EnergyHead
from ebreg.networks.full_mixture_head import FullMixtureHead
from ebreg.networks.member_energy_head import MemberEnergyHead
from ebreg.networks.member_layers import (
    MemberDropout,
    MemberLinear,
    count_members,
    keep_members,
    linear_of,
    member_rates,
)
from ebreg.networks.member_tiles import in_tiles
from ebreg.networks.mixture_head import LinearMixtureHead, MixtureHead
from ebreg.networks.mlp import MLP
from ebreg.networks.presets import (
    NETWORKS,
    Networks,
    image_heads,
    paper_1d,
    residual_energy,
    smooth_heads,
    table,
)
from ebreg.networks.proposals import DEFAULT_PROPOSAL, PROPOSALS, with_heads

__all__ = [
    "ACTIVATIONS",
    "DEFAULT_PROPOSAL",
    "MLP",
    "NETWORKS",
    "PROPOSALS",
    "Correction",
    "EnergyHead",
    "FullMixtureHead",
    "LinearMixtureHead",
    "MemberDropout",
    "MemberEnergyHead",
    "MemberLinear",
    "MixtureHead",
    "Networks",
    "count_members",
    "image_heads",
    "in_tiles",
    "keep_members",
    "linear_of",
    "member_rates",
    "paper_1d",
    "residual_energy",
    "smooth_heads",
    "table",
    "with_heads",
]
