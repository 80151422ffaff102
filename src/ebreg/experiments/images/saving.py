"""Trained image models as folders that :func:`ebreg.load` reads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebreg import networks
from ebreg._utils.random_state import seeded
from ebreg.experiments.images.experiment import ImageExperiment, expect
from ebreg.models import EnergyModel, MixtureModel, Model
from ebreg.networks import backbones
from ebreg.saving import folders
from ebreg.saving.schema import anything, each, fields, mapping, none_or, text, whole
from ebreg.units import Units

_MODELS: dict[str, type[Model]] = {model.__name__: model for model in (EnergyModel, MixtureModel)}
_FACTS = fields(
    kind=text("image-model"),
    model=text(*_MODELS),
    image_backbone=text(),
    neck=none_or(whole(1)),
    n_targets=whole(1),
    n_components=whole(1),
    image_shape=each(whole(1)),
    training=mapping(anything),
)


def save(path: Path, experiment: ImageExperiment, model: Model) -> None:
    """Write a trained model, in place of an earlier one.

    Args:
        path: The folder.
        experiment: By which it was trained.
        model: As it is used, see :meth:`ImageExperiment.finished`.
    """
    settings = experiment.settings
    facts = {
        "kind": "image-model",
        "model": type(model).__name__,
        "image_backbone": settings["backbone"],
        "neck": settings["neck"],
        "n_targets": model.n_targets,
        "n_components": settings["n_components"],
        "image_shape": list(experiment.image_shape),
        "training": settings,
    }
    folders.write(path, model.state_dict(), facts, overwrite=True)


def from_facts(facts: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
    """The model of what :func:`save` wrote."""
    _FACTS("", facts)
    known, neck, n_targets = backbones.find(facts["image_backbone"]), facts["neck"], facts["n_targets"]
    # Sizes are compared with the weights before anything of that size is made: the number of targets here,
    # those of the heads on the meta device, where tensors have shapes and no memory.
    if n_targets != tensors["y_units.shift"].numel():
        raise ValueError(f"n_targets is {n_targets}, and the weights have {tensors['y_units.shift'].numel()}")
    with seeded(0):  # the initial weights are replaced; the global random state stays as it is
        backbone = known.build()
    with torch.device("meta"):
        parts = networks.image_heads(n_targets, facts["n_components"], neck or known.n_features)
        if neck is not None:
            backbone = nn.Sequential(backbone, networks.MLP(known.n_features, (neck,)))
    units = replace(Units.blank(None, n_targets, bounded=False), x=known.units())
    model = _MODELS[facts["model"]].of(replace(parts, backbone=backbone), units)
    folders.fill(model, tensors)
    return expect(model, facts["image_shape"]).eval()
