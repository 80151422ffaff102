"""Trained models of images as folders: weights and settings, from which the networks are built again."""

from pathlib import Path
from typing import Any

import torch

from ebreg.errors import ModelFileError
from ebreg.experiments.images.evaluation import limit_energy
from ebreg.experiments.images.experiment import ImageExperiment, attach, expect
from ebreg.experiments.images.recipes import RANDOM, ImageRecipe
from ebreg.experiments.settings import Setting
from ebreg.models import Model
from ebreg.networks import backbones
from ebreg.saving import folders
from ebreg.training.config import TrainingConfig


def save(path: Path, experiment: ImageExperiment, model: Model) -> None:
    """Write a trained model, in place of an earlier one.

    Args:
        path: The folder.
        experiment: What it was trained by.
        model: As it is used, see :meth:`ImageExperiment.finished`.
    """
    facts = {
        "images": experiment.settings,
        "image_shape": experiment.image_shape,
        "n_targets": model.n_targets,
    }
    folders.write(path, facts, model.state_dict(), overwrite=True)


def load_images(path: str | Path) -> Model:
    """Read a model that ``ebreg train`` wrote: it takes images (B, C, H, W), and answers by ``predictive``.

    Images are as in the training: whole numbers from 0 to 255, of the same channels, height and width.

    Args:
        path: The folder ``model`` of the training.
    """
    path = Path(path)
    config, tensors = folders.read(path)
    try:
        model = expect(_blank(config["images"], config["n_targets"]), config["image_shape"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{path} holds no model of images, or was edited ({error!r}); ebreg.load reads saved regressors"
        ) from error
    try:
        folders.fill(model, tensors)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    return model.eval()


def _blank(settings: dict[str, Any], n_targets: int) -> Model:
    # Units and weights come from the file: any targets, and any weights, give the structure.
    backbone, sigmas = settings["backbone"], settings["sigmas"]
    setting = Setting(
        settings["setting"],
        "",
        settings["method"],
        n_components=settings["n_components"],
        sigmas=None if sigmas is None else tuple(sigmas),
        shares_backbone=settings["shares_backbone"],
    )
    neck = settings["neck"]
    known = backbones.find(backbone)
    weights = RANDOM if neck is None and not known.pretrained else None
    recipe = ImageRecipe(
        TrainingConfig(), backbone, weights, settings["units"], augments=neck is None, neck=neck
    )
    y = torch.tensor([[0.0], [1.0]]).expand(2, n_targets)
    model = limit_energy(recipe.build(setting, y).model, y)
    return model if neck is None else attach(model, known.build(), backbone)
