"""A fitted regressor as facts and tensors, and the regressor of such facts and tensors."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ebreg.errors import ModelFileError
from ebreg.estimators.conformal import Conformal
from ebreg.estimators.custom_networks import CustomNetworks
from ebreg.estimators.design import Design
from ebreg.estimators.seen import SeenInputs
from ebreg.estimators.tensor_record import TensorRecord
from ebreg.models import Model
from ebreg.saving import folders
from ebreg.saving.schema import (
    anything,
    each,
    either,
    fields,
    flag,
    mapping,
    none_or,
    number,
    text,
    whole,
)
from ebreg.units import Float64Module, Units

# Fitted attributes that are saved as they are.
_FITTED = {
    "history_": each(mapping(none_or(number()))),
    "n_iter_": whole(),
    "best_epoch_": none_or(either(whole(), each(whole()))),
    "interrupted_": flag,
    "target_names_": none_or(each(either(number(), text()))),
}
# Fitted attributes that a regressor may have, saved as tensors with their names in front.
RECORDS: dict[str, type[TensorRecord]] = {"conformal_": Conformal, "seen_": SeenInputs}
_FACTS = fields(
    kind=text(),
    params=mapping(anything),
    custom_networks=each(text()),
    input_shape=none_or(each(whole(1))),
    input_dtype=none_or(text()),
    n_features_in=none_or(whole(1)),
    feature_names_in=none_or(each(text())),
    drop_target_axis=flag,
    design=fields(
        n_inputs=none_or(whole(1)),
        n_features=whole(1),
        n_targets=whole(1),
        n_components=whole(1),
        width=whole(1),
        min_scale=number(0),
        bounded=flag,
        proposal=none_or(text()),
        n_members=whole(1),
        dropout=each(number(0)),
        residual=flag,
    ),
    **{name.rstrip("_"): check for name, check in _FITTED.items()},
)


class Saving(BaseEstimator):
    """Mixed into regressors: ``save``, and what :func:`ebreg.load` needs."""

    model_: Any

    @classmethod
    def _model_class(cls, residual: bool) -> type[Model]:
        raise NotImplementedError  # abstract

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a folder that :func:`ebreg.load` reads.

        Args:
            path: Must not exist yet, be an empty folder, or hold only what a killed save has left.
            overwrite: Whether a saved model may be replaced; any other folder or file never is. The old model
                can be loaded until the new one can.
        """
        check_is_fitted(self, "model_")
        if type(self).__module__.split(".")[0] != "ebreg":
            raise ModelFileError(
                f"{type(self).__name__} is a class of your own, which a file cannot hold; use pickle for it"
            )
        folders.write(Path(path), self._tensors(), self._facts(), overwrite)

    def _facts(self) -> dict[str, Any]:
        own = self._fitted_networks.names
        params = self.get_params(deep=False)
        params = {name: value for name, value in params.items() if name not in {"backbone", *own}}
        has_backbone = self.design_.n_inputs is None
        if isinstance(params["random_state"], np.random.RandomState | np.random.Generator):
            params["random_state"] = None  # the state of a stream is not part of what was learned
        return {
            "kind": type(self).__name__,
            "params": {name: _plain(f"the parameter {name}", value) for name, value in params.items()},
            "custom_networks": own,
            "input_shape": list(self.input_shape_) if has_backbone else None,
            "input_dtype": str(self.input_dtype_).removeprefix("torch.") if has_backbone else None,
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": _plain("a column", getattr(self, "feature_names_in_", None)),
            "drop_target_axis": self._drop_target_axis,
            "design": asdict(self.design_),
            **{name.rstrip("_"): _plain(name, getattr(self, name)) for name in _FITTED},
        }

    def _tensors(self) -> dict[str, Tensor]:
        # The heads and the library's backbone were trained in single precision, and so they are stored. Units
        # are buffers, in double; a backbone of the user's own is stored as it is.
        model = self.model_
        own = ("backbone",) if self.design_.n_inputs is None else ()
        single = {
            f"{path}.{name}"
            for path, module in model.named_modules()
            if not isinstance(module, Float64Module) and not path.startswith(own)
            for name, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
            if value.is_floating_point()
        }
        weights = {
            name: value.float() if name in single else value for name, value in model.state_dict().items()
        }
        return weights | {
            f"{record}.{name}": value
            for record in RECORDS
            if hasattr(self, record)
            for name, value in getattr(self, record).tensors().items()
        }

    @classmethod
    def _from_facts(cls, facts: dict[str, Any], tensors: dict[str, Tensor], own: CustomNetworks) -> Self:
        _FACTS("", facts)
        regressor = cls(**facts["params"], **{name: getattr(own, name) for name in own.names})
        design = Design(**{**facts["design"], "dropout": tuple(facts["design"]["dropout"])})
        regressor.design_ = design
        tensors, records = _without_records(tensors)
        for name, record in records.items():
            setattr(regressor, name, RECORDS[name].from_tensors(record))
        _check_records(regressor, design)
        regressor.model_ = _model(cls._model_class(design.residual), design, tensors, own.copied())
        regressor.model_.to_float64().eval()
        regressor._fitted_networks = own
        regressor._drop_target_axis = facts["drop_target_axis"]
        for name in _FITTED:
            setattr(regressor, name, facts[name.rstrip("_")])
        if own.backbone is not None:
            regressor.input_shape_ = tuple(facts["input_shape"])
            regressor.input_dtype_ = _dtype(facts["input_dtype"])
        else:
            regressor.n_features_in_ = facts["n_features_in"]
        if facts["feature_names_in"] is not None:
            regressor.feature_names_in_ = np.array(facts["feature_names_in"], dtype=object)
        return regressor


