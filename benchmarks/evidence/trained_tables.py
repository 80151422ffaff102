"""Tables of trained models: stated and true errors, and how many rows are flagged."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks import unusual
from benchmarks.conformal.runs import Run as ConformalRun
from benchmarks.csv_store import CsvStore
from benchmarks.measure import markdown_table
from benchmarks.trained.runs import Run


def accuracy(runs: Sequence[Run]) -> str:
    """One row for each method and number of targets: medians and extremes over the tables."""
    pairs = sorted({(run.method, run.n_targets) for run in runs})
    body = []
    for method, D in pairs:
        own = [run for run in runs if (run.method, run.n_targets) == (method, D)]
        medians = [run.median_error for run in own]
        body.append(
            [
                method,
                str(D),
                str(len(own)),
                f"{sum(run.n_test for run in own):,}",
                f"{min(medians):.4f} to {max(medians):.4f}",
                f"{max(run.worst_miss for run in own):.3f}",
                f"{max(run.fooled for run in own):.1%}",
                f"{max(run.unreliable for run in own):.1%}",
            ]
        )
    titles = [
        "method", "targets", "tables", "rows", "median stated error, by table", "largest error, no flag",
        "wrong, no flag, worst table", "unreliable, worst table",
    ]  # fmt: skip
    return markdown_table(titles, body)


def flags(runs: Sequence[ConformalRun], inputs: Path) -> str:
    """The shares of test rows of each table that are flagged, means over splits."""
    found = CsvStore(inputs, unusual.Run).read().values()
    body = []
    for table in dict.fromkeys(run.table for run in found):
        own = [run for run in found if (run.table, run.detector) == (table, "ebreg")]
        fits = [run for run in runs if run.table == table and run.method == "ebreg, default: intervals"]
        moved = [statistics.fmean(run.moved_by_column) for run in own]
        body.append(
            [
                table,
                f"{statistics.fmean(run.unreliable for run in fits):.1%}" if fits else "",
                f"{statistics.fmean(run.fresh for run in own):.1%}",
                f"{statistics.fmean(moved):.0%}",
                f"{statistics.fmean(run.shuffled for run in own):.0%}",
            ]
        )
    titles = ["table", "unreliable", "unusual", "unusual, moved in one column", "unusual, shuffled"]
    return markdown_table(titles, body)
