"""Summaries: the finished runs of a setting on a data set, beside the paper's value."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ebreg.experiments.experiment import Result
from ebreg.experiments.mean_std import MeanStd
from ebreg.experiments.records import PAPER_METRIC
from ebreg.experiments.settings import Setting
from ebreg.experiments.tables import Table

_N_BEST, _N_RUNS = 5, 20
BEST_5 = f"the best {_N_BEST} of {_N_RUNS}"  # runs, which the paper chooses on the test set


@dataclass(frozen=True)
class Summary:
    """The finished runs of a setting on a data set; lower is better for every metric.

    Attributes:
        dataset: Name of the data set.
        setting: The setting.
        paper: The published value: the best 5 of 20 runs on the test set.
        best_5: The same of our runs with seeds 0 to 19; None if some are missing, or if 16 or more failed.
        values: Of the runs that did not fail, by metric, in ascending order.
        n_runs: Number of finished runs.
        seconds: Median wall time of a training.
        cpu_seconds: Median CPU time of a training.
    """

    dataset: str
    setting: Setting
    paper: MeanStd | None
    best_5: MeanStd | None
    values: dict[str, tuple[float, ...]]
    n_runs: int
    seconds: float | None
    cpu_seconds: float | None

    @property
    def n_failures(self) -> int:
        """Number of runs without a value of the paper's metric."""
        return self.n_runs - len(self.values[PAPER_METRIC])

    @property
    def all_runs(self) -> MeanStd | None:
        """The paper's metric of all runs that did not fail; None if all failed."""
        values = self.values[PAPER_METRIC]
        return MeanStd.of(values) if values else None

    @property
    def reported(self) -> MeanStd | None:
        """By the paper's rule where there are 20 runs, else of all runs; ``reported_runs`` says which."""
        return self.all_runs if self.best_5 is None else self.best_5

    @property
    def reported_runs(self) -> str:
        """The runs that ``reported`` is of; only means of the same kind of runs can be compared."""
        if self.best_5 is not None:
            return BEST_5
        if self.n_failures:
            return f"the {self.n_runs - self.n_failures} of {self.n_runs} runs that did not fail"
        return "1 run" if self.n_runs == 1 else f"{self.n_runs} runs"

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
    return Summary(
        dataset=source.name,
        setting=setting,
        paper=setting.published.get(source.name) if source.is_published else None,
        best_5=_best_5(results),
        values={metric.name: _ascending(metric.name, good) for metric in table.metrics},
        n_runs=len(results),
        seconds=_of(statistics.median, [record["seconds"] for record in good]),
        cpu_seconds=_of(statistics.median, [record["cpu_seconds"] for record in good]),
    )


def _best_5(results: Sequence[Result]) -> MeanStd | None:
    of_20 = [record.get(PAPER_METRIC) for experiment, record in results if experiment.seed < _N_RUNS]
    good = sorted(value for value in of_20 if value is not None)
    if len(of_20) < _N_RUNS or len(good) < _N_BEST:
        return None
    return MeanStd.of(good[:_N_BEST])


def _ascending(metric: str, records: list[dict[str, Any]]) -> tuple[float, ...]:
    # A record has None for a value that is not finite, the worst there is; some metrics do not apply.
    values = [record[metric] for record in records if metric in record]
    return tuple(sorted(math.inf if value is None else value for value in values))


def _of(statistic: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return statistic(values) if values else None
