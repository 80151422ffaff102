"""Energy-based regression: the whole distribution p(y | x), with a proposal that is learned, not tuned."""

from ebreg import distributions, importance, methods, models, networks, objectives, predictive, training
from ebreg._version import __version__
from ebreg.config import TrainingConfig
from ebreg.models import EnergyModel, MixtureModel
from ebreg.training import fit

__all__ = [
    "EnergyModel",
    "MixtureModel",
    "TrainingConfig",
    "__version__",
    "distributions",
    "fit",
    "importance",
    "methods",
    "models",
    "networks",
    "objectives",
    "predictive",
    "training",
]
