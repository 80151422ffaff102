"""Models: EnergyModel, an energy with its proposal on one backbone, and MixtureModel, a mixture alone."""

from ebreg.models.energy_model import EnergyModel
from ebreg.models.evaluation_mode import evaluation_mode
from ebreg.models.mixture_model import MixtureModel
from ebreg.models.model import Model

__all__ = ["EnergyModel", "MixtureModel", "Model", "evaluation_mode"]
