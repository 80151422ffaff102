"""From an unnormalised density to a predictive distribution, by the engine that was asked for."""

from ebreg.predictive.accuracy import Accuracy
from ebreg.predictive.importance_sampling import importance_sampling
from ebreg.predictive.protocol import Predictive
from ebreg.predictive.quadrature import quadrature
from ebreg.predictive.self_normalized import self_normalized
from ebreg.predictive.unnormalized import Unnormalized


def normalize(target: Unnormalized, accuracy: Accuracy) -> Predictive:
    """The predictive distribution of a density; ``accuracy`` names the engine."""
    if accuracy.engine == "importance":
        return self_normalized(target, accuracy)
    return (quadrature if target.n_targets == 1 else importance_sampling)(target, accuracy)
