"""Models: an energy with its proposal, an energy that corrects its proposal, and a mixture alone."""

from ebreg.models.calibration import Calibration
from ebreg.models.energy_model import EnergyModel
from ebreg.models.evaluation_mode import evaluation_mode
from ebreg.models.mixture_model import MixtureModel
from ebreg.models.model import Model
from ebreg.models.residual_model import Position, ResidualModel

__all__ = [
    "Calibration",
    "EnergyModel",
    "MixtureModel",
    "Model",
    "Position",
    "ResidualModel",
    "evaluation_mode",
]