def _check_records(regressor: Any, design: Design) -> None:
    if hasattr(regressor, "conformal_") and regressor.conformal_.interval_scores.shape[1] != design.n_targets:
        raise ValueError(f"conformal_ has scores of other targets than design.n_targets, {design.n_targets}")
    if hasattr(regressor, "seen_") and design.n_inputs not in (None, len(regressor.seen_.shift)):
        raise ValueError(f"seen_ has other columns than design.n_inputs, {design.n_inputs}")


def _without_records(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    # The weights, and the tensors of each record by their names in it.
    weights: dict[str, Tensor] = {}
    records: dict[str, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        record, _, name = path.partition(".")
        if record in RECORDS:
            records.setdefault(record, {})[name] = value
        else:
            weights[path] = value
    return weights, records


def _model(
    model_class: type[Model], design: Design, tensors: dict[str, Tensor], own: CustomNetworks
) -> Model:
    # Sizes are compared with the weights before anything of that size is made: the numbers of targets and of
    # features here, those of the presets on the meta device, where tensors have shapes and no memory.
    n_targets = _n_columns(tensors, "y_units.shift")
    if design.n_targets != n_targets:
        raise ValueError(f"design.n_targets is {design.n_targets}, and the weights have {n_targets}")
    if (
        design.n_members > 1
        and tensors.get("calibration.weights", torch.empty(0)).numel() != design.n_members
    ):
        raise ValueError(f"design.n_members is {design.n_members}, and the weights are of another number")
    n_inputs = None if design.n_inputs is None else _n_columns(tensors, "x_units.shift")
    units = Units.blank(n_inputs, n_targets, design.bounded)
    with torch.device("meta"):
        networks = design.networks(units.standard_bounds, own)
    if design.n_features not in {size for tensor in tensors.values() for size in tensor.shape}:
        raise ValueError(f"design.n_features is {design.n_features}, and no weights have that size")
    # Not on the meta device: other heads may compute with their tensors as they are built.
    model = model_class.of(design.with_heads(networks, own), units)
    folders.fill(model, tensors)
    return model


def _n_columns(tensors: dict[str, Tensor], name: str) -> int:
    if name not in tensors:
        raise ModelFileError(
            f"the weights do not fit the networks (1 missing: {name}); the folder was edited"
        )
    return tensors[name].numel()


def _plain(name: str, value: Any) -> Any:
    # A setting as JSON holds it. An infinite number, such as an open bound, becomes None.
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        value = value.tolist()
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(name, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(name, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ModelFileError(f"{name} cannot be saved: {value!r} is neither a number nor a string")


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"input_dtype is {name!r}")
    return dtype
