"""Options of the commands that train on images: where the images are, and the recipe."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ebreg._utils import checks
from ebreg.datasets.images import IMAGE_TASKS, SPLITS
from ebreg.experiments.images import IMAGE_RECIPES, ImageRecipe, ImageSource
from ebreg.experiments.images.recipes import RANDOM, UNITS
from ebreg.networks.backbones import DOWNLOAD, NAMES
from ebreg.sampling import SAMPLERS
from ebreg.training.config import FROZEN_NORMS, PRECISIONS
from ebreg.training.schedules import SCHEDULES

# Options by the names of the fields they change: of the recipe, and of the training loop.
_RECIPE = {
    "backbone": (str, ", ".join(NAMES)),
    "weights": (str, f"path of the backbone's checkpoint, {DOWNLOAD} for its library's, or {RANDOM}"),
    "units": (str, f"of the targets in the training: {', '.join(UNITS)}"),
    "mixture_epochs": (int, "epochs at the start that train the mixture alone"),
    "n_draws": (int, "M, draws for each image and step"),
    "draws": (str, ", ".join(SAMPLERS)),
}
_LOOP = {
    "epochs": (int, "epochs of the training"),
    "batch_size": (int, "images in a step, over all processes together"),
    "learning_rate": (float, "of Adam, at its highest"),
    "schedule": (str, f"of the learning rate: {', '.join(SCHEDULES)}"),
    "frozen_epochs": (int, "epochs at the start with a frozen backbone"),
    "patience": (
        int,
        "early stopping: epochs without a better validation NLL, on a fifth of the images (never)",
    ),
    "frozen_norm": (str, f"batch-norm of a frozen backbone: {', '.join(FROZEN_NORMS)}"),
    "precision": (str, f"of the networks: {', '.join(PRECISIONS)}"),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options of the split and of the recipe."""
    parser.add_argument("--split", help=f"{', '.join(SPLITS)} (the paper's)")
    parser.add_argument("--split-seed", type=int, default=0, help="of the split, or of synthetic images (0)")
    recipes = ", ".join(IMAGE_RECIPES)
    parser.add_argument("--recipe", default="paper", help=f"{recipes} (paper); the options below change it")
    for name, (kind, text) in {**_RECIPE, **_LOOP}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=text)
    parser.add_argument("--no-augmentation", action="store_true", help="train on the images as they are")


def recipe_of(options: argparse.Namespace) -> ImageRecipe:
    """The recipe, with the fields that options change."""
    checks.one_of("the recipe", options.recipe, IMAGE_RECIPES)
    recipe = IMAGE_RECIPES[options.recipe]
    loop = _given(options, _LOOP)
    if options.weights == RANDOM:
        loop.setdefault("frozen_epochs", 0)
    changed: dict[str, Any] = {"config": replace(recipe.config, **loop), **_given(options, _RECIPE)}
    if options.no_augmentation:
        changed["augments"] = False
    return replace(recipe, **changed)


def sources_of(options: argparse.Namespace, tasks: Sequence[str]) -> tuple[ImageSource, ...]:
    """Where images come from: a path for the only task, or TASK=PATH for each of several."""
    named: dict[str, str] = {}
    for each in options.data:
        task, is_named, path = each.partition("=")
        if is_named and task in tasks:
            named[task] = path
        elif is_named and task in IMAGE_TASKS:
            raise ValueError(
                f"--data gives images of {task}, and this command needs those of {', '.join(tasks)}; "
                f"give their path, not {each}"
            )
        elif len(tasks) == 1 and len(options.data) == 1:
            named[tasks[0]] = each
    if len(named) != len(options.data):
        raise ValueError(
            f"--data takes {tasks[0]}=PATH for each task of {', '.join(tasks)}; got {' '.join(options.data)}"
        )
    return tuple(
        ImageSource(task, named[task], options.split, options.split_seed) for task in tasks if task in named
    )


def as_words(options: argparse.Namespace) -> list[str]:
    """The given options as a command line, without the user's paths."""
    words = ["--recipe", options.recipe]
    for name, value in _given(options, {"split": None, **_RECIPE, **_LOOP}).items():
        is_path = name == "weights" and value not in (RANDOM, DOWNLOAD)
        words += [f"--{name.replace('_', '-')}", "FILE" if is_path else str(value)]
    words += ["--split-seed", str(options.split_seed)] if options.split_seed else []
    return [*words, *(["--no-augmentation"] if options.no_augmentation else [])]


def _given(options: argparse.Namespace, names: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}
