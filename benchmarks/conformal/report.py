"""The report: coverage and size of each method on each table, from the runs."""

import math
import statistics
from collections.abc import Sequence

from benchmarks.conformal.runs import COVERAGES, Run
from benchmarks.measure import markdown_table

_INTRODUCTION = """# Calibrated intervals and regions

Written by `python -m benchmarks.conformal{data}`.

Of the training rows of each split, 80 % fit the models and 20 % calibrate them. Figures are means over splits
± their standard error; coverage within two standard errors of what was asked for is marked ✓. Sizes are mean
total lengths, in the unit of the target; a few rows may have enormous sets, so the median over rows, averaged
over splits, stands beside them. With n calibration rows a calibrated set is expected to cover a share of
⌈(n + 1) c⌉ / (n + 1), which is a little more than c where n is small."""


def report(runs: Sequence[Run], data: str = " --data FOLDER") -> str:
    """The text, in Markdown."""
    tables = list(dict.fromkeys(run.table for run in runs))
    parts = [_INTRODUCTION.format(data=data)]
    for table in tables:
        own = [run for run in runs if run.table == table]
        n_splits = len({run.split for run in own})
        n_test = round(statistics.mean(run.n_test for run in own))
        parts.append(f"## {table}\n\n{n_splits} splits with {n_test} test rows.\n\n{_table(own)}")
    return "\n\n".join([*parts, _marks_and_times(runs)]) + "\n"


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, which is NaN for one value."""
    if len(values) < 2:
        return statistics.fmean(values), math.nan
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def is_near(values: Sequence[float], nominal: float) -> bool:
    """Whether the mean is within two standard errors of the nominal value."""
    mean, error = mean_and_error(values)
    return abs(mean - nominal) <= 2 * error


def _table(runs: Sequence[Run]) -> str:
    titles = ["method"]
    titles += [f"coverage of {level:.0%}" for level in COVERAGES] + [
        f"size of {level:.0%}" for level in COVERAGES
    ]
    titles += ["median size of 90%"]
    body = []
    for method, own in _by_method(runs).items():
        covered = [_coverage([_of(run, "coverage", level) for run in own], level) for level in COVERAGES]
        sizes = [_cell([_of(run, "size", level) for run in own]) for level in COVERAGES]
        body.append([method, *covered, *sizes, _mean([run.median_90 for run in own])])
    return markdown_table(titles, body)


def _marks_and_times(runs: Sequence[Run]) -> str:
    titles = ["table", "method", "unreliable", "unusual", "fit, s", "conformalize, s", "predict, s"]
    names = ["unreliable", "unusual", "fit_seconds", "conformalize_seconds", "predict_seconds"]
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.table, run.method), []).append(run)
    body = [
        [*key, *(_mean([getattr(run, name) for run in own]) for name in names)] for key, own in groups.items()
    ]
    text = (
        "## Marked rows, and CPU seconds\n\nMean share of test rows that the prediction marks, and mean "
        "times of a fit, a calibration, and sets of 90 % for the test rows.\n\n"
    )
    return text + markdown_table(titles, body)


def _by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    methods: dict[str, list[Run]] = {}
    for run in runs:
        methods.setdefault(run.method, []).append(run)
    return methods


def _of(run: Run, what: str, level: float) -> float:
    return getattr(run, f"{what}_{round(100 * level)}")


def _coverage(values: list[float], nominal: float) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:.3f} ± {error:.3f}" + (" ✓" if is_near(values, nominal) else "")


def _cell(values: list[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:.3g} ± {error:.1g}"


def _mean(values: list[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    return f"{statistics.fmean(known):.3g}" if known else ""
