"""Distributions with closed forms: Gaussian mixtures, their truncation to a box, the hand-set noise."""

from ebreg.distributions.full import FullMixture
from ebreg.distributions.mixture import GaussianMixture
from ebreg.distributions.noise import TargetNoise
from ebreg.distributions.questions import check_levels, check_mass, quantiles
from ebreg.distributions.truncated import TruncatedMixture

__all__ = [
    "FullMixture",
    "GaussianMixture",
    "TargetNoise",
    "TruncatedMixture",
    "check_levels",
    "check_mass",
    "quantiles",
]
