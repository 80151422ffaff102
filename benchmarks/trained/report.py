"""The report: one row for each trained model."""

from collections.abc import Sequence

from benchmarks.measure import markdown_table
from benchmarks.trained.runs import MOST_TEST_ROWS, MOST_TRAINING_ROWS, TRUTH, Run

_TEXT = """# What trained models say of their own accuracy

Written by `python -m benchmarks.trained --data FOLDER`: split 0 of each table, at most {rows:,} training
rows and {test} test rows for one, two and three targets, CPU time of one thread. With several targets
the last columns of the table are targets too. *Miss* is the largest error of log Z without a flag, beside
{nodes:,} nodes or {draws:,} draws; *wrong* the share of rows that are off by more than 0.05 and by more than
twice the stated error without a flag. `joint-nce` is the paper's method with its defaults, `residual-nce`
is `preset="fast"`. *Search* is the time of a prediction divided by that without a search for modes that
the proposal misses.

{table}
"""


def report(runs: Sequence[Run]) -> str:
    """The text, in Markdown."""
    titles = [
        "table", "targets", "method", "rows", "stated error, median", "99 %", "miss", "wrong", "unreliable",
        "unusual", "fit, s", "a row, ms", "search",
    ]  # fmt: skip
    return _TEXT.format(
        rows=MOST_TRAINING_ROWS,
        test=", ".join(map(str, MOST_TEST_ROWS.values())),
        nodes=TRUTH.n_nodes,
        draws=TRUTH.n_draws,
        table=markdown_table(titles, [_cells(run) for run in runs]),
    )


def _cells(run: Run) -> list[str]:
    return [
        run.table,
        str(run.n_targets),
        run.method,
        str(run.n_test),
        *(f"{value:.4f}" for value in (run.median_error, run.high_error, run.worst_miss)),
        *(f"{value:.1%}" for value in (run.fooled, run.unreliable, run.unusual)),
        f"{run.fit_seconds:.0f}",
        f"{1e3 * run.predict_seconds / run.n_test:.2g}",
        f"{run.predict_seconds / run.unsearched_seconds:.2f}",
    ]
