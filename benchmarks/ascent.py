"""Predictions by gradient ascent on f, beside means, medians and modes of the predictive distribution.

``python -m benchmarks.ascent --records FOLDER --data age=UTKFace.h5 head-pose=poses.npz``. FOLDER holds the
records and weights of finished runs: three of ``modern`` of Table 1 on each 1-D set; on images up to three of
``ours-4`` with ``--recipe features --patience 10``, as many as are there, or one. Missing runs are trained.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import markdown_table
from ebreg import datasets
from ebreg.estimators import Prediction, ascent
from ebreg.estimators.chunks import Chunks
from ebreg.experiments import report
from ebreg.experiments.experiment import Experiment
from ebreg.experiments.images import IMAGE_RECIPES, ImageExperiment, ImageSource
from ebreg.experiments.tables import TABLE1, TABLES
from ebreg.experiments.toy import ToyExperiment, ToySource
from ebreg.models import Model
from ebreg.saving import checkpoints
from ebreg.training.frozen_features import FrozenFeatures

SEEDS = range(3)
N_STEPS, STEP_SIZE = 20, 0.05  # the defaults
GRID = tuple(itertools.product((10, 50), (0.01, 0.05, 0.2, 1.0)))
STARTS = ("mean of the proposal", "training mean")


@dataclass(frozen=True)
class Case:
    """A trained model and the test rows of its data set."""

    dataset: str
    seed: int
    model: Model
    x: Tensor
    y: np.ndarray
    """(n, D)."""
    y_mean: Tensor
    """The mean of the training targets, (D,)."""

    def predicted(self) -> Prediction:
        """The predictive distribution, made anew."""
        return Prediction(Chunks(self.model, self.x))

    def start(self, name: str) -> Tensor | None:
        """Initial estimates; None is the mean of the proposal."""
        return None if name == STARTS[0] else self.y_mean.expand(len(self.x), -1)

    def climb(self, start: str, n_steps: int, step_size: float) -> np.ndarray:
        """Where the ascent ends, (n, D)."""
        return ascent.in_chunks(self.model, self.x, self.start(start), n_steps, step_size)


def toy_cases(folder: Path) -> Iterator[Case]:
    """The two 1-D sets; the first has no test points, so new ones of the same distribution are drawn."""
    new = datasets.gustafsson(seed=1)
    for seed, name in itertools.product(SEEDS, datasets.TASKS):
        run = ToyExperiment(TABLE1.settings["modern"], ToySource(name), seed)
        task = run.source.load()
        x, y = (new.x_train, new.y_train) if task.x_test is None else (task.x_test, task.y_test)
        yield Case(name, seed, trained(run, folder).to_float64(), x, y.numpy(), task.y_train.mean(dim=0))


def image_cases(folder: Path, source: ImageSource) -> Iterator[Case]:
    """The runs on images that have a record, or the first; features are computed before anything is timed."""
    features = IMAGE_RECIPES["features"]
    recipe = replace(features, config=replace(features.config, patience=10))
    setting = next(
        table.settings["ours-4"]
        for table in TABLES.values()
        if source.name in table.datasets and "ours-4" in table.settings
    )
    runs = [ImageExperiment(setting, source, seed, recipe) for seed in SEEDS]
    for run in [run for run in runs if run.record_path(folder).exists()] or runs[:1]:
        split = source.load()
        model = run.finished(trained(run, folder))
        frozen = FrozenFeatures(model, 128)
        test = frozen.of(split.test)
        with frozen.as_inputs(model):
            model.to_float64()
            x, y = test.__getitems__(range(len(test)))
            yield Case(
                source.name, run.seed, model, x, y.double().numpy(), split.train.y.double().mean(dim=0)
            )


def trained(run: Experiment, folder: Path) -> Model:
    """The model of a run, which is trained if it has no record."""
    run.run(folder)
    tensors, _ = checkpoints.read(run.weights_path(folder))
    model = run.method().model
    model.load_state_dict(tensors)
    return model.eval()


def highest(p: Prediction) -> np.ndarray:
    return np.stack([row.locations[np.argmax(row.log_densities)] for row in p.modes()])


ANSWERS: dict[str, Callable[[Case], np.ndarray]] = {
    "mean, Eq. (7)": lambda case: case.predicted().mean,
    "median of each target": lambda case: case.predicted().quantile(0.5),
    "heaviest mode": lambda case: np.stack([row.locations[0] for row in case.predicted().modes()]),
    "highest mode": lambda case: highest(case.predicted()),
    STARTS[0]: lambda case: case.climb(STARTS[0], 0, STEP_SIZE),
    f"ascent from the {STARTS[0]}": lambda case: case.climb(STARTS[0], N_STEPS, STEP_SIZE),
    STARTS[1]: lambda case: case.climb(STARTS[1], 0, STEP_SIZE),
    f"ascent from the {STARTS[1]}": lambda case: case.climb(STARTS[1], N_STEPS, STEP_SIZE),
}


def measure(case: Case) -> list[dict[str, Any]]:
    """Every answer, and the ascent at every setting of the grid."""
    p = case.predicted()
    replace(case, x=case.x[:8]).predicted().modes()  # the first call of anything is slower

    def row(call: Callable[[], np.ndarray], answer: str, **settings: Any) -> dict[str, Any]:
        begin = time.process_time()
        y = call()
        seconds = time.process_time() - begin
        return {
            "dataset": case.dataset,
            "seed": case.seed,
            "rows": len(case.y),
            "answer": answer,
            **{"start": None, "n_steps": None, "step_size": None, **settings},
            "mae": np.abs(y - case.y).mean(),
            "rmse": np.sqrt(np.square(y - case.y).mean()),
            "log_density": p.log_prob(y).mean(),
            "cpu_seconds": seconds,
        }

    rows = [row(partial(call, case), name) for name, call in ANSWERS.items()]
    return rows + [
        row(partial(case.climb, start, T, step), "grid", start=start, n_steps=T, step_size=step)
        for start in STARTS
        for T, step in GRID
    ]


def median(rows: Sequence[dict[str, Any]], column: str, **wanted: Any) -> float:
    """Of the runs whose columns have these values."""
    return statistics.median(
        row[column] for row in rows if all(row[name] == value for name, value in wanted.items())
    )


COLUMNS = {
    "MAE": ("mae", 3),
    "RMSE": ("rmse", 3),
    "log density": ("log_density", 2),
    "CPU seconds": ("cpu_seconds", 2),
}


def answers_of(rows: Sequence[dict[str, Any]]) -> str:
    body = [
        [name, *(f"{median(rows, column, answer=name):.{digits}f}" for column, digits in COLUMNS.values())]
        for name in ANSWERS
    ]
    return markdown_table(["prediction", *COLUMNS], body)


def grid_of(rows: Sequence[dict[str, Any]]) -> str:
    counts, steps = (sorted(set(values)) for values in zip(*GRID, strict=True))

    def log_densities(start: str, T: int) -> list[str]:
        return [
            f"{median(rows, 'log_density', start=start, n_steps=T, step_size=step):.2f}" for step in steps
        ]

    body = [[start, str(T), *log_densities(start, T)] for start in STARTS for T in counts]
    return markdown_table(["start", "steps", *(f"step size {step:g}" for step in steps)], body)


NOTES = f"""\
* Medians of the runs; every run is in `runs.csv`.
* Models: `modern` of Table 1 on the 1-D sets; `ours-4` with `--recipe features --patience 10` on images.
* *mean*, *median*, modes: of the predictive distribution. The heaviest mode has the largest mass, the highest
  the largest density.
