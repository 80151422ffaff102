"""Reports: the results of a table as Markdown and CSV, our values beside the paper's."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebreg.experiments.experiment import Result
from ebreg.experiments.records import PAPER_METRIC
from ebreg.experiments.settings import Setting
from ebreg.experiments.tables import Make, Metric, Table
from ebreg.saving import atomic_files

_N_BEST, _N_RUNS = 5, 20  # the paper reports the mean of the best 5 of 20
_BEST = "* *best 5 of 20*: mean of the best 5 of 20 runs, chosen on the test set, as in the paper."


def read_results(table: Table, make: Make, datasets: Sequence[str], folder: Path) -> dict[str, Result]:
    """Read the records of a table in a folder, by their keys; those of other data sets are left out.

    Raises:
        EbregError: If a record is damaged, or was made with other settings.
    """
    found = (table.find(make, path.stem, datasets) for path in sorted(folder.glob("*.json")))
    read = ((each, each.read(folder)) for each in found if each is not None)
    return {each.key: Result(each, record) for each, record in read if record is not None}


@dataclass(frozen=True)
class Summary:
    """The finished runs of a setting on a data set; lower is better for every metric.

    Attributes:
        dataset: Name of the data set.
        setting: The setting.
        paper: The published value: the mean of the best 5 of 20 runs on the test set.
        best_5: The same of our runs with seeds 0 to 19; None if some are missing.
        values: Of the runs that did not fail, by metric, in ascending order.
        n_runs: Number of finished runs.
        seconds: Median wall time of a training.
        cpu_seconds: Median CPU time of a training.
    """

    dataset: str
    setting: Setting
    paper: float | None
    best_5: float | None
    values: dict[str, tuple[float, ...]]
    n_runs: int
    seconds: float | None
    cpu_seconds: float | None

    @property
    def n_failures(self) -> int:
        """Number of runs without a value of the paper's metric."""
        return self.n_runs - len(self.values[PAPER_METRIC])

    def median(self, metric: str) -> float | None:
        """Median of the runs that did not fail."""
        return _of(statistics.median, self.values[metric])

    def worst(self, metric: str) -> float | None:
        """Worst of the runs that did not fail."""
        return _of(max, self.values[metric])


