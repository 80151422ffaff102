"""Distributions with closed forms: Gaussian mixtures, log-linear densities, modes and regions."""

from ebreg.distributions.ascent import gradient_ascent
from ebreg.distributions.full_mixture import FullMixture
from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.distributions.log_linear import LogLinear
from ebreg.distributions.quantiles import check_levels, quantiles
from ebreg.distributions.regions import Mode, Modes, Region
from ebreg.distributions.target_noise import TargetNoise
from ebreg.distributions.truncated_mixture import TruncatedMixture

__all__ = [
    "FullMixture",
    "GaussianMixture",
    "LogLinear",
    "Mode",
    "Modes",
    "Region",
    "TargetNoise",
    "TruncatedMixture",
    "check_levels",
    "gradient_ascent",
    "quantiles",
]
