"""Tables of coverage and sizes of calibrated sets, from the runs of the conformal benchmark."""

import math
from collections.abc import Callable, Sequence

from benchmarks.conformal.report import is_near, mean_and_error
from benchmarks.conformal.runs import COVERAGES, Run
from benchmarks.measure import markdown_table

_OURS = "ebreg, default: "
METHODS = {
    f"{_OURS}intervals": "intervals of the model",
    f"{_OURS}calibrated intervals": "calibrated intervals",
    f"{_OURS}regions": "regions of the model",
    f"{_OURS}calibrated regions": "calibrated regions",
    "MAPIE, split": "MAPIE, split",
    "MAPIE, CQR": "MAPIE, CQR",
}


def coverage(runs: Sequence[Run]) -> str:
    """Coverage of 90 %, one row for each table."""
    return _table(runs, lambda own: _coverage([run.coverage_90 for run in own]))


def sizes(runs: Sequence[Run]) -> str:
    """Median sizes of sets of 90 %, one row for each table."""
    return _table(runs, lambda own: f"{mean_and_error([run.median_90 for run in own])[0]:.3g}")


def how_many_are_near(runs: Sequence[Run]) -> str:
    """At every level, one row for each method: on how many tables coverage is as it should be."""
    tables = list(dict.fromkeys(run.table for run in runs))
    body = []
    for method, name in METHODS.items():
        near, beyond = 0, 0
        for table in tables:
            own = [run for run in runs if (run.table, run.method) == (table, method)]
            for level in COVERAGES if own else ():
                values = [getattr(run, f"coverage_{round(100 * level)}") for run in own]
                near += is_near(values, level)
                beyond += is_near(values, _expected(own, level)) and not is_near(values, level)
        body.append([name, f"{near} of {len(tables) * len(COVERAGES)}", str(beyond)])
    titles = ["method", "within two standard errors of nominal", "only of what n rows give"]
    return markdown_table(titles, body)


def _expected(runs: Sequence[Run], level: float) -> float:
    # What split conformal prediction gives with n rows, a little more than the level.
    shares = [
        math.ceil((run.n_calibration + 1) * level) / (run.n_calibration + 1) if run.n_calibration else level
        for run in runs
    ]
    return sum(shares) / len(shares)


def _table(runs: Sequence[Run], cell: Callable[[Sequence[Run]], str]) -> str:
    body = []
    for table in dict.fromkeys(run.table for run in runs):
        own = [[run for run in runs if (run.table, run.method) == (table, name)] for name in METHODS]
        body.append([table, *(cell(found) if found else "" for found in own)])
    return markdown_table(["table", *METHODS.values()], body)


def _coverage(values: Sequence[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:.3f} ± {error:.3f}" + (" ✓" if is_near(values, 0.9) else "")
