"""``ebreg reproduce``: the paper's tables and figures, one command each."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebreg import plots
from ebreg._utils import checks
from ebreg.cli import image_options
from ebreg.experiments import report, runner
from ebreg.experiments.experiment import Experiment, Result
from ebreg.experiments.images import ImageExperiment, runs_figure
from ebreg.experiments.settings import Setting
from ebreg.experiments.summaries import Summary
from ebreg.experiments.tables import IMAGE_TABLES, TABLE1, TABLES, Make, Table
from ebreg.experiments.toy import ToyExperiment, ToySource, figures, sensitivity
from ebreg.experiments.toy.source import POINTS


@dataclass(frozen=True)
class Part:
    """A table and what is asked of it.

    Attributes:
        table: The table.
        make: Makes its experiments.
        datasets: The data sets that there are data for.
        experiments: Those to train.
    """

    table: Table
    make: Make
    datasets: Sequence[str]
    experiments: Sequence[Experiment]

    def results(self, folder: Path) -> list[Result]:
        """All results of the table in a folder of records."""
        return list(report.read_results(self.table, self.make, self.datasets, folder).values())


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add ``reproduce`` to the commands of ebreg."""
    reproduce = commands.add_parser("reproduce", help="the paper's tables and figures")
    parts = reproduce.add_subparsers(dest="part", required=True, metavar="what")
    for table in TABLES.values():
        parser = parts.add_parser(table.name, help=table.title)
        if table is TABLE1:
            _add_toy(parser)
        else:
            _add_images(parser)
        _add_settings(parser, [table], ["all"], "all")
        parser.add_argument(
            "--datasets", nargs="+", metavar="NAME", help=f"{', '.join(table.datasets)} (all)"
        )
        _add_runs(parser)
        parser.set_defaults(call=run_table1 if table is TABLE1 else run_image_tables, tables=[table])
    images = parts.add_parser("images", help="Tables 2 to 6, with the trainings that they share done once")
    _add_images(images)
    _add_settings(images, IMAGE_TABLES, None, "the columns of the paper's tables, and a shared teacher")
    _add_runs(images)
    images.set_defaults(call=run_image_tables, tables=IMAGE_TABLES, datasets=None)
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
    image_options.add_images(parser, nargs="+")
    image_options.add_recipe(parser)


def _add_settings(
    parser: argparse.ArgumentParser, tables: Sequence[Table], default: list[str] | None, meaning: str
) -> None:
    text = f"{', '.join(_setting_names(tables))} ({meaning})"
    parser.add_argument("--settings", nargs="+", default=default, metavar="NAME", help=text)


def _add_runs(parser: argparse.ArgumentParser) -> None:
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

    (part,) = _parts(make, list(TABLE1.datasets), options)
    words = [] if options.epochs is None else ["--epochs", str(options.epochs)]
    words += ["--points", "FOLDER"] if options.points else []
    folder = options.out / TABLE1.name
    _train([part], folder / "records", options)
    summaries = _report(part, folder / "records", words, options)
    if plots.available() and any(summary.paper is not None for summary in summaries):
        plots.save(sensitivity.draw(summaries), folder / "sensitivity.png", dpi=160)


def run_image_tables(options: argparse.Namespace) -> None:
    """Train the missing runs of tables of images, then report all runs of the folder.

    The tables have one folder of records, because some of them have the same experiments.
    """
    tasks = list(dict.fromkeys(task for table in options.tables for task in table.datasets))
    sources = {source.name: source for source in image_options.sources_of(options, tasks)}
    recipe = image_options.recipe_of(options)

    def make(setting: Setting, dataset: str, seed: int) -> ImageExperiment:
        return ImageExperiment(setting, sources[dataset], seed, recipe)

    parts = _parts(make, list(sources), options)
    missing = [task for task in tasks if task not in sources]
    if missing:
        words = " ".join(f"{task}=PATH" for task in missing)
        print(f"Left out without their images: {', '.join(missing)}; add {words} to --data to train them.\n")
    data = [source.data if source.is_synthetic else "PATH" for source in sources.values()]
    if len(tasks) > 1:
        data = [f"{name}={path}" for name, path in zip(sources, data, strict=True)]
    records = options.out / "records"
    _train(parts, records, options)
    for part in parts:
        summaries = _report(part, records, ["--data", *data, *image_options.as_words(options)], options)
        if plots.available() and any(summary.values["predictive"] for summary in summaries):
            plots.save(runs_figure.draw(summaries), options.out / part.table.name / "runs.png")


def run_figures(options: argparse.Namespace) -> None:
    """Train and draw the figures, and print their paths."""
    sources = [ToySource(name, options.points) for name in TABLE1.datasets]
    for path in figures.draw_all(
        options.out / "figures", sources, options.seed, options.epochs, options.overwrite, not options.quiet
    ):
        print(path)


def _parts(make: Make, datasets: Sequence[str], options: argparse.Namespace) -> list[Part]:
    # The tables that have any of the data sets, with the experiments that are asked for.
    asked = options.datasets or datasets
    for name in asked:
        checks.one_of("a data set", name, datasets)
    for name in options.settings or []:
        checks.one_of("a setting", name, _setting_names(options.tables))
    parts = []
    for table in options.tables:
        own, wanted = ([name for name in names if name in table.datasets] for names in (datasets, asked))
        names = table.columns if options.settings is None else table.known(options.settings)
        if wanted:
            parts.append(Part(table, make, own, table.experiments(make, names, wanted, options.runs)))
    if not any(part.experiments for part in parts):
        raise ValueError(
            f"no table of {', '.join(asked)} has the settings {', '.join(options.settings)}; choose others"
        )
    return parts


def _setting_names(tables: Sequence[Table]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in (*table.groups, *table.settings)))


def _train(parts: Sequence[Part], folder: Path, options: argparse.Namespace) -> None:
    # The training or evaluation that is asked for; records of other settings are an error before it.
    folder = folder.absolute()
    results = {result.experiment.key: result for part in parts for result in part.results(folder)}
    # An experiment of two tables is one; ordered by seed, so that unfinished tables are even.
    asked = {each.key: each for part in parts for each in part.experiments}
    experiments = sorted(asked.values(), key=lambda each: each.seed)
    workers = runner.Workers(options.jobs, options.backend, progress=not options.quiet)
    if not (options.report_only or options.re_evaluate):
        runner.run_missing(experiments, folder, workers)
    elif not results:
        raise ValueError(f"{folder} holds no record; leave out --report-only and --re-evaluate to train")
    elif options.re_evaluate:
        rows = {(each.setting.name, each.source.name) for each in experiments}
        finished = [
            each
            for each, _ in results.values()
            if (each.setting.name, each.source.name) in rows
            if options.runs is None or each.seed < options.runs
        ]
        runner.re_evaluate(finished, folder, workers)


def _report(part: Part, records: Path, words: Sequence[str], options: argparse.Namespace) -> list[Summary]:
    results = part.results(records)
    if not results:
        print(f"{part.table.title}: no results yet.\n")
        return []
    command = " ".join(["ebreg", "reproduce", options.part, *words])
    summaries, text = report.write_report(options.out / part.table.name, part.table, results, command)
    print(text)
    return summaries
