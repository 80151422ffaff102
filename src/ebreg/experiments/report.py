"""Reports: the results of a table as Markdown and CSV, our values beside the paper's."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebreg.experiments import markdown_tables, paper_layout
from ebreg.experiments.experiment import Result
from ebreg.experiments.mean_std import MeanStd
from ebreg.experiments.summaries import BEST_5, Summary, summarize
from ebreg.experiments.tables import Make, Metric, Table
from ebreg.saving import atomic_files


def read_results(table: Table, make: Make, datasets: Sequence[str], folder: Path) -> dict[str, Result]:
    """Read the records of a table in a folder, by their keys; those of other data sets are left out.

    Raises:
        EbregError: If a record is damaged, or was made with other settings.
    """
    found = (table.find(make, path.stem, datasets) for path in sorted(folder.glob("*.json")))
    read = ((each, each.read(folder)) for each in found if each is not None)
    return {each.key: Result(each, record) for each, record in read if record is not None}


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
    """The report: the table in the paper's layout, then one with all metrics for each data set."""
    sources = {result.experiment.source.name: result.experiment.source for result in results}
    versions = {f"{name} {v}" for _, record in results for name, v in record["versions"].items()}
    lines = [
        f"# {table.title}",
        "",
        f"Made by `{command}`; the tables below list the settings and their numbers of runs.",
        "",
        *paper_layout.markdown(table, summaries),
        "",
        *(f"* {name}: {sources[name].description}." for name in table.datasets if name in sources),
        *_explained(summaries),
        *table.notes,
        "* *CPU seconds*: median CPU time of a training, one thread.",
        f"* *versions*: {', '.join(sorted(versions))}.",
    ]
    for name in dict.fromkeys(summary.dataset for summary in summaries):
        lines += ["", f"## {name}: {table.datasets[name]}", ""]
        lines += _lines(table, [summary for summary in summaries if summary.dataset == name])
    return "\n".join([*lines, ""])


def _explained(summaries: Sequence[Summary]) -> list[str]:
    # What the numbers are of.
    runs = {summary.reported_runs for summary in summaries}
    failed = any(summary.n_failures for summary in summaries)
    is_compared = any(summary.paper is not None and summary.paper.std is not None for summary in summaries)
    return [
        *([f"* *{BEST_5}*: of the runs, chosen on the test set, as in the paper."] if BEST_5 in runs else []),
        *(["* *mean ± std of N runs*: of all runs; none is selected."] if runs - {BEST_5} else []),
        *(["* *runs that did not fail*: the failed ones have no value."] if failed else []),
        "* *±*: the sample standard deviation (n - 1)."
        + (" The paper does not say how it computes its own." if is_compared else ""),
        "* *median (worst)*: of the runs that did not fail.",
    ]


def _lines(table: Table, summaries: Sequence[Summary]) -> list[str]:
    metrics = [m for m in table.metrics if any(summary.values[m.name] for summary in summaries)]
    runs = dict.fromkeys(summary.reported_runs for summary in summaries if summary.reported is not None)
    header = (
        "method",
        "setting",
        paper_layout.title_of_paper(summaries),
        *map(paper_layout.title, runs),
        *(f"{metric.title}: median (worst)" for metric in metrics),
        "failed",
        "CPU seconds",
    )
    return markdown_tables.filled(
        header, [_cells(table, summary, metrics, list(runs)) for summary in summaries]
    )


def _cells(table: Table, summary: Summary, metrics: Sequence[Metric], runs: Sequence[str]) -> list[str]:
    def spread(metric: Metric) -> str:
        median, worst = summary.median(metric.name), summary.worst(metric.name)
        return "" if median is None else f"{median:.{metric.digits}f} ({worst:.{metric.digits}f})"

    reported = summary.reported
    own = "" if reported is None else reported.text(table.metrics[0].digits)
    return [
        summary.setting.group + ("" if summary.setting.in_paper else " (not in the paper)"),
        summary.setting.label,
        "" if summary.paper is None else summary.paper.text(table.digits[summary.dataset]),
        # Each kind of mean has a column of its own.
        *(own if title == summary.reported_runs else "" for title in runs),
        *map(spread, metrics),
        f"{summary.n_failures} of {summary.n_runs}",
        "" if summary.cpu_seconds is None else f"{summary.cpu_seconds:.0f}",
    ]


def _as_row(summary: Summary) -> dict[str, Any]:
    spreads: dict[str, Any] = {}
    for name in summary.values:
        spreads |= {f"{name}_median": summary.median(name), f"{name}_worst": summary.worst(name)}
    return {
        "dataset": summary.dataset,
        "setting": summary.setting.name,
        "group": summary.setting.group,
        "label": summary.setting.label,
        **_mean_and_std("paper", summary.paper),
        **_mean_and_std("best_5_of_20", summary.best_5),
        **_mean_and_std("all_runs", summary.all_runs),
        **spreads,
        "runs": summary.n_runs,
        "failures": summary.n_failures,
        "seconds": summary.seconds,
        "cpu_seconds": summary.cpu_seconds,
    }


def _mean_and_std(name: str, value: MeanStd | None) -> dict[str, float | None]:
    mean, std = (None, None) if value is None else (value.mean, value.std)
    return {f"{name}_mean": mean, f"{name}_std": std}


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
