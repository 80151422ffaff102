"""Distributions with closed forms: Gaussian mixtures, their truncation to a box, the hand-set noise."""

from ebreg.distributions.full_mixture import FullMixture
from ebreg.distributions.gaussian_mixture import GaussianMixture
from ebreg.distributions.quantiles import check_levels, check_mass, quantiles
from ebreg.distributions.target_noise import TargetNoise
from ebreg.distributions.truncated_mixture import TruncatedMixture

__all__ = [
    "FullMixture",
    "GaussianMixture",
    "TargetNoise",
    "TruncatedMixture",
    "check_levels",
    "check_mass",
    "quantiles",
]
