"""A table as the paper prints it: a row for each data set, a column for each setting."""

from collections.abc import Sequence

from ebreg.experiments import markdown_tables
from ebreg.experiments.mean_std import MeanStd
from ebreg.experiments.summaries import BEST_5, Summary
from ebreg.experiments.tables import Table

NOT_TRAINED = "-"  # as in the paper, for a setting that does not apply to a data set


def markdown(table: Table, summaries: Sequence[Summary]) -> list[str]:
    """Our values in Markdown, and below them the paper's on its own data; the lowest mean of a row is bold.

    Means of different kinds of runs are in rows of their own.
    """
    columns = (table.settings[name] for name in table.columns)
    header = ["data", "", *(f"{setting.group}, {setting.label}" for setting in columns)]
    rows = [
        [dataset, *row]
        for dataset in table.datasets
        for row in _rows(table, dataset, [summary for summary in summaries if summary.dataset == dataset])
    ]
    if not rows:
        return ["None of the columns of the paper's table has a result."]
    start = 0 if len(table.datasets) > 1 else 1  # the paper does not name the only data set of a table
    lines = markdown_tables.lines(header[start:], [row[start:] for row in rows])
    return [f"In the paper's layout, {table.metrics[0].title}; the lowest mean of a row is bold:", "", *lines]


def _rows(table: Table, dataset: str, summaries: Sequence[Summary]) -> list[list[str]]:
    kinds: dict[str, dict[str, MeanStd | None]] = {}
    for summary in summaries:
        if summary.reported is not None and summary.setting.name in table.columns:
            kinds.setdefault(summary.reported_runs, {})[summary.setting.name] = summary.reported
    rows = [[title(runs), *_cells(table, dataset, values)] for runs, values in kinds.items()]
    if any(summary.paper is not None for summary in summaries):
        paper = {name: table.settings[name].published.get(dataset) for name in table.columns}
        rows.append([title_of_paper(summaries), *_cells(table, dataset, paper)])
    return rows


def title(runs: str) -> str:
    """The title of values of some runs."""
    return runs if runs == "1 run" else f"mean ± std of {runs}"


def title_of_paper(summaries: Sequence[Summary]) -> str:
    """The title of the paper's values, which have no ± in Table 1."""
    has_std = any(summary.paper is not None and summary.paper.std is not None for summary in summaries)
    return f"paper: mean{' ± std' if has_std else ''} of {BEST_5}"


def _cells(table: Table, dataset: str, values: dict[str, MeanStd | None]) -> list[str]:
    means = {name: value.mean for name, value in values.items() if value is not None}
    best = min(means, key=means.__getitem__) if len(means) > 1 else None
    return [_cell(table, dataset, name, values.get(name), name == best) for name in table.columns]


def _cell(table: Table, dataset: str, name: str, value: MeanStd | None, bold: bool) -> str:
    if value is not None:
        return value.text(table.digits[dataset], bold)
    return "" if table.settings[name].applies_to(dataset) else NOT_TRAINED
