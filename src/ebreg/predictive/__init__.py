"""Predictive distributions: p(y | x) as data, made once, in the user's units.

:class:`Predictive` lists the verbs. The forms are :class:`NodeDensity` for one target, made by
:func:`quadrature`; :class:`AdaptiveDraws` for several, made by :func:`importance_sampling`;
:class:`WeightedDraws`, the paper's own estimator for any number of targets, made by :func:`self_normalized`;
:class:`ebreg.distributions.GaussianMixture`, which is its own predictive distribution, and
:class:`ProposalDraws` of any other Distribution. A row's answer never depends on the other rows of the batch.
"""

from ebreg.predictive.accuracy import DEFAULT, ENGINES, VALIDATION, Accuracy, accuracy_or_default
from ebreg.predictive.adaptive_draws import AdaptiveDraws
from ebreg.predictive.ascent import ascend
from ebreg.predictive.corrected_quadrature import CorrectedMembers, corrected_quadrature, in_single_precision
from ebreg.predictive.importance_sampling import importance_sampling
from ebreg.predictive.node_density import NodeDensity
from ebreg.predictive.normalize import normalize
from ebreg.predictive.proposal_draws import ProposalDraws, draws_of_proposal
from ebreg.predictive.protocol import Predictive
from ebreg.predictive.quadrature import quadrature
from ebreg.predictive.self_normalized import self_normalized
from ebreg.predictive.unnormalized import Unnormalized
from ebreg.predictive.weighted_draws import WeightedDraws

__all__ = [
    "DEFAULT",
    "ENGINES",
    "VALIDATION",
    "Accuracy",
    "AdaptiveDraws",
    "CorrectedMembers",
    "NodeDensity",
    "Predictive",
    "ProposalDraws",
    "Unnormalized",
    "WeightedDraws",
    "accuracy_or_default",
    "ascend",
    "corrected_quadrature",
    "draws_of_proposal",
    "importance_sampling",
    "in_single_precision",
    "normalize",
    "quadrature",
    "self_normalized",
]
