"""What the models of the image tables have learned: overfitting, mass away from targets, use of the image.

``python -m benchmarks.fits --records FOLDER --data age=UTKFace.h5 head-pose=poses.npz --out fits.md`` reads
the records and weights of finished runs with ``--recipe features --patience 10``; nothing is trained.
"""

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import markdown_table
from ebreg import metrics
from ebreg.cli import image_options
from ebreg.datasets.images import IMAGE_TASKS
from ebreg.experiments.images import IMAGE_RECIPES, ImageExperiment, ImageSource
from ebreg.experiments.images.evaluation import limit_energy, resolution_of
from ebreg.experiments.tables import IMAGE_TABLES
from ebreg.models import Model
from ebreg.predictive import VALIDATION
from ebreg.saving import checkpoints
from ebreg.training import HeldOut

SETTINGS = ("mdn-4", "ours-4", "members-mdn-8", "members-residual-8")
N_IMAGES = 400  # of the training images, and of the validation images
N_ROWS = 100  # evaluated at once


@dataclass(frozen=True)
class Fit:
    """A run and its trained model."""

    run: ImageExperiment
    model: Model

    @torch.no_grad()
    def measured(self) -> dict[str, float]:
        """Means over images, by column."""
        test = self.run._features[1]
        y_train = self.run.source.load().train.y
        parts: list[dict[str, Tensor]] = []
        for index in torch.arange(len(test)).split(N_ROWS):
            x, y = test.__getitems__(index)
            p = self.model.predictive(x)
            parts.append(
                {"NLL, test": metrics.nll(p, y), "mean": p.mean, **masses(p, y_train, step_of(y_train))}
            )
        rows = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        means = rows.pop("mean")
        return {
            **self.on_training_images(),
            **{name: values.mean().item() for name, values in rows.items()},
            **{f"std of the mean {d + 1}": means[:, d].std().item() for d in range(means.shape[1])},
        }

    def on_training_images(self) -> dict[str, float]:
        """NLL of some training images and of some validation images; of members, on their own ones."""
        data, validation = self.run.data()
        if not isinstance(validation, HeldOut):
            return {
                f"NLL, {name}": -torch.cat(
                    [
                        self.model.log_prob(*some.__getitems__(rows))
                        for rows in chosen(len(some)).split(N_ROWS)
                    ]
                ).mean()
                for name, some in (("training", data), ("validation", validation))
            }
        assert validation.train is not None
        return {
            f"NLL, {name}": self.of_members(data, rows)
            for name, rows in (("training", validation.train), ("validation", validation.index))
        }

    def of_members(self, data: Any, rows: Tensor) -> float:
        """The mean over members of the NLL of rows (E, n) of their own."""
        some = rows[:, chosen(rows.shape[1])]
        parts = [
            self.model.member_log_prob(*data.__getitems__(columns.flatten()), VALIDATION)
            for columns in some.split(N_ROWS, dim=1)
        ]
        return -torch.cat(parts).mean().item()


def chosen(n: int) -> Tensor:
    """At most so many rows, drawn at random."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:N_IMAGES]


def step_of(y: Tensor) -> Tensor:
    """The rounding step of targets (n, D), shape (D,)."""
    step = resolution_of(y)
    assert step is not None
    return step


def masses(p: Any, y: Tensor, step: Tensor) -> dict[str, Tensor]:
    """Mass beyond the range of training targets y (n, D), and a rounding step or more from all of them."""
    low, high, known = y.amin(dim=0), y.amax(dim=0), y.unique(dim=0)

    def is_outside(values: Tensor) -> Tensor:
        return ((values < low) | (values > high)).any(dim=-1).double()

    def is_far(values: Tensor) -> Tensor:
        far = torch.ones(values.shape[:-1], dtype=torch.bool)
        for target in known:
            far &= ((values - target).abs() > step).any(dim=-1)
        return far.double()

    return {"mass out of range": p.expectation(is_outside), "mass away from targets": p.expectation(is_far)}


def fits(folder: Path, source: ImageSource, name: str) -> Iterator[Fit]:
    """The finished runs of a setting."""
    features = IMAGE_RECIPES["features"]
    recipe = replace(features, config=replace(features.config, patience=10))
    settings = [t.settings[name] for t in IMAGE_TABLES if name in t.settings and source.name in t.datasets]
    for seed in range(20):
        run = ImageExperiment(settings[0], source, seed, recipe)
        if run.read(folder) is None:
            continue
        model = run.method().model
        model.load_state_dict(checkpoints.read(run.weights_path(folder))[0])
        limit_energy(model, source.load().train.y)
        yield Fit(run, model.eval().to_float64())


def table_of(folder: Path, source: ImageSource) -> list[str]:
    """A row for each setting."""
    body: list[list[str]] = []
    header: list[str] = []
    for name in SETTINGS:
        runs = [fit.measured() for fit in fits(folder, source, name)]
        if not runs:
            continue
        header = list(runs[0])
        columns = {column: [float(run[column]) for run in runs] for column in header}
        body.append([name, str(len(runs)), *(cell(column, values) for column, values in columns.items())])
        print(source.name, *body[-1], sep=" | ", flush=True)
    return [f"## {source.name}", "", markdown_table(["setting", "runs", *header], body), ""]


def cell(column: str, values: list[float]) -> str:
    """The mean over the runs; of a standard deviation, every run."""
    if column.startswith("std"):
        return ", ".join(f"{value:.1f}" for value in values)
    return f"{statistics.mean(values):.3f}"


NOTES = f"""\
* *NLL*: of {N_IMAGES} training images, {N_IMAGES} validation images and all test images, means of the runs.
  Of members: each by itself, on the images that it was trained on and validated on, with targets spread over
  their rounding intervals; of test images: all together, with targets as they are.
* *mass out of range*: beyond the lowest and the highest training target. *mass away from targets*: more than
  a rounding step from every training target.
* *std of the mean d*: standard deviation over the test images of the predictive mean of target d, of every
  run. A model that does not look at the image has none."""


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    image_options.add_images(parser, nargs="+")
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sources = image_options.sources_of(options, list(IMAGE_TASKS))
    tables = [line for source in sources for line in table_of(options.records, source)]
    text = [
        "# What the models have learned",
        "",
        "Made by `python -m benchmarks.fits`.",
        "",
        NOTES,
        "",
        *tables,
    ]
    options.out.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
