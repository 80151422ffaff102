"""Trained image models as folders that :func:`ebreg.load` reads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebreg._utils.random_state import seeded
from ebreg.experiments.images.design import ImageDesign
from ebreg.experiments.images.experiment import ImageExperiment, expect
from ebreg.models import EnergyModel, MixtureModel, Model, ResidualModel
from ebreg.networks import backbones
from ebreg.saving import folders
from ebreg.saving.schema import anything, each, fields, mapping, none_or, number, text, whole
from ebreg.units import Units

_KINDS: tuple[type[Model], ...] = (EnergyModel, MixtureModel, ResidualModel)
_MODELS = {model.__name__: model for model in _KINDS}
_FACTS = fields(
    kind=text("image-model"),
    model=text(*_MODELS),
    image_backbone=text(),
    neck=none_or(whole(1)),
    n_targets=whole(1),
    n_components=whole(1),
    n_members=whole(1),
    dropout=each(number(0, 1)),
    min_scale=number(0),
    image_shape=each(whole(1)),
    training=mapping(anything),
)
# What models have that were saved before there were members.
_BEFORE: dict[str, Any] = {"n_members": 1, "dropout": [], "min_scale": 0.0}


def save(path: Path, experiment: ImageExperiment, model: Model) -> None:
    """Write a trained model, in place of an earlier one.

    Args:
        path: The folder.
        experiment: By which it was trained.
        model: As it is used, see :meth:`ImageExperiment.finished`.
    """
    facts = {
        "kind": "image-model",
        "model": type(model).__name__,
        **experiment.design.as_json(),
        "image_shape": list(experiment.image_shape),
        "training": experiment.settings,
    }
    folders.write(path, model.state_dict(), facts, overwrite=True)


def from_facts(facts: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
    """The model of what :func:`save` wrote."""
    facts = _BEFORE | facts
    _FACTS("", facts)
    design = _design(facts)
    known, n_targets = backbones.find(design.image_backbone), design.n_targets
    # Sizes are compared with the weights before anything of that size is made: the number of targets here,
    # those of the heads on the meta device, where tensors have shapes and no memory.
    if n_targets != tensors["y_units.shift"].numel():
        raise ValueError(f"n_targets is {n_targets}, and the weights have {tensors['y_units.shift'].numel()}")
    n_members = tensors.get("calibration.weights", torch.ones(1)).numel()
    if n_members != design.n_members:
        raise ValueError(f"n_members is {design.n_members}, and the weights have {n_members}")
    with seeded(0):  # the initial weights are replaced; the global random state stays as it is
        backbone = known.build()
    with torch.device("meta"):
        parts = design.build_heads()
        if design.neck is not None:
            backbone = nn.Sequential(backbone, design.build_neck())
    units = replace(Units.blank(None, n_targets, bounded=False), x=known.units())
    model = _MODELS[facts["model"]].of(replace(parts, backbone=backbone), units)
    folders.fill(model, tensors)
    return expect(model, facts["image_shape"]).eval()


def _design(facts: dict[str, Any]) -> ImageDesign:
    names = ("image_backbone", "neck", "n_targets", "n_components", "n_members", "min_scale")
    return ImageDesign(
        **{name: facts[name] for name in names},
        dropout=tuple(facts["dropout"]),
        residual=facts["model"] == ResidualModel.__name__,
    )
