"""Energy-based regression: the whole distribution p(y | x), with a proposal that is learned, not tuned."""

from ebreg import distributions, importance, methods, models, networks, objectives, predictive
from ebreg._version import __version__
from ebreg.models import EnergyModel, MixtureModel

__all__ = [
    "EnergyModel",
    "MixtureModel",
    "__version__",
    "distributions",
    "importance",
    "methods",
    "models",
    "networks",
    "objectives",
    "predictive",
]
