"""Energy-based regression: the whole distribution p(y | x), with a proposal that is learned, not tuned."""

from typing import Any

from ebreg import distributions, importance, methods, models, networks, objectives, predictive, training
from ebreg._version import __version__
from ebreg.models import EnergyModel, MixtureModel, ResidualModel
from ebreg.training import fit
from ebreg.training.config import TrainingConfig

# Imported when first asked for: scikit-learn takes longer to import than all the rest but torch.
_LATE = {
    "EnergyRegressor": "ebreg.estimators",
    "MixtureDensityRegressor": "ebreg.estimators",
    "load": "ebreg.loading",
}
_LATE_MODULES = ("datasets", "estimators", "metrics", "plots")

__all__ = [
    "EnergyModel",
    "EnergyRegressor",
    "MixtureDensityRegressor",
    "MixtureModel",
    "ResidualModel",
    "TrainingConfig",
    "__version__",
    "datasets",
    "distributions",
    "estimators",
    "fit",
    "importance",
    "load",
    "methods",
    "metrics",
    "models",
    "networks",
    "objectives",
    "plots",
    "predictive",
    "training",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LATE_MODULES:
        return import_module(f"ebreg.{name}")
    if name not in _LATE:
        raise AttributeError(f"module 'ebreg' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
