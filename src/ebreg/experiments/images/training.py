"""One training on images with a checkpoint: the model, its results and a figure, in a folder."""

import copy
import json
from pathlib import Path
from typing import Any

from ebreg import plots
from ebreg.experiments import records, report
from ebreg.experiments.experiment import correction_checkpoint
from ebreg.experiments.images import examples
from ebreg.experiments.images.experiment import ImageExperiment
from ebreg.experiments.images.saving import save
from ebreg.saving import folders
from ebreg.training import Training, processes

CHECKPOINT, MODEL, RESULT, EXAMPLES = "checkpoint.safetensors", "model", "result.json", "examples.png"


def train(
    experiment: ImageExperiment, folder: Path, device: str, resume: bool = False, progress: bool = True
) -> tuple[Training, dict[str, float]]:
    """Train, save the model and evaluate it on the test images; returns the training and the metrics.

    Under torchrun only the first process saves and evaluates; the others, and interrupted trainings, have no
    metrics.
    """
    _check_folder(folder, resume)
    experiment.check()
    model, training = experiment.train(device, folder / CHECKPOINT, resume, progress)
    if training.interrupted or not processes.is_first():
        return training, {}
    model.cpu()
    finished = experiment.finished(copy.deepcopy(model))
    save(folder / MODEL, experiment, finished)
    if plots.available():
        plots.save(examples.draw(experiment, finished), folder / EXAMPLES)
    metrics = experiment.evaluate(model)
    result: dict[str, Any] = {
        "settings": experiment.settings,
        "seconds": training.seconds,
        "history": training.history,
        **records.finite_or_none(metrics),
    }
    report.write_text(folder / RESULT, json.dumps(result, indent=1))
    return training, metrics


def _check_folder(folder: Path, resume: bool) -> None:
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(f"--out must be a folder, and {path} is a file; give another path")
    if (folder / RESULT).exists():
        raise FileExistsError(f"{folder / RESULT} exists: this training is finished; give another folder")
    if (folder / CHECKPOINT).exists():
        if not resume:
            raise FileExistsError(
                f"{folder / CHECKPOINT} exists: continue with --resume, or start again in another folder"
            )
        folders.check_free(folder / MODEL)
        return  # the other files are of this training
    for name in (MODEL, EXAMPLES, correction_checkpoint(folder / CHECKPOINT).name):
        if (folder / name).exists():
            raise FileExistsError(f"{folder / name} exists and is not overwritten; give another folder")
