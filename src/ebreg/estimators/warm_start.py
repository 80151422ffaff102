"""Warm start: what must be equal for a fit to continue from a fitted regressor, and its model."""

import copy
from typing import Any

from ebreg.models import Model
from ebreg.units import Bounds

_ADVICE = "set warm_start=False to train a new model"


def check(regressor: Any, n_targets: int, bounds: Bounds) -> None:
    """Require the networks, the number of targets and the bounds of the fitted model."""
    if regressor.backbone is not regressor._fitted_backbone:
        raise ValueError(f"backbone is not that of the fitted model; {_ADVICE}")
    for name in ("n_components", "width"):
        before, now = getattr(regressor.design_, name), getattr(regressor, name)
        if before != now:
            raise ValueError(f"{name} is {now}, and {before} in the fitted model; {_ADVICE}")
    model = regressor.model_
    if n_targets != model.n_targets:
        raise ValueError(f"y has {n_targets} targets and the fitted model has {model.n_targets}; {_ADVICE}")
    fitted = copy.deepcopy(model.bounds).cpu()
    if not (bounds.low.equal(fitted.low) and bounds.high.equal(fitted.high)):
        raise ValueError(f"bounds are not those of the fitted model; {_ADVICE}")


def trainable_copy(model: Model) -> Model:
    """A copy of a fitted model, with the library's own networks in float32 again."""
    return copy.deepcopy(model).to_float32()
