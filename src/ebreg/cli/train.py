"""``ebreg train``: one method on one image data set, with checkpoints, on one device or several."""

import argparse
import os
from pathlib import Path

from ebreg._utils import checks
from ebreg.cli import image_options
from ebreg.datasets.images import IMAGE_TASKS
from ebreg.experiments.images import ImageExperiment, training
from ebreg.experiments.settings import Setting
from ebreg.methods import METHODS, FixedNCE
from ebreg.training import processes


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add ``train`` to the commands of ebreg."""
    train = commands.add_parser("train", help="one method on one image data set, also under torchrun")
    train.set_defaults(call=run)
    train.add_argument("task", metavar="TASK", help=", ".join(IMAGE_TASKS))
    train.add_argument("--out", type=Path, required=True, help="folder of checkpoint, model and result")
    train.add_argument("--method", default="joint-nce", help=f"{', '.join(METHODS)} (joint-nce)")
    train.add_argument("--components", type=int, default=4, help="K, of the mixture (4)")
    train.add_argument("--sigmas", type=float, nargs=2, metavar="SIGMA", help="of the fixed methods' noise")
    train.add_argument("--shared-backbone", action="store_true", help="of a teacher and its student")
    train.add_argument("--seed", type=int, default=0, help="of weights, order and draws (0)")
    train.add_argument("--device", default="auto", help="cpu, cuda, ... (auto)")
    train.add_argument("--resume", action="store_true", help="continue from the folder's checkpoint")
    train.add_argument("--quiet", action="store_true", help="no progress bar")
    image_options.add_images(train, nargs=1)
    image_options.add_recipe(train)


def run(options: argparse.Namespace) -> None:
    """Train, and print the metrics on the test images."""
    (source,) = image_options.sources_of(options, [options.task])
    experiment = ImageExperiment(_setting(options), source, options.seed, image_options.recipe_of(options))
    device, progress = _device(options.device), not options.quiet
    finished, metrics = training.train(experiment, options.out, device, options.resume, progress)
    if finished.interrupted:
        if processes.is_first():
            print(
                f"stopped after {len(finished.history)} epochs; continue with the same command and --resume"
            )
        raise KeyboardInterrupt
    for name, value in metrics.items():
        print(f"{name:16} {value:.4f}")


def _setting(options: argparse.Namespace) -> Setting:
    checks.one_of("the method", options.method, METHODS)
    checks.at_least("components", options.components, 1)
    is_fixed = issubclass(METHODS[options.method], FixedNCE)
    if is_fixed != (options.sigmas is not None):
        what = "needs --sigmas SIGMA1 SIGMA2" if is_fixed else "has no fixed noise; leave out --sigmas"
        raise ValueError(f"{options.method} {what}")
    if options.shared_backbone and options.method != "mdn-teacher":
        raise ValueError(f"--shared-backbone is for mdn-teacher, got {options.method}")
    return Setting(
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
