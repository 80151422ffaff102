"""Networks: features of x, the energy head, the mixture head, and presets of all three."""

from ebreg.networks.activations import ACTIVATIONS
from ebreg.networks.energy_head import EnergyHead
from ebreg.networks.mixture_head import MixtureHead
from ebreg.networks.mlp import MLP
from ebreg.networks.presets import NETWORKS, Networks, image_heads, paper_1d, smooth_heads, table

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "NETWORKS",
    "EnergyHead",
    "MixtureHead",
    "Networks",
    "image_heads",
    "paper_1d",
    "smooth_heads",
    "table",
]
