"""``ebreg train``: one method on one set of images, with checkpoints, on one device or several."""

import argparse
import copy
import json
import math
import os
from pathlib import Path

from ebreg import plots
from ebreg._utils import checks
from ebreg.datasets.images import IMAGE_TASKS
from ebreg.experiments.cells import Cell
from ebreg.experiments.images import Experiment, pictures, save
from ebreg.experiments.images import options as image_options
from ebreg.methods import METHODS, FixedNCE
from ebreg.saving import atomic_files, folders
from ebreg.training import processes

CHECKPOINT, MODEL, RESULT = "checkpoint.safetensors", "model", "result.json"
EXAMPLES = "examples.png"


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add ``train`` to the commands of ebreg."""
    train = commands.add_parser("train", help="one method on one set of images, also under torchrun")
    train.set_defaults(call=run)
    train.add_argument("task", metavar="TASK", help=", ".join(IMAGE_TASKS))
    train.add_argument(
        "--data", nargs=1, required=True, metavar="PATH", help="a file, a folder, or synthetic[:N]"
    )
    train.add_argument("--out", type=Path, required=True, help="folder of checkpoint, model and result")
    train.add_argument("--method", default="joint-nce", help=f"{', '.join(METHODS)} (joint-nce)")
    train.add_argument("--components", type=int, default=4, help="K, of the mixture (4)")
    train.add_argument("--sigmas", type=float, nargs=2, metavar="SIGMA", help="of the fixed methods' noise")
    train.add_argument("--shared-backbone", action="store_true", help="of a teacher and its student")
    train.add_argument("--seed", type=int, default=0, help="of weights, order and draws (0)")
    train.add_argument("--device", default="auto", help="cpu, cuda, ... (auto)")
    train.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    train.add_argument("--quiet", action="store_true", help="no progress bar")
    image_options.add_to(train)


def run(options: argparse.Namespace) -> None:
    """Train, keep the model, and judge it by the test images; under torchrun the first process does so."""
    (source,) = image_options.sources_of(options, [options.task])
    experiment = Experiment(_cell(options), source, image_options.recipe_of(options), options.seed)
    folder = options.out
    _check_folder(folder, options.resume)
    experiment.check()
    model, training = experiment.train(
        _device(options.device), folder / CHECKPOINT, options.resume, progress=not options.quiet
    )
    if not processes.is_first():
        return
    if training.interrupted:
        print(f"stopped after {len(training.history)} epochs; go on by the same command with --resume")
        raise KeyboardInterrupt
    model.cpu()
    finished = experiment.finished(copy.deepcopy(model))
    save(folder / MODEL, experiment, finished)
    if plots.available():
        plots.save(pictures.draw(experiment, finished), folder / EXAMPLES)
    measured = experiment.judge(model)
    # JSON knows neither NaN nor infinity.
    numbers = {name: value if math.isfinite(value) else None for name, value in measured.items()}
    result = {
        "settings": experiment.settings,
        "seconds": training.seconds,
        "history": training.history,
        **numbers,
    }
    with atomic_files.replacing(folder / RESULT) as partial:
        partial.write_text(json.dumps(result, indent=1), encoding="utf-8")
    for name, value in measured.items():
        print(f"{name:10} {value:.4f}")


def _check_folder(folder: Path, resume: bool) -> None:
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(f"--out must be a folder, and {path} is a file; give another path")
    if (folder / RESULT).exists():
        raise FileExistsError(f"{folder / RESULT} exists: this training is done; give another folder")
    if (folder / CHECKPOINT).exists():
        if not resume:
            raise FileExistsError(
                f"{folder / CHECKPOINT} exists: go on from it by --resume, or start anew in another folder"
            )
        folders.check_free(folder / MODEL)
        return  # what else is there is of this training
    for name in (MODEL, EXAMPLES):
        if (folder / name).exists():
            raise FileExistsError(f"{folder / name} exists and is left as it is; give another folder")


def _cell(options: argparse.Namespace) -> Cell:
    checks.one_of("the method", options.method, METHODS)
    checks.at_least("components", options.components, 1)
    is_fixed = issubclass(METHODS[options.method], FixedNCE)
    if is_fixed != (options.sigmas is not None):
        what = "needs --sigmas SIGMA1 SIGMA2" if is_fixed else "has no noise of its own; leave out --sigmas"
        raise ValueError(f"{options.method} {what}")
    if options.shared_backbone and options.method != "mdn-teacher":
        raise ValueError(f"--shared-backbone is for mdn-teacher, got {options.method}")
    return Cell(
        "train",
        "",
        options.method,
        n_components=options.components,
        sigmas=None if options.sigmas is None else tuple(options.sigmas),
        shares_backbone=options.shared_backbone,
    )


def _device(name: str) -> str:
    device = checks.device(name)
    if device.type == "cuda" and "LOCAL_RANK" in os.environ:  # each process of torchrun has its own
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return str(device)
