"""Distributions with closed forms: the Gaussian mixture, its truncation to a box, the hand-set noise."""

from ebreg.distributions.mixture import GaussianMixture
from ebreg.distributions.noise import TargetNoise
from ebreg.distributions.questions import check_levels, check_mass, quantiles
from ebreg.distributions.truncated import TruncatedMixture

__all__ = ["GaussianMixture", "TargetNoise", "TruncatedMixture", "check_levels", "check_mass", "quantiles"]