* *ascent*: {N_STEPS} steps from a step size of {STEP_SIZE}, the defaults.
* *MAE*, *RMSE*: of the test targets, averaged over the targets of a row. *log density*: the model's, at the
  prediction, in the units of the targets.
* *CPU seconds*: for all test rows, from the inputs on the 1-D sets, from the features on images."""


def summary(rows: Sequence[dict[str, Any]], command: str) -> str:
    """The medians of the runs as Markdown."""
    parts = ["# Gradient ascent beside the other predictions", f"Made by `{command}`, in one thread.", NOTES]
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        own = [row for row in rows if row["dataset"] == dataset]
        n_runs = len({row["seed"] for row in own})
        parts += [f"## {dataset}: {own[0]['rows']} test rows, runs: {n_runs}", answers_of(own)]
        parts += ["Log density at the end of other ascents:", grid_of(own)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ascent", description=__doc__)
    text = "folder of the runs; missing ones are trained"
    parser.add_argument("--records", type=Path, required=True, help=text)
    text = "images of age or head-pose"
    parser.add_argument("--data", nargs="*", default=[], metavar="TASK=PATH", help=text)
    parser.add_argument("--out", type=Path, default=Path("results/ascent"), help="folder (results/ascent)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    named = [each.partition("=") for each in options.data]
    cases = itertools.chain(
        toy_cases(options.records),
        *(image_cases(options.records, ImageSource(task, path)) for task, _, path in named),
    )
    words = ["--data", *(f"{task}={Path(path).name}" for task, _, path in named)] if named else []
    command = " ".join(["python -m benchmarks.ascent --records FOLDER", *words])
    rows: list[dict[str, Any]] = []
    for case in cases:
        rows += measure(case)
        print(f"{case.dataset}, seed {case.seed}: measured", flush=True)
        write(options.out, rows, command)  # after every run: they take minutes


def write(folder: Path, rows: Sequence[dict[str, Any]], command: str) -> None:
    rows = sorted(rows, key=lambda row: (row["dataset"], row["seed"]))
    report.write_text(folder / "runs.csv", report.rows_csv(rows))
    report.write_text(folder / "ascent.md", summary(rows, command))


if __name__ == "__main__":
    main()
