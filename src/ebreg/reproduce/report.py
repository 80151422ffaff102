"""The report of a table: the paper's value beside ours, the best runs as published, and all of them."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebreg.reproduce.cells import Cell, Run
from ebreg.reproduce.tables import Measure, Table

_N_BEST, _N_RUNS = 5, 20  # the paper reports the mean of the best 5 of 20


@dataclass(frozen=True)
class Summary:
    """All finished runs of a cell on a data set; for every measure lower is better.

    Attributes:
        dataset: Name of the data set.
        cell: The setting.
        paper: The published value: the mean of the best 5 of 20 runs on the test set.
        values: Of all runs that gave a number by the paper's measure, by measure, rising.
        n_runs: How many were finished.
        seconds: Median wall time of a training.
        cpu_seconds: Median processor time of a training.
    """

    dataset: str
    cell: Cell
    paper: float | None
    values: dict[str, tuple[float, ...]]
    n_runs: int
    seconds: float | None
    cpu_seconds: float | None

    @property
    def best_5(self) -> float | None:
        """What the paper reports, of ours; None for fewer than 20 runs, or more."""
        return _of(statistics.mean, self.first[:_N_BEST] if self.n_runs == _N_RUNS else ())

    @property
    def first(self) -> tuple[float, ...]:
        """Of all runs, by the paper's measure."""
        return next(iter(self.values.values()))

    @property
    def n_failures(self) -> int:
        """How many runs gave no number."""
        return self.n_runs - len(self.first)

    def median(self, measure: str) -> float | None:
        """Of all runs that gave a number."""
        return _of(statistics.median, self.values[measure])

    def worst(self, measure: str) -> float | None:
        """The same."""
        return _of(max, self.values[measure])


def summarize(
    table: Table, runs: Sequence[Run], records: Sequence[dict[str, Any] | None], published: bool = True
) -> list[Summary]:
    """Summaries by data set and cell, in the order of the table.

    Args:
        table: The table.
        runs: Some of its runs.
        records: Theirs; None for a run that is not finished.
        published: Whether the data are those of the paper, whose values then stand beside.
    """
    finished: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run, record in zip(runs, records, strict=True):
        if record is not None:
            finished.setdefault((run.dataset, run.cell.name), []).append(record)
    return [
        _summary(table, dataset, cell, finished[dataset, cell.name], published)
        for dataset in table.datasets
        for cell in table.cells.values()
        if (dataset, cell.name) in finished
    ]


def _summary(
    table: Table, dataset: str, cell: Cell, records: list[dict[str, Any]], published: bool
) -> Summary:
    good = [record for record in records if record.get(table.measures[0].name) is not None]
    return Summary(
        dataset=dataset,
        cell=cell,
        paper=cell.published.get(dataset) if published else None,
        values={measure.name: _rising(measure.name, good) for measure in table.measures},
        n_runs=len(records),
        seconds=_of(statistics.median, [record["seconds"] for record in good]),
        cpu_seconds=_of(statistics.median, [record["cpu_seconds"] for record in good]),
    )


def _rising(measure: str, records: list[dict[str, Any]]) -> tuple[float, ...]:
    # What is not finite has no number in a record, and is the worst there is; some measures do not apply.
    values = [record[measure] for record in records if measure in record]
    return tuple(sorted(math.inf if value is None else value for value in values))


def _of(statistic: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return statistic(values) if values else None


def markdown(table: Table, summaries: Sequence[Summary], command: str, notes: Sequence[str] = ()) -> str:
    """The report as people read it: a table for each data set.

    Args:
        table: The table.
        summaries: Of its cells.
        command: What made it.
        notes: Sentences below the heading.
    """
    lines = [f"# {table.title}", "", f"Made by `{command}`.", "", *notes]
    for dataset in dict.fromkeys(summary.dataset for summary in summaries):
        lines += ["", f"## {dataset}: {table.datasets[dataset]}", ""]
        lines += _lines(table, [summary for summary in summaries if summary.dataset == dataset])
    return "\n".join([*lines, ""])


def _lines(table: Table, summaries: Sequence[Summary]) -> list[str]:
    measures = [m for m in table.measures if any(summary.values[m.name] for summary in summaries)]
    header = (
        "method",
        "setting",
        "paper, best 5 of 20",
        "best 5 of 20",
        *(f"{measure.title}: median (worst)" for measure in measures),
        "failed",
        "CPU seconds",
    )
    rows = [header, *(_row(summary, measures) for summary in summaries)]
    # The columns of the paper's way of counting are for tables that have them.
    rows = list(zip(*(column for column in zip(*rows, strict=True) if any(column[1:])), strict=True))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "| " + " | ".join("-" * w for w in widths) + " |"
    return [lines[0], rule, *lines[1:]]


def _row(summary: Summary, measures: Sequence[Measure]) -> tuple[str, ...]:
    def spread(measure: Measure) -> str:
        median, worst = summary.median(measure.name), summary.worst(measure.name)
        return "" if median is None else f"{median:.{measure.digits}f} ({worst:.{measure.digits}f})"

    best_5 = summary.best_5
    return (
        summary.cell.group,
        summary.cell.label,
        "" if summary.paper is None else f"{summary.paper:g}",
        "" if best_5 is None else f"{best_5:.{measures[0].digits}f}",
        *map(spread, measures),
        f"{summary.n_failures} of {summary.n_runs}",
        "" if summary.cpu_seconds is None else f"{summary.cpu_seconds:.0f}",
    )


def summaries_csv(summaries: Sequence[Summary]) -> str:
    """The summaries as a table for programs."""
    return rows_csv([_facts(summary) for summary in summaries])


def _facts(summary: Summary) -> dict[str, Any]:
    spreads = {
        f"{name}_{part}": of(name)
        for name in summary.values
        for part, of in (("median", summary.median), ("worst", summary.worst))
    }
    return {
        "dataset": summary.dataset,
        "cell": summary.cell.name,
        "group": summary.cell.group,
        "setting": summary.cell.label,
        "paper": summary.paper,
        "best_5": summary.best_5,
        **spreads,
        "runs": summary.n_runs,
        "failures": summary.n_failures,
        "seconds": summary.seconds,
        "cpu_seconds": summary.cpu_seconds,
    }


def runs_csv(table: Table, runs: Sequence[Run], records: Sequence[dict[str, Any] | None]) -> str:
    """All finished runs, one a line."""
    names = [*(measure.name for measure in table.measures), "seconds", "cpu_seconds", "failure"]
    finished = [(run, record) for run, record in zip(runs, records, strict=True) if record is not None]
    finished.sort(key=lambda pair: pair[0].key)
    return _csv(
        ["dataset", "cell", "seed", *names],
        [
            [run.dataset, run.cell.name, run.seed, *(record.get(name) for name in names)]
            for run, record in finished
        ],
    )


def rows_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of equal names, as a table."""
    return _csv(list(rows[0]), [list(row.values()) for row in rows])


def _csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def write(folder: Path, files: dict[str, str]) -> None:
    """Write reports, in place of those that are there: they are made from records and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
