"""What the commands of several tables share: how runs are asked for, and how they are reported."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ebreg.experiments import report
from ebreg.experiments.cells import Run
from ebreg.experiments.jobs import Job
from ebreg.experiments.records import Records
from ebreg.experiments.runner import BACKENDS, complete, judge_again
from ebreg.experiments.tables import Table


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add where to write, and whether to show progress."""
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="folder (reproduced)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def add_runs(parser: argparse.ArgumentParser, table: Table) -> None:
    """Add which runs of a table, and how they are done."""
    cells = ", ".join([*table.sets, *table.cells])
    datasets = list(table.datasets)
    parser.add_argument(
        "--cells", nargs="+", default=["all"], metavar="NAME", help=f"cells, or sets: {cells}"
    )
    if len(datasets) > 1:
        parser.add_argument("--datasets", nargs="+", metavar="NAME", help=f"{', '.join(datasets)} (all)")
    parser.add_argument("--runs", type=int, help="runs a cell (20, or 5 for most that go beyond the paper)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each (1)")
    parser.add_argument("--backend", default="loky", help=f"of joblib: {', '.join(BACKENDS)} (loky)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--report-only", action="store_true", help="train nothing, report what is there")
    only.add_argument(
        "--judge-again", action="store_true", help="train nothing, measure the trained networks anew"
    )


def do_runs(table: Table, job: Job, runs: Sequence[Run], options: argparse.Namespace) -> None:
    """Do the runs that are missing, unless those that are there are judged again, or only reported.

    Raises:
        EbregError: If the folder holds any record of other settings, which no report could stand beside.
    """
    finished = [run for run, _ in _finished(table, job)]
    if options.judge_again:
        if options.runs is None:  # all that there are of what was asked for
            asked = {(run.cell.name, run.dataset) for run in runs}
            runs = [run for run in finished if (run.cell.name, run.dataset) in asked]
        runs = [run for run in runs if run in finished]
        judge_again(runs, job, options.jobs, options.backend, progress=not options.quiet)
    elif not options.report_only:
        complete(runs, job, options.jobs, options.backend, progress=not options.quiet)


def reported(table: Table, job: Job) -> list[str]:
    """Names of the data sets that the folder of records has runs of."""
    return list(dict.fromkeys(run.dataset for run, _ in _finished(table, job)))


def write_report(
    table: Table, job: Job, folder: Path, command: str, notes: list[str], published: bool = True
) -> list[report.Summary]:
    """Write the report of all that a folder of records holds, whatever was asked for now; show it.

    Runs on data that the job does not have are left out: nobody could tell whether they are still of the
    same data.

    Args:
        table: The table.
        job: Whose records they are.
        folder: Where to write it.
        command: What made it.
        notes: Sentences below the heading.
        published: Whether the data are the paper's, see :func:`ebreg.experiments.report.summarize`.
    """
    finished = _finished(table, job)
    if not finished:
        raise ValueError(
            f"{job.records} holds no record; leave out --report-only and --judge-again to do the runs"
        )
    summaries = report.summarize(table, finished, published)
    notes = [*notes, report.versions(finished)]
    files = {
        f"{table.name}.md": report.markdown(table, summaries, command, notes),
        f"{table.name}.csv": report.summaries_csv(summaries),
        "runs.csv": report.runs_csv(table, finished),
    }
    report.write(folder, files)
    print(files[f"{table.name}.md"])
    return summaries


def _finished(table: Table, job: Job) -> list[report.Finished]:
    # All that the folder holds of the table.
    found = [run for run in map(table.run, Records(job.records).keys()) if run and job.knows(run)]
    return [report.Finished(run, record) for run in found if (record := job.recorded(run)) is not None]
