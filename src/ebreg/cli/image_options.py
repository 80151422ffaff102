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


def add_images(parser: argparse.ArgumentParser, nargs: int | str) -> None:
    """Add the options of the images and their split: with ``nargs`` words, one for each task."""
    text = "a file, a folder, or synthetic[:N]; for several tasks TASK=PATH of each"
    parser.add_argument("--data", nargs=nargs, required=True, metavar="PATH", help=text)
    text = f"{', '.join(SPLITS)} (the paper's); for several tasks TASK=NAME"
    parser.add_argument("--split", nargs=nargs, default=[], metavar="NAME", help=text)
    parser.add_argument("--split-seed", type=int, default=0, help="of the split, or of synthetic images (0)")


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add the options of the recipe."""
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
    """Where the images of these tasks come from; those without --data are left out."""
    data = _by_task("--data", "PATH", options.data, tasks)
    found = [task for task in tasks if task in data]
    splits = _by_task("--split", "NAME", options.split, found)
    for split in splits.values():
        checks.one_of("--split", split, SPLITS)
    return tuple(ImageSource(task, data[task], splits.get(task), options.split_seed) for task in found)


def _by_task(option: str, value: str, words: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    # A word for the only task, or TASK=WORD for each of several.
    named: dict[str, str] = {}
    for each in words:
        task, is_named, rest = each.partition("=")
        if is_named and task in tasks:
            named[task] = rest
        elif is_named and task in IMAGE_TASKS:
            raise ValueError(
                f"{option} {each} is for another task than {', '.join(tasks)}; leave it out, or give "
                f"{tasks[0]}={value}"
            )
        elif len(tasks) == len(words) == 1:
            named[tasks[0]] = each
    if len(named) != len(words):
        raise ValueError(
            f"{option} takes {tasks[0]}={value} for each task of {', '.join(tasks)}; got {' '.join(words)}"
        )
    return named


def as_words(options: argparse.Namespace) -> list[str]:
    """The given options as a command line, without the user's paths."""
    words = ["--recipe", options.recipe, *(["--split", *options.split] if options.split else [])]
    for name, value in _given(options, {**_RECIPE, **_LOOP}).items():
        is_path = name == "weights" and value not in (RANDOM, DOWNLOAD)
        words += [f"--{name.replace('_', '-')}", "FILE" if is_path else str(value)]
    words += ["--split-seed", str(options.split_seed)] if options.split_seed else []
    return [*words, *(["--no-augmentation"] if options.no_augmentation else [])]


def _given(options: argparse.Namespace, names: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}
