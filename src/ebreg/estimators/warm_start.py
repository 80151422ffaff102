"""Warm start: what must be equal for a fit to continue from a fitted regressor, and its model."""

import copy
from typing import Any

from ebreg.estimators.custom_networks import CustomNetworks
from ebreg.methods import ResidualNCE
from ebreg.models import Calibration, Model
from ebreg.units import Bounds

_ADVICE = "set warm_start=False to train a new model"


def check(regressor: Any, n_targets: int, bounds: Bounds) -> None:
    """Require the networks, the number of targets and the bounds of the fitted model."""
    fitted, own = regressor._fitted_networks, CustomNetworks.of(regressor)
    for name in ("backbone", "proposal", "energy"):
        if getattr(own, name) is not getattr(fitted, name):
            raise ValueError(f"{name} is not that of the fitted model; {_ADVICE}")
    recipe = regressor._recipe()
    asked: dict[str, Any] = {} if fitted.proposal is not None else {"proposal": regressor.proposal}
    asked |= {"n_components": recipe.n_components, "width": regressor.width}
    for name, now in asked.items():
        _check_same(name, getattr(regressor.design_, name), now)
    _check_same("n_members", regressor.design_.n_members, recipe.n_members)
    _check_same("dropout", regressor.design_.dropout, recipe.member_dropout)
    if regressor.design_.residual != (regressor._method_name == ResidualNCE.name):
        raise ValueError(
            f"method is {regressor._method_name}, which trains another model than the fitted one; {_ADVICE}"
        )
    model = regressor.model_
    if n_targets != model.n_targets:
        raise ValueError(f"y has {n_targets} targets and the fitted model has {model.n_targets}; {_ADVICE}")
    before = copy.deepcopy(model.bounds).cpu()
    if not (bounds.low.equal(before.low) and bounds.high.equal(before.high)):
        raise ValueError(f"bounds are not those of the fitted model; {_ADVICE}")


def _check_same(name: str, was: Any, now: Any) -> None:
    if was != now:
        raise ValueError(f"{name} is {now}, and {was} in the fitted model; {_ADVICE}")


def trainable_copy(model: Model) -> Model:
    """A copy of a fitted model, with the library's own networks in float32 again, and not calibrated."""
    model = copy.deepcopy(model).to_float32()
    if model.calibration is not None:
        model.calibration = Calibration.none(model.n_members, model.n_targets).to(model.reference.device)
    return model
