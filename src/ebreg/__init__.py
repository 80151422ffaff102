"""Energy-based regression: the whole distribution p(y | x), with a proposal that is learned, not tuned."""

from typing import Any

from ebreg import distributions, importance, methods, models, networks, objectives, predictive, training
from ebreg._version import __version__
from ebreg.config import TrainingConfig
from ebreg.models import EnergyModel, MixtureModel
from ebreg.training import fit

# Imported when first asked for: scikit-learn takes longer to import than all the rest but torch.
_LATE = {
    "EnergyRegressor": "ebreg.estimators",
    "MixtureDensityRegressor": "ebreg.estimators",
    "load": "ebreg.persistence",
}

__all__ = [
    "EnergyModel",
    "EnergyRegressor",
    "MixtureDensityRegressor",
    "MixtureModel",
    "TrainingConfig",
    "__version__",
    "distributions",
    "fit",
    "importance",
    "load",
    "methods",
    "models",
    "networks",
    "objectives",
    "predictive",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'ebreg' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