def summarize(table: Table, results: Sequence[Result]) -> list[Summary]:
    """Summaries by data set and setting, in the order of the table."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.experiment.source.name, result.experiment.setting.name), []).append(result)
    return [
        _summary(table, groups[dataset, setting.name])
        for dataset in table.datasets
        for setting in table.settings.values()
        if (dataset, setting.name) in groups
    ]


def _summary(table: Table, results: list[Result]) -> Summary:
    source, setting = results[0].experiment.source, results[0].experiment.setting
    good = [record for _, record in results if record.get(PAPER_METRIC) is not None]
    of_20 = [record.get(PAPER_METRIC) for experiment, record in results if experiment.seed < _N_RUNS]
    best = sorted(value for value in of_20 if value is not None)[:_N_BEST] if len(of_20) == _N_RUNS else []
    return Summary(
        dataset=source.name,
        setting=setting,
        paper=setting.published.get(source.name) if source.is_published else None,
        best_5=_of(statistics.mean, best),
        values={metric.name: _ascending(metric.name, good) for metric in table.metrics},
        n_runs=len(results),
        seconds=_of(statistics.median, [record["seconds"] for record in good]),
        cpu_seconds=_of(statistics.median, [record["cpu_seconds"] for record in good]),
    )


def _ascending(metric: str, records: list[dict[str, Any]]) -> tuple[float, ...]:
    # A record has None for a value that is not finite, the worst there is; some metrics do not apply.
    values = [record[metric] for record in records if metric in record]
    return tuple(sorted(math.inf if value is None else value for value in values))


def _of(statistic: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return statistic(values) if values else None


def write_report(
    folder: Path, table: Table, results: Sequence[Result], command: str
) -> tuple[list[Summary], str]:
    """Write a report as Markdown, the summaries and all runs as CSV; returns summaries and Markdown."""
    summaries = summarize(table, results)
    text = markdown(table, results, summaries, command)
    write_text(folder / f"{table.name}.md", text)
    write_text(folder / f"{table.name}.csv", rows_csv([_as_row(summary) for summary in summaries]))
    write_text(folder / "runs.csv", runs_csv(table, results))
    return summaries, text


def markdown(table: Table, results: Sequence[Result], summaries: Sequence[Summary], command: str) -> str:
    """The report with one Markdown table for each data set."""
    sources = {result.experiment.source.name: result.experiment.source for result in results}
    versions = {f"{name} {v}" for _, record in results for name, v in record["versions"].items()}
    lines = [
        f"# {table.title}",
        "",
        f"Made by `{command}`; the tables below list the settings and their numbers of runs.",
        "",
        *(f"* {name}: {sources[name].description}." for name in table.datasets if name in sources),
        *([_BEST] if any(summary.best_5 is not None for summary in summaries) else []),
        "* *median (worst)*: of the runs that did not fail.",
        *table.notes,
        "* *CPU seconds*: median CPU time of a training, one thread.",
        f"* *versions*: {', '.join(sorted(versions))}.",
    ]
    for name in dict.fromkeys(summary.dataset for summary in summaries):
        lines += ["", f"## {name}: {table.datasets[name]}", ""]
        lines += _lines(table, [summary for summary in summaries if summary.dataset == name])
    return "\n".join([*lines, ""])


def _lines(table: Table, summaries: Sequence[Summary]) -> list[str]:
    metrics = [m for m in table.metrics if any(summary.values[m.name] for summary in summaries)]
    titles = [f"{metric.title}: median (worst)" for metric in metrics]
    header = ("method", "setting", "paper, best 5 of 20", "best 5 of 20", *titles, "failed", "CPU seconds")
    rows = [header, *(_cells(summary, metrics) for summary in summaries)]
    # A column without any value is left out.
    filled = [column for column in zip(*rows, strict=True) if any(column[1:])]
    columns = [[text.ljust(max(map(len, column))) for text in column] for column in filled]
    lines = ["| " + " | ".join(row) + " |" for row in zip(*columns, strict=True)]
    rule = "| " + " | ".join("-" * len(column[0]) for column in columns) + " |"
    return [lines[0], rule, *lines[1:]]


def _cells(summary: Summary, metrics: Sequence[Metric]) -> tuple[str, ...]:
    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    def spread(metric: Metric) -> str:
        median, worst = summary.median(metric.name), summary.worst(metric.name)
        return "" if median is None else f"{median:.{metric.digits}f} ({worst:.{metric.digits}f})"

    return (
        summary.setting.group,
        summary.setting.label,
        text(summary.paper, "g"),
        text(summary.best_5, f".{metrics[0].digits}f" if metrics else ""),
        *map(spread, metrics),
        f"{summary.n_failures} of {summary.n_runs}",
        text(summary.cpu_seconds, ".0f"),
    )


def _as_row(summary: Summary) -> dict[str, Any]:
    spreads: dict[str, Any] = {}
    for name in summary.values:
        spreads |= {f"{name}_median": summary.median(name), f"{name}_worst": summary.worst(name)}
    return {
        "dataset": summary.dataset,
        "setting": summary.setting.name,
        "group": summary.setting.group,
        "label": summary.setting.label,
        "paper": summary.paper,
        "best_5": summary.best_5,
        **spreads,
        "runs": summary.n_runs,
        "failures": summary.n_failures,
        "seconds": summary.seconds,
        "cpu_seconds": summary.cpu_seconds,
    }


def runs_csv(table: Table, results: Sequence[Result]) -> str:
    """All finished runs as CSV, one in each line."""
    names = [*(metric.name for metric in table.metrics), "seconds", "cpu_seconds", "failure"]
    return rows_csv(
        [
            {"dataset": each.source.name, "setting": each.setting.name, "seed": each.seed}
            | {name: record.get(name) for name in names}
            for each, record in sorted(results, key=lambda result: result.experiment.key)
        ]
    )


def rows_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the same names as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in a folder that is made if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_files.replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
