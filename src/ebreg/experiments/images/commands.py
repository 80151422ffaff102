"""``ebreg reproduce table2`` to ``table6``: the experiments on images."""

import argparse

from ebreg import plots
from ebreg._utils import checks
from ebreg.experiments import parts
from ebreg.experiments.images import options as image_options
from ebreg.experiments.images import strips
from ebreg.experiments.images.jobs import ImageJob
from ebreg.experiments.images.sources import ImageSource
from ebreg.experiments.tables import TABLE1, TABLES

# Training and test images of the paper: its values stand beside ours where the numbers agree.
_SIZES = {
    "steering": (9_816, 2_455),
    "cells": (10_000, 10_000),
    "age": (11_808, 2_952),
    "head-pose": (10_613, 5_065),
}


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add the five tables."""
    for name, table in TABLES.items():
        if table is TABLE1:
            continue
        parser = commands.add_parser(name, help=table.title)
        parser.set_defaults(call=run)
        parser.add_argument(
            "--data",
            nargs="+",
            required=True,
            metavar="PATH",
            help="a file, a folder, or synthetic[:N]; for several tasks TASK=PATH of each",
        )
        parts.add_runs(parser, table)
        image_options.add_to(parser)
        parts.add_output(parser)


def run(options: argparse.Namespace) -> None:
    """Train what is asked for and missing, then report all that the folder holds."""
    table = TABLES[options.part]
    sources = image_options.sources_of(options, list(table.datasets))
    at_hand = [source.task_name for source in sources]
    asked = getattr(options, "datasets", None) or at_hand
    for name in asked:
        checks.one_of("a data set", name, at_hand)
    folder = options.out / table.name
    job = ImageJob((folder / "records").absolute(), sources, image_options.recipe_of(options))
    runs = table.runs(options.cells, asked, options.runs)
    parts.do_runs(table, job, runs, options)
    published = all(_is_the_paper_s(source) for source in sources)
    notes = _notes(sources, published)
    summaries = parts.write_report(table, job, folder, _command(options, sources), notes, published)
    if plots.available() and any(summary.values["own"] for summary in summaries):
        plots.save(strips.draw(summaries), folder / "runs.png")


def _is_the_paper_s(source: ImageSource) -> bool:
    how = source.load().how
    sizes = how["train"], how["test"]
    return how["split"] == source.task.split and sizes == _SIZES[source.task_name]


def _command(options: argparse.Namespace, sources: tuple[ImageSource, ...]) -> str:
    # Which cells, and how many runs, is what the table itself shows; where files lie is the user's own.
    several = len(TABLES[options.part].datasets) > 1
    data = [
        f"{source.task_name}=" * several + (source.data if source.is_synthetic else "PATH")
        for source in sources
    ]
    words = ["ebreg", "reproduce", options.part, "--data", *data]
    return " ".join([*words, *image_options.as_words(options)])


def _notes(sources: tuple[ImageSource, ...], published: bool) -> list[str]:
    lines = []
    for source in sources:
        split, task = source.load(), source.task
        how = split.how
        outside = int(((split.test.y < task.low) | (split.test.y > task.high)).any(dim=1).sum())
        drawn = "" if how["seed"] is None else f" with seed {how['seed']}"
        lines.append(
            f"* {source.task_name}: {how['train']} images to train on and {how['test']} to be judged by, "
            f"split: {how['split']}{drawn}; {outside} of the latter have targets off the paper's grid."
        )
    if not published:
        lines.append("* These are other images than the paper's, so its values do not stand beside.")
    return [
        *lines,
        "* *best 5 of 20*: mean of the best 5 of 20 runs by the test set, as published; empty with fewer."
        if published
        else "* *median (worst)*: of all runs.",
        "* *NLL*: by the library's predictive distribution; *its error*: of log Z, on average.",
        "* *NLL by draws of q*: with log Z from 1,024 draws of the proposal alone; *its error* likewise.",
        "* *NLL of the rounding cell*: of the interval that a rounded target stands for.",
        "* *CRPS*, and *MAE* of the median: averaged over the targets.",
        "* *CPU seconds*: median processor time of a training, one thread.",
    ]
