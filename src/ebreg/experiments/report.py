"""The report of a table: the paper's value beside ours, the best runs as published, and all of them."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ebreg.experiments.cells import Cell, Run
from ebreg.experiments.tables import Measure, Table
from ebreg.saving import atomic_files

_N_BEST, _N_RUNS = 5, 20  # the paper reports the mean of the best 5 of 20


class Finished(NamedTuple):
    """A run and its record."""

    run: Run
    record: dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """All finished runs of a cell on a data set; for every measure lower is better.

    Attributes:
        dataset: Name of the data set.
        cell: The setting.
        paper: The published value: the mean of the best 5 of 20 runs on the test set.
        best_5: What the paper reports, of ours: of the runs with seeds 0 to 19; None if some are missing.
        values: Of all runs that gave a number by the paper's measure, by measure, rising.
        n_runs: How many were finished.
        seconds: Median wall time of a training.
        cpu_seconds: Median processor time of a training.
    """

    dataset: str
    cell: Cell
    paper: float | None
    best_5: float | None
    values: dict[str, tuple[float, ...]]
    n_runs: int
    seconds: float | None
    cpu_seconds: float | None

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


def summarize(table: Table, finished: Sequence[Finished], published: bool = True) -> list[Summary]:
    """Summaries by data set and cell, in the order of the table.

    Args:
        table: The table.
        finished: Some of its runs.
        published: Whether the data are those of the paper, whose values then stand beside.
    """
    groups: dict[tuple[str, str], list[Finished]] = {}
    for each in finished:
        groups.setdefault((each.run.dataset, each.run.cell.name), []).append(each)
    return [
        _summary(table, dataset, cell, groups[dataset, cell.name], published)
        for dataset in table.datasets
        for cell in table.cells.values()
        if (dataset, cell.name) in groups
    ]


def _summary(table: Table, dataset: str, cell: Cell, finished: list[Finished], published: bool) -> Summary:
    first = table.measures[0].name
    good = [record for _, record in finished if record.get(first) is not None]
    return Summary(
        dataset=dataset,
        cell=cell,
        paper=cell.published.get(dataset) if published else None,
        best_5=_best_5(first, [record for run, record in finished if run.seed < _N_RUNS]),
        values={measure.name: _rising(measure.name, good) for measure in table.measures},
        n_runs=len(finished),
        seconds=_of(statistics.median, [record["seconds"] for record in good]),
        cpu_seconds=_of(statistics.median, [record["cpu_seconds"] for record in good]),
    )


def _best_5(measure: str, records: list[dict[str, Any]]) -> float | None:
    values = sorted(record[measure] for record in records if record.get(measure) is not None)
    return _of(statistics.mean, values[:_N_BEST] if len(records) == _N_RUNS else ())


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
    made = f"Made by `{command}`; which cells, and how many runs of each, is what the tables below say."
    lines = [f"# {table.title}", "", made, "", *notes]
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


def runs_csv(table: Table, finished: Sequence[Finished]) -> str:
    """All finished runs, one a line."""
    names = [*(measure.name for measure in table.measures), "seconds", "cpu_seconds", "failure"]
    return _csv(
        ["dataset", "cell", "seed", *names],
        [
            [run.dataset, run.cell.name, run.seed, *(record.get(name) for name in names)]
            for run, record in sorted(finished, key=lambda each: each.run.key)
        ],
    )


def versions(finished: Sequence[Finished]) -> str:
    """A line of notes: what the runs were done with."""
    parts = {
        f"{name} {version}" for _, record in finished for name, version in record.get("versions", {}).items()
    }
    return f"* *done with*: {', '.join(sorted(parts)) or 'versions that were not recorded'}."


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
        with atomic_files.replacing(folder / name) as partial:
            partial.write_text(content, encoding="utf-8")
