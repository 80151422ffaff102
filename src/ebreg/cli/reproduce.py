"""``ebreg reproduce``: the paper's tables and figures, one command each."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ebreg import plots
from ebreg._utils import checks
from ebreg.cli import image_options
from ebreg.experiments import report, runner
from ebreg.experiments.experiment import Result
from ebreg.experiments.images import ImageExperiment, runs_figure
from ebreg.experiments.settings import Setting
from ebreg.experiments.summaries import Summary
from ebreg.experiments.tables import TABLE1, TABLES, Make, Table
from ebreg.experiments.toy import ToyExperiment, ToySource, figures, sensitivity
from ebreg.experiments.toy.source import POINTS


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add ``reproduce`` to the commands of ebreg."""
    reproduce = commands.add_parser("reproduce", help="the paper's tables and figures")
    parts = reproduce.add_subparsers(dest="part", required=True, metavar="what")
    for name, table in TABLES.items():
        parser = parts.add_parser(name, help=table.title)
        if table is TABLE1:
            _add_toy(parser)
        else:
            _add_images(parser)
        _add_runs(parser, table)
        parser.set_defaults(call=run_table1 if table is TABLE1 else run_image_table)
    drawn = parts.add_parser("figures", help="Figures 2, S3, S4, and how the proposal follows the model")
    drawn.set_defaults(call=run_figures)
    _add_toy(drawn)
    _add_output(drawn)
    drawn.add_argument("--seed", type=int, default=0, help="of the trainings (0)")
    drawn.add_argument("--overwrite", action="store_true", help="replace figures in the folder")


def _add_toy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, help="instead of the recipe's, for a quick test")
    parser.add_argument("--points", type=Path, help=f"folder with the authors' {POINTS}")


def _add_images(parser: argparse.ArgumentParser) -> None:
    text = "a file, a folder, or synthetic[:N]; for several tasks TASK=PATH of each"
    parser.add_argument("--data", nargs="+", required=True, metavar="PATH", help=text)
    image_options.add_to(parser)


def _add_runs(parser: argparse.ArgumentParser, table: Table) -> None:
    names = ", ".join([*table.groups, *table.settings])
    parser.add_argument("--settings", nargs="+", default=["all"], metavar="NAME", help=f"{names} (all)")
    text = f"{', '.join(table.datasets)} (all)"
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help=text)
    parser.add_argument("--runs", type=int, help="of each setting (20, or 5 for most beyond the paper)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each (1)")
    parser.add_argument("--backend", default="loky", help=f"of joblib: {', '.join(runner.BACKENDS)} (loky)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--report-only", action="store_true", help="no training, report the records")
    only.add_argument("--re-evaluate", action="store_true", help="no training, evaluate the weights again")
    _add_output(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="folder (reproduced)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run_table1(options: argparse.Namespace) -> None:
    """Train the missing runs of Table 1, then report all runs of the folder."""
    points = options.points and options.points.absolute()

    def make(setting: Setting, dataset: str, seed: int) -> ToyExperiment:
        return ToyExperiment(setting, ToySource(dataset, points), seed, options.epochs)

    results = _run(TABLE1, make, list(TABLE1.datasets), options)
    words = [] if options.epochs is None else ["--epochs", str(options.epochs)]
    words += ["--points", "FOLDER"] if options.points else []
    summaries = _report(TABLE1, results, words, options)
    if plots.available() and any(summary.paper is not None for summary in summaries):
        plots.save(sensitivity.draw(summaries), options.out / TABLE1.name / "sensitivity.png", dpi=160)


def run_image_table(options: argparse.Namespace) -> None:
    """Train the missing runs of a table of images, then report all runs of the folder."""
    table = TABLES[options.part]
    sources = {source.name: source for source in image_options.sources_of(options, list(table.datasets))}
    recipe = image_options.recipe_of(options)

    def make(setting: Setting, dataset: str, seed: int) -> ImageExperiment:
        return ImageExperiment(setting, sources[dataset], seed, recipe)

    results = _run(table, make, list(sources), options)
    data = [source.data if source.is_synthetic else "PATH" for source in sources.values()]
    if len(table.datasets) > 1:
        data = [f"{name}={path}" for name, path in zip(sources, data, strict=True)]
    summaries = _report(table, results, ["--data", *data, *image_options.as_words(options)], options)
    if plots.available() and any(summary.values["predictive"] for summary in summaries):
        plots.save(runs_figure.draw(summaries), options.out / table.name / "runs.png")


def run_figures(options: argparse.Namespace) -> None:
    """Train and draw the figures, and print their paths."""
    sources = [ToySource(name, options.points) for name in TABLE1.datasets]
    for path in figures.draw_all(
        options.out / "figures", sources, options.seed, options.epochs, options.overwrite, not options.quiet
    ):
        print(path)


def _run(table: Table, make: Make, datasets: Sequence[str], options: argparse.Namespace) -> list[Result]:
    # All results in the folder, after the training or evaluation that was asked for.
    asked = options.datasets or datasets
    for name in asked:
        checks.one_of("a data set", name, datasets)
    experiments = table.experiments(make, options.settings, asked, options.runs)
    folder = (options.out / table.name / "records").absolute()
    # Before the trainings: records of other settings are an error.
    results = report.read_results(table, make, datasets, folder)
    workers = runner.Workers(options.jobs, options.backend, progress=not options.quiet)
    if options.re_evaluate:
        names = {setting.name for setting in table.select(options.settings)}
        finished = [
            each
            for each, _ in results.values()
            if each.setting.name in names and each.source.name in asked
            if options.runs is None or each.seed < options.runs
        ]
        results |= runner.re_evaluate(finished, folder, workers)
    elif not options.report_only:
        results |= runner.run_missing(experiments, folder, workers)
    if not results:
        raise ValueError(f"{folder} holds no record; leave out --report-only and --re-evaluate to train")
    return list(results.values())


def _report(
    table: Table, results: Sequence[Result], words: Sequence[str], options: argparse.Namespace
) -> list[Summary]:
    command = " ".join(["ebreg", "reproduce", table.name, *words])
    summaries, text = report.write_report(options.out / table.name, table, results, command)
    print(text)
    return summaries
