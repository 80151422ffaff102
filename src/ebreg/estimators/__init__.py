"""Regressors with the API of scikit-learn that predict whole distributions."""

from ebreg.estimators.base import DistributionRegressor
from ebreg.estimators.energy import EnergyRegressor
from ebreg.estimators.mixture import MixtureDensityRegressor
from ebreg.estimators.prediction import Prediction

__all__ = ["DistributionRegressor", "EnergyRegressor", "MixtureDensityRegressor", "Prediction"]
