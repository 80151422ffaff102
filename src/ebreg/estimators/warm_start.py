"""Warm start: what must be equal for a fit to continue from a fitted regressor, and its model."""

import copy
from typing import Any

from ebreg.estimators.custom_networks import CustomNetworks
from ebreg.models import Model
from ebreg.units import Bounds

_ADVICE = "set warm_start=False to train a new model"


def check(regressor: Any, n_targets: int, bounds: Bounds) -> None:
    """Require the networks, the number of targets and the bounds of the fitted model."""
    fitted, own = regressor._fitted_networks, CustomNetworks.of(regressor)
    for name in ("backbone", "proposal", "energy"):
        if getattr(own, name) is not getattr(fitted, name):
            raise ValueError(f"{name} is not that of the fitted model; {_ADVICE}")
    n_members = regressor._recipe().n_members
    if n_members != regressor.design_.n_members:
        raise ValueError(
            f"n_members is {n_members}, and {regressor.design_.n_members} in the fitted model; {_ADVICE}"
        )
    names = ["n_components", "width"]
    names += ["proposal"] if fitted.proposal is None else []
    for name in names:
        was, now = getattr(regressor.design_, name), getattr(regressor, name)
        if was != now:
            raise ValueError(f"{name} is {now}, and {was} in the fitted model; {_ADVICE}")
    model = regressor.model_
    if n_targets != model.n_targets:
        raise ValueError(f"y has {n_targets} targets and the fitted model has {model.n_targets}; {_ADVICE}")
    before = copy.deepcopy(model.bounds).cpu()
    if not (bounds.low.equal(before.low) and bounds.high.equal(before.high)):
        raise ValueError(f"bounds are not those of the fitted model; {_ADVICE}")


def trainable_copy(model: Model) -> Model:
    """A copy of a fitted model, with the library's own networks in float32 again."""
    return copy.deepcopy(model).to_float32()
