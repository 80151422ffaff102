"""``ebreg reproduce table1`` and ``figures``: the 1-D experiments."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ebreg import plots
from ebreg.datasets import TASKS, ToyTask
from ebreg.experiments import figures, parts, report, sensitivity, tracking
from ebreg.experiments.jobs import one_thread
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.tasks import POINTS, has_authors_points, load
from ebreg.experiments.toy import ToyJob
from ebreg.experiments.tracking import Moment
from ebreg.models import EnergyModel
from ebreg.saving import atomic_files
from ebreg.training.config import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add ``table1`` and ``figures``."""
    table1 = commands.add_parser("table1", help="both 1-D data sets, all settings, the report and its plot")
    table1.set_defaults(call=run_table1)
    parts.add_runs(table1, TABLE1)
    drawn = commands.add_parser("figures", help="Figures 2, S3, S4, the training sets, and who follows whom")
    drawn.set_defaults(call=run_figures)
    drawn.add_argument("--seed", type=int, default=0, help="of the trainings (0)")
    drawn.add_argument("--overwrite", action="store_true", help="draw in place of figures that are there")
    for part in (table1, drawn):
        part.add_argument("--epochs", type=int, help="in place of the recipe's own, for a quick look")
        part.add_argument("--points", type=Path, help=f"folder with the authors' {POINTS}")
        parts.add_output(part)


def run_table1(options: argparse.Namespace) -> None:
    """Train what is asked for and missing, then report all that the folder holds."""
    datasets = options.datasets or list(TABLE1.datasets)
    runs = TABLE1.runs(options.cells, datasets, options.runs)
    folder = options.out / TABLE1.name
    job = ToyJob(
        (folder / "records").absolute(), options.points and options.points.absolute(), options.epochs
    )
    parts.do_runs(TABLE1, job, runs, options)
    notes = _notes(parts.reported(TABLE1, job), options.points)
    summaries = parts.write_report(TABLE1, job, folder, _command(options), notes)
    if plots.available() and any(summary.paper is not None for summary in summaries):
        _save(sensitivity.draw(summaries), folder / "sensitivity.png")


def run_figures(options: argparse.Namespace) -> None:
    """Draw the figures, one after the other."""
    plots.require_matplotlib()  # what can fail fails before the trainings
    tasks = {name: load(name, options.points) for name in TASKS}
    epochs = PAPER.epochs if options.epochs is None else options.epochs
    config = replace(PAPER, seed=options.seed, epochs=epochs)
    folder = options.out / "figures"
    _require_free(folder, options.overwrite)
    atomic_files.require_room(folder)
    followed: dict[str, list[Moment]] = {name: [] for name in tasks}
    with one_thread():
        for name, task in tasks.items():

            def watch(model: EnergyModel, epoch: int, name: str = name, task: ToyTask = task) -> None:
                followed[name].append(tracking.look(task, model, epoch))

            for stem, figure in figures.draw_all(task, config, watch, progress=not options.quiet):
                _save(figure, folder / f"{stem}-{name}.png")
    rows = [{"dataset": name, **asdict(moment)} for name, moments in followed.items() for moment in moments]
    report.write(folder, {"tracking.csv": report.rows_csv(rows)})
    _save(tracking.draw(followed), folder / "tracking.png")


def _require_free(folder: Path, overwrite: bool) -> None:
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if there and not overwrite:
        raise FileExistsError(
            f"{folder} holds {there[0]} already; give another folder with --out, or --overwrite to draw anew"
        )


def _save(figure: "Figure", path: Path) -> None:
    plots.save(figure, path, dpi=160)
    print(path)


def _command(options: argparse.Namespace) -> str:
    # Which cells, and how many runs, is what the table itself shows.
    words = ["ebreg", "reproduce", "table1"]
    words += [] if options.epochs is None else ["--epochs", str(options.epochs)]
    return " ".join([*words, *(["--points", "FOLDER"] if options.points else [])])


def _points(folder: Path | None) -> str:
    if folder is None:
        return "points of the same law as the authors', who set no seed"
    task = load("gustafsson", folder)
    if has_authors_points(task):
        return f"the authors' own points, `{POINTS}` of their repository"
    return f"{len(task.x_train)} points of a file, which are not the authors'"


def _notes(datasets: Sequence[str], points: Path | None) -> list[str]:
    about = [f"* gustafsson: {_points(points)}."] if "gustafsson" in datasets else []
    about += ["* brando: the very points of its authors."] if "brando" in datasets else []
    return [
        *about,
        "* *best 5 of 20*: mean of the best 5 of 20 runs, chosen on the test set, as published.",
        "* *median (worst)*: of all runs that gave a number; *failed*: those that did not.",
        "* *own*: the density is normalised by the library's predictive distribution, not on a grid. It is",
        "  huge where f grows without end beyond the grid: such a model is no density, which the grid hides.",
        "* *CPU seconds*: median processor time of a training, one thread. NCE and MLE learn a proposal too,",
        "  which answers for them at test time.",
    ]
