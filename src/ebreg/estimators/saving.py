"""What of a fitted regressor is saved, and a regressor again from that."""

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ebreg._utils.random_state import seeded
from ebreg.errors import ModelFileError
from ebreg.estimators.design import Design
from ebreg.models import Model
from ebreg.networks import Networks
from ebreg.saving import folders
from ebreg.units import Units

# Fitted attributes that are kept as they are, and what a file that nobody edited has for them.
_FACTS: dict[str, tuple[type, ...]] = {
    "history_": (list,),
    "n_iter_": (int,),
    "best_epoch_": (int, type(None)),
    "target_names_": (list, type(None)),
}


class Saving(BaseEstimator):
    """Mixed into regressors: ``save``, and what :func:`ebreg.load` needs."""

    _keeps: type[Model]
    model_: Any

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a folder that :func:`ebreg.load` reads.

        Args:
            path: Must not exist yet.
            overwrite: Whether a saved model may be replaced; any other folder or file never is.
        """
        check_is_fitted(self, "model_")
        if type(self).__module__.split(".")[0] != "ebreg":
            raise ModelFileError(
                f"{type(self).__name__} is a class of your own, which a file cannot hold; use pickle for it"
            )
        folders.write(Path(path), self._config(), self._tensors(), overwrite)

    def _config(self) -> dict[str, Any]:
        params = self.get_params(deep=False)
        params.pop("backbone")
        has_backbone = self.design_.n_inputs is None
        if isinstance(params["random_state"], np.random.RandomState | np.random.Generator):
            params["random_state"] = None  # the state of a stream is not part of what was learned
        return {
            "regressor": type(self).__name__,
            "params": {name: folders.plain(f"the parameter {name}", value) for name, value in params.items()},
            "backbone": has_backbone,
            "input_shape": list(self.input_shape_) if has_backbone else None,
            "input_dtype": _name(getattr(self, "input_dtype_", None)) if has_backbone else None,
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": folders.plain("a column", getattr(self, "feature_names_in_", None)),
            "drop_target_axis": self._drop_target_axis,
            "design": asdict(self.design_),
            **{name.rstrip("_"): folders.plain(name, getattr(self, name)) for name in _FACTS},
        }

    def _tensors(self) -> dict[str, Tensor]:
        # The library's networks were trained in single precision, and so they are stored. Units are buffers,
        # in double; a backbone of the user's own is stored as it is.
        model = self.model_
        own = ("backbone.",) if self.design_.n_inputs is None else ()
        trained = {name for name, _ in model.named_parameters() if not name.startswith(own)}
        return {
            name: value.float() if name in trained else value for name, value in model.state_dict().items()
        }

    @classmethod
    def _from_config(
        cls, config: dict[str, Any], tensors: dict[str, Tensor], backbone: nn.Module | None
    ) -> Self:
        regressor = cls(**config["params"], backbone=backbone)
        regressor.design_ = Design(**config["design"])
        regressor.model_ = cls._keeps.of(*_blank(regressor.design_, copy.deepcopy(backbone)))
        folders.fill(regressor.model_, tensors)
        regressor.model_.to_float64().eval()
        regressor._fitted_backbone = backbone
        regressor.interrupted_ = False
        regressor._drop_target_axis = _entry(config, "drop_target_axis", bool)
        for name, types in _FACTS.items():
            setattr(regressor, name, _entry(config, name.rstrip("_"), *types))
        if backbone is not None:
            regressor.input_shape_ = tuple(_entry(config, "input_shape", list))
            regressor.input_dtype_ = _dtype(config.get("input_dtype"))
        else:
            regressor.n_features_in_ = _entry(config, "n_features_in", int)
        names = _entry(config, "feature_names_in", list, type(None))
        if names is not None:
            regressor.feature_names_in_ = np.array(names, dtype=object)
        return regressor


def _blank(design: Design, backbone: nn.Module | None) -> tuple[Networks, Units]:
    units = Units.blank(design.n_inputs, design.n_targets, design.bounded)
    # First weights are drawn, only to be replaced: nobody else's random numbers change by that.
    with seeded(0):
        return design.networks(units.standard_bounds, backbone), units


def _name(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _dtype(name: Any) -> torch.dtype | None:
    if name is None:  # a folder of an earlier version
        return None
    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"input_dtype is {name!r}")
    return dtype


def _entry(config: dict[str, Any], name: str, *types: type) -> Any:
    value = config[name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"{name} is {value!r}")
    return value
