"""Networks: features of x, the energy head, the mixture head, and presets of all three."""

from ebreg.networks.activations import ACTIVATIONS
from ebreg.networks.energy_head import EnergyHead
from ebreg.networks.full_mixture_head import FullMixtureHead
from ebreg.networks.mixture_head import MixtureHead
from ebreg.networks.mlp import MLP
from ebreg.networks.presets import NETWORKS, Networks, image_heads, paper_1d, smooth_heads, table
from ebreg.networks.proposals import DEFAULT_PROPOSAL, PROPOSALS, with_heads

__all__ = [
    "ACTIVATIONS",
    "DEFAULT_PROPOSAL",
    "MLP",
    "NETWORKS",
    "PROPOSALS",
    "EnergyHead",
    "FullMixtureHead",
    "MixtureHead",
    "Networks",
    "image_heads",
    "paper_1d",
    "smooth_heads",
    "table",
    "with_heads",
]
