"""What can be asked of p(y | x), and who answers for an energy-based model with its proposal.

:class:`Predictive` is the protocol. :class:`Quadrature1D` answers for one target, :class:`ImportanceND` for
several, :class:`ebreg.distributions.GaussianMixture` for itself; :class:`Grouped` joins those of several
groups of rows, and :class:`Rescaled` adds the user's units.
A row's answer never depends on the other rows of the batch.
"""

from ebreg.predictive.grouped import Grouped
from ebreg.predictive.importance import ImportanceND
from ebreg.predictive.protocol import Predictive
from ebreg.predictive.quadrature import Quadrature1D
from ebreg.predictive.refined import Unnormalized, refined
from ebreg.predictive.rescaled import Rescaled
from ebreg.predictive.support import Support

__all__ = [
    "Grouped",
    "ImportanceND",
    "Predictive",
    "Quadrature1D",
    "Rescaled",
    "Support",
    "Unnormalized",
    "refined",
]
