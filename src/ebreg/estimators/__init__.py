"""The front door: regressors with the verbs of scikit-learn, and those of a predictive distribution."""

from ebreg.estimators.base import DistributionRegressor
from ebreg.estimators.energy import EnergyRegressor
from ebreg.estimators.mixture import MixtureDensityRegressor

__all__ = ["DistributionRegressor", "EnergyRegressor", "MixtureDensityRegressor"]
