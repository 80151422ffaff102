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

from ebreg import folders
from ebreg.estimators.design import Design
from ebreg.models import Model
from ebreg.units import Units

# Fitted attributes that are kept as they are.
_FACTS = ("history_", "n_iter_", "best_epoch_", "target_names_")


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
        folders.write(Path(path), self._config(), _single(self.model_), overwrite)

    def _config(self) -> dict[str, Any]:
        params = self.get_params(deep=False)
        has_backbone = params.pop("backbone") is not None
        if isinstance(params["random_state"], np.random.RandomState | np.random.Generator):
            params["random_state"] = None  # the state of a stream is not part of what was learned
        return {
            "regressor": type(self).__name__,
            "params": folders.plain("a parameter", params),
            "backbone": has_backbone,
            "input_shape": list(self.input_shape_) if has_backbone else None,
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": folders.plain("a column", getattr(self, "feature_names_in_", None)),
            "drop_target_axis": self._drop_target_axis,
            "design": asdict(self.design_),
            **{name.rstrip("_"): folders.plain(name, getattr(self, name)) for name in _FACTS},
        }

    @classmethod
    def _from_config(
        cls, config: dict[str, Any], tensors: dict[str, Tensor], backbone: nn.Module | None
    ) -> Self:
        regressor = cls(**config["params"], backbone=backbone)
        design = Design(**config["design"])
        units = Units.blank(design.n_inputs, design.n_targets, design.bounded)
        model = cls._keeps.of(design.parts(units.tail.bounds, copy.deepcopy(backbone)), units)
        folders.fill(model, tensors)
        regressor.design_, regressor.model_ = design, model.exact().eval()
        regressor._drop_target_axis = bool(config["drop_target_axis"])
        for name in _FACTS:
            setattr(regressor, name, config[name.rstrip("_")])
        if config["input_shape"] is not None:
            regressor.input_shape_ = tuple(config["input_shape"])
        if config["n_features_in"] is not None:
            regressor.n_features_in_ = int(config["n_features_in"])
        if config["feature_names_in"] is not None:
            regressor.feature_names_in_ = np.array(config["feature_names_in"], dtype=object)
        return regressor


def _single(model: Model) -> dict[str, Tensor]:
    # Networks were trained in single precision, and so they are stored; units are buffers, in double.
    trained = {name for name, _ in model.named_parameters()}
    return {
        name: value.float() if name in trained and value.dtype == torch.float64 else value
        for name, value in model.state_dict().items()
    }
