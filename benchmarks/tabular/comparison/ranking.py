"""Ranking: ranks of the methods on each table, and what the tests of Friedman and Nemenyi say about them."""

import statistics
from dataclasses import dataclass

from scipy.stats import friedmanchisquare

from benchmarks.tabular.comparison.nemenyi import critical_difference, groups
from benchmarks.tabular.comparison.selection import TABLES, Selection
from benchmarks.tabular.summary import Value, ranks

MIN_METHODS = 3  # of Friedman's test


@dataclass(frozen=True)
class Ranking:
    """Ranks by one score, 1 for the lowest mean; methods without the score are not ranked.

    Attributes:
        by_table: Ranks by table and method.
    """

    by_table: dict[str, dict[str, float]]

    @classmethod
    def of(cls, selection: Selection, value: Value) -> "Ranking":
        """Rank by a value whose smallest is best.

        Raises:
            ValueError: If fewer than three methods have the value on every table.
        """
        methods = selection.with_value(value)
        if len(methods) < MIN_METHODS:
            raise ValueError(f"ranks need {MIN_METHODS} methods on all tables, and there are {len(methods)}")
        means = {
            table: {method: selection.ranked_mean(table, method, value) for method in methods}
            for table in TABLES
        }
        return cls({table: ranks(of_table) for table, of_table in means.items()})

    @property
    def average(self) -> dict[str, float]:
        """Mean rank over the tables, the best first."""
        names = next(iter(self.by_table.values()))
        means = {name: statistics.fmean(of[name] for of in self.by_table.values()) for name in names}
        return dict(sorted(means.items(), key=lambda item: item[1]))

    @property
    def critical_difference(self) -> float:
        """Of average ranks, by the Nemenyi test at 5 %."""
        return critical_difference(len(self.average), len(self.by_table))

    @property
    def groups(self) -> list[list[str]]:
        """Largest sets of methods that do not differ by the Nemenyi test."""
        return groups(self.average, self.critical_difference)

    @property
    def p_value(self) -> float:
        """Of Friedman's test that all methods have the same expected rank."""
        columns = [[of[name] for of in self.by_table.values()] for name in self.average]
        return float(friedmanchisquare(*columns).pvalue)
