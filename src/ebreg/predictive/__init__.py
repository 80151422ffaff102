"""Predictive distributions: p(y | x) as data, made once, in the user's units.

:class:`Predictive` lists the verbs. There are three forms: :class:`NodeDensity` for one target, made by
:func:`quadrature`; :class:`WeightedDraws` for several, made by :func:`importance_sampling`;
:class:`ebreg.distributions.GaussianMixture`, which is its own predictive distribution. A row's answer never
depends on the other rows of the batch.
"""

from ebreg.predictive.accuracy import DEFAULT, VALIDATION, Accuracy
from ebreg.predictive.importance_sampling import importance_sampling
from ebreg.predictive.node_density import NodeDensity
from ebreg.predictive.protocol import Predictive
from ebreg.predictive.quadrature import quadrature
from ebreg.predictive.unnormalized import Unnormalized
from ebreg.predictive.weighted_draws import WeightedDraws

__all__ = [
    "DEFAULT",
    "VALIDATION",
    "Accuracy",
    "NodeDensity",
    "Predictive",
    "Unnormalized",
    "WeightedDraws",
    "importance_sampling",
    "quadrature",
]
