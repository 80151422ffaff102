"""The report of a table: the paper's value beside ours, the best runs as published, and all of them."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ebreg.reproduce.cells import Cell, Run
from ebreg.reproduce.tasks import METRICS

_N_BEST, _N_RUNS = 5, 20  # the paper reports the mean of the best 5 of 20
_DIGITS = {"gustafsson": 4, "brando": 3}


@dataclass(frozen=True)
class Summary:
    """All finished runs of a cell on a data set; values are KL divergences or NLLs, lower is better.

    Attributes:
        dataset: Name of the data set.
        cell: Name of the cell.
        group: The cell's group.
        label: What sets it apart there.
        paper: The published value: the mean of the best 5 of 20 runs on the test set.
        best_5: The same of ours, on the paper's grid; None for fewer than 20 runs.
        median: Of all runs that gave a number, on the paper's grid.
        best: The best of them.
        worst: The worst of them.
        own_median: Median by the library's predictive distribution, which knows no grid.
        own_worst: Worst by it.
        runs: How many were finished.
        failures: How many of these gave no number.
        seconds: Median wall time of a training.
        cpu_seconds: Median processor time of a training.
        setting: What is varied in the cell's group: sigma1 or K.
        values: Of all runs that gave a number, on the paper's grid, rising.
    """

    dataset: str
    cell: str
    group: str
    label: str
    paper: float | None
    best_5: float | None
    median: float | None
    best: float | None
    worst: float | None
    own_median: float | None
    own_worst: float | None
    runs: int
    failures: int
    seconds: float | None
    cpu_seconds: float | None
    setting: float
    values: tuple[float, ...]


def summarize(runs: Sequence[Run], records: Sequence[dict[str, Any] | None]) -> list[Summary]:
    """Summaries by data set and cell, in the order of the runs; a run that is not finished has no record."""
    finished: dict[tuple[str, str], list[dict[str, Any]]] = {}
    cells: dict[str, Cell] = {}
    for run, record in zip(runs, records, strict=True):
        cells[run.cell.name] = run.cell
        if record is not None:
            finished.setdefault((run.dataset, run.cell.name), []).append(record)
    return [
        _summary(dataset, cell, finished[dataset, name])
        for dataset in METRICS
        for name, cell in cells.items()
        if (dataset, name) in finished
    ]


def _summary(dataset: str, cell: Cell, records: list[dict[str, Any]]) -> Summary:
    good = [record for record in records if record.get("on_grid") is not None]
    values = sorted(record["on_grid"] for record in good)
    # What is not finite has no number in a record; by that measure it is the worst there is.
    own = [math.inf if record["own"] is None else record["own"] for record in good]
    return Summary(
        dataset=dataset,
        cell=cell.name,
        group=cell.group,
        label=cell.label,
        paper=cell.published.get(dataset),
        best_5=_of(statistics.mean, values[:_N_BEST] if len(records) >= _N_RUNS else []),
        median=_of(statistics.median, values),
        best=_of(min, values),
        worst=_of(max, values),
        own_median=_of(statistics.median, own),
        own_worst=_of(max, own),
        runs=len(records),
        failures=len(records) - len(good),
        seconds=_of(statistics.median, [record["seconds"] for record in good]),
        cpu_seconds=_of(statistics.median, [record["cpu_seconds"] for record in good]),
        setting=cell.n_components if cell.sigma is None else cell.sigma,
        values=tuple(values),
    )


def _of(statistic: Any, values: list[float]) -> float | None:
    return statistic(values) if values else None


def markdown(summaries: Sequence[Summary], title: str, command: str, notes: Sequence[str] = ()) -> str:
    """The report as people read it: a table for each data set.

    Args:
        summaries: Of the cells.
        title: Heading.
        command: What made it.
        notes: Sentences below the heading.
    """
    lines = [f"# {title}", "", f"Made by `{command}`.", "", *notes]
    for dataset in dict.fromkeys(summary.dataset for summary in summaries):
        lines += ["", f"## {dataset}: {_MEANING[dataset]}", ""]
        lines += _table([summary for summary in summaries if summary.dataset == dataset])
    return "\n".join([*lines, ""])


_MEANING = {
    "gustafsson": "KL divergence from the truth to the model",
    "brando": "NLL of the test points (the truth itself has 1.239)",
}
_COLUMNS = (
    "method",
    "setting",
    "paper, best 5 of 20",
    "best 5 of 20",
    "median",
    "worst",
    "median, own",
    "worst, own",
    "failed",
    "CPU seconds",
)


def _table(summaries: Sequence[Summary]) -> list[str]:
    rows = [_COLUMNS, *map(_row, summaries)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "| " + " | ".join("-" * w for w in widths) + " |"
    return [lines[0], rule, *lines[1:]]


def _row(s: Summary) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.{_DIGITS[s.dataset]}f}"

    values = (s.best_5, s.median, s.worst, s.own_median, s.own_worst)
    return (
        s.group,
        s.label,
        "" if s.paper is None else f"{s.paper:g}",
        *map(number, values),
        f"{s.failures} of {s.runs}",
        "" if s.cpu_seconds is None else f"{s.cpu_seconds:.0f}",
    )


def summaries_csv(summaries: Sequence[Summary]) -> str:
    """The summaries as a table for programs."""
    names = [f.name for f in fields(Summary) if f.name not in ("setting", "values")]
    return _csv(names, [[getattr(summary, name) for name in names] for summary in summaries])


def runs_csv(runs: Sequence[Run], records: Sequence[dict[str, Any] | None]) -> str:
    """All finished runs, one a line."""
    names = ("on_grid", "own", "seconds", "cpu_seconds", "failure")
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
