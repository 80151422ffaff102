"""What the commands that train on images can be told."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ebreg._utils import checks
from ebreg.datasets.images import IMAGE_TASKS, SPLITS
from ebreg.experiments.images.recipes import IMAGE_RECIPES, RANDOM, UNITS, ImageRecipe
from ebreg.experiments.images.sources import ImageSource
from ebreg.networks.backbones import DOWNLOAD, NAMES
from ebreg.sampling import SAMPLERS
from ebreg.training.config import FROZEN_NORMS, PRECISIONS
from ebreg.training.schedules import SCHEDULES

# Options that stand for a setting of the loop, their types, and what they mean.
_LOOP = {
    "epochs": (int, "passes over the images"),
    "batch_size": (int, "images a step, over all processes together"),
    "learning_rate": (float, "of Adam, at its highest"),
    "schedule": (str, f"of the learning rate: {', '.join(SCHEDULES)}"),
    "frozen_epochs": (int, "epochs at the start in which the backbone rests"),
    "patience": (int, "epochs without a better NLL of a held-out fifth after which to stop (never)"),
    "frozen_norm": (str, f"what batch-norm does meanwhile: {', '.join(FROZEN_NORMS)}"),
    "precision": (str, f"of the networks: {', '.join(PRECISIONS)}"),
}
_RECIPE = {
    "backbone": (str, ", ".join(NAMES)),
    "weights": (str, f"path of the backbone's checkpoint, {DOWNLOAD} for its library's, or {RANDOM}"),
    "units": (str, f"of the targets inside: {', '.join(UNITS)}"),
    "mixture_epochs": (int, "epochs at the start with the mixture alone"),
    "n_draws": (int, "M, draws an image and step"),
    "draws": (str, ", ".join(SAMPLERS)),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options of a recipe, and of the split."""
    parser.add_argument("--split", help=f"{', '.join(SPLITS)} (the paper's)")
    parser.add_argument("--split-seed", type=int, default=0, help="of the split, or of synthetic images (0)")
    parser.add_argument(
        "--recipe",
        default="paper",
        help=f"{', '.join(IMAGE_RECIPES)} (paper); the options below change parts of it",
    )
    for name, (kind, help_) in {**_RECIPE, **_LOOP}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=help_)
    parser.add_argument("--no-augmentation", action="store_true", help="train on the images as they are")


def recipe_of(options: argparse.Namespace) -> ImageRecipe:
    """The recipe that the options name, with the parts that they change."""
    checks.one_of("the recipe", options.recipe, IMAGE_RECIPES)
    recipe = IMAGE_RECIPES[options.recipe]
    loop = _given(options, _LOOP)
    if options.weights == RANDOM:
        loop.setdefault("frozen_epochs", 0)  # there is nothing yet to keep
    changed: dict[str, Any] = {"config": replace(recipe.config, **loop), **_given(options, _RECIPE)}
    if options.no_augmentation:
        changed["augments"] = False
    return replace(recipe, **changed)


def sources_of(options: argparse.Namespace, tasks: Sequence[str]) -> tuple[ImageSource, ...]:
    """Where images come from: a path for the only task, or TASK=PATH for each of several."""
    named = dict(
        each.split("=", 1) for each in options.data if each.split("=", 1)[0] in tasks and "=" in each
    )
    for each in options.data:
        task = each.split("=", 1)[0]
        if "=" in each and task in IMAGE_TASKS and task not in tasks:
            raise ValueError(
                f"--data gives images of {task}, and this is about {', '.join(tasks)}; give a "
                f"path of those, not {each}"
            )
    if not named and len(tasks) == 1 and len(options.data) == 1:
        named = {tasks[0]: options.data[0]}
    if len(named) != len(options.data):
        example = f"{tasks[0]}=PATH"
        raise ValueError(
            f"--data takes {example} for each task of {', '.join(tasks)}; got {' '.join(options.data)}"
        )
    return tuple(
        ImageSource(task, named[task], options.split, options.split_seed) for task in tasks if task in named
    )


def as_words(options: argparse.Namespace) -> list[str]:
    """The options that were given, as they are written."""
    words = ["--recipe", options.recipe]
    for name, value in _given(options, {"split": (str, ""), **_RECIPE, **_LOOP}).items():
        words += [
            f"--{name.replace('_', '-')}",
            "FILE" if name == "weights" and value not in (RANDOM, DOWNLOAD) else str(value),
        ]
    words += ["--split-seed", str(options.split_seed)] if options.split_seed else []
    return [*words, *(["--no-augmentation"] if options.no_augmentation else [])]


def _given(options: argparse.Namespace, names: dict[str, tuple[type, str]]) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}
