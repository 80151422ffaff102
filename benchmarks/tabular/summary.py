"""Summaries: means over the splits of a table, and ranks over the tables."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.tabular.runs import Run

Value = Callable[[Run], float]


@dataclass(frozen=True)
class Mean:
    """Mean over splits.

    Attributes:
        mean: Of the splits; the value of a split is the mean of its seeds.
        error: Standard error; NaN for one split.
        n_splits: Number of splits.
    """

    mean: float
    error: float
    n_splits: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        """Of a value for each split; NaN without any."""
        known = len(values) > 1 and all(map(math.isfinite, values))
        error = statistics.stdev(values) / math.sqrt(len(values)) if known else math.nan
        return cls(statistics.fmean(values) if values else math.nan, error, len(values))

    @classmethod
    def over_splits(cls, runs: Sequence[Run], value: Value) -> "Mean":
        """Of the runs of one method on one table."""
        splits = sorted({run.key.split for run in runs})
        return cls.of(
            [statistics.fmean(value(run) for run in runs if run.key.split == split) for split in splits]
        )


def ranks(values: dict[str, float]) -> dict[str, float]:
    """1 for the smallest; equal values share the mean of their ranks. NaN has no rank."""
    ranked = [value for value in values.values() if not math.isnan(value)]
    return {
        name: sum(other < value for other in ranked) + (sum(other == value for other in ranked) + 1) / 2
        for name, value in values.items()
        if not math.isnan(value)
    }


@dataclass(frozen=True)
class RankTable:
    """Ranks of the methods that were run on every table, on the splits that they share.

    Attributes:
        by_table: Ranks by table and method.
        splits: The splits of each table on which the ranks rest.
        left_out: Methods that were not run on every table.
    """

    by_table: dict[str, dict[str, float]]
    splits: dict[str, list[int]]
    left_out: list[str]

    @property
    def average(self) -> dict[str, float]:
        """Mean rank over the tables, the best first."""
        names = {name for ranks in self.by_table.values() for name in ranks}
        means = {
            name: statistics.fmean(ranks[name] for ranks in self.by_table.values()) for name in sorted(names)
        }
        return dict(sorted(means.items(), key=lambda item: item[1]))

    @classmethod
    def of(cls, runs: Iterable[Run], value: Value) -> "RankTable":
        """Rank by a value whose smallest is best; methods without it (NaN) are ignored."""
        runs = [run for run in runs if not math.isnan(value(run))]
        tables = list(dict.fromkeys(run.key.table for run in runs))
        names = list(dict.fromkeys(run.key.method for run in runs))
        of = {(table, name): _runs_of(runs, table, name) for table in tables for name in names}
        ranked = [name for name in names if all(of[table, name] for table in tables)]
        by_table, splits = {}, {}
        for table in tables if ranked else ():
            shared = set.intersection(*({run.key.split for run in of[table, name]} for name in ranked))
            if shared:
                means = {name: _mean_on(of[table, name], shared, value) for name in ranked}
                by_table[table], splits[table] = ranks(means), sorted(shared)
        return cls(by_table, splits, [name for name in names if name not in ranked])


def _runs_of(runs: Sequence[Run], table: str, method: str) -> list[Run]:
    return [run for run in runs if (run.key.table, run.key.method) == (table, method)]


def _mean_on(runs: Sequence[Run], splits: set[int], value: Value) -> float:
    return Mean.over_splits([run for run in runs if run.key.split in splits], value).mean
