"""Pairs: another method beside EnergyRegressor on the splits of a table that both have."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.tabular.comparison.selection import TABLES, Selection
from benchmarks.tabular.report import METRICS
from benchmarks.tabular.summary import Mean, Value

OURS = "EnergyRegressor"
"""The method that others are compared with."""
CLEAR = 2.0
"""A difference is clear if it is larger than so many of its standard errors."""
FIT = METRICS["fit_seconds"].value


@dataclass(frozen=True)
class Pair:
    """Another method and ours; less is better.

    Attributes:
        table: Name of the table.
        method: Name of the other method.
        theirs: Its mean.
        ours: Our mean.
        difference: Mean of theirs minus ours, split by split.
        their_seconds: CPU seconds of its fit.
        our_seconds: CPU seconds of our fit.
    """

    table: str
    method: str
    theirs: Mean
    ours: Mean
    difference: Mean
    their_seconds: float
    our_seconds: float

    @classmethod
    def of(cls, selection: Selection, table: str, method: str, value: Value) -> "Pair":
        """On the shared splits; the means are NaN if there is none."""
        splits = selection.splits(table, method) & selection.splits(table, OURS)
        theirs, ours = selection.runs[table, method], selection.runs[table, OURS]
        differences = [value(theirs[split]) - value(ours[split]) for split in sorted(splits)]
        return cls(
            table,
            method,
            selection.mean(table, method, value, splits),
            selection.mean(table, OURS, value, splits),
            Mean.of(differences),
            selection.mean(table, method, FIT, splits).mean,
            selection.mean(table, OURS, FIT, splits).mean,
        )

    @property
    def is_lower(self) -> bool:
        """Whether the other method is better."""
        return self.difference.mean < 0

    @property
    def is_clear(self) -> bool:
        """Whether the difference is larger than two of its standard errors."""
        return abs(self.difference.mean) > CLEAR * self.difference.error


def lowest(selection: Selection, value: Value, share_of_time: float | None = None) -> list[Pair]:
    """For each table the other method with the lowest mean, of those that share a split with ours.

    Args:
        selection: What is compared.
        value: Whose smallest is best.
        share_of_time: Only methods whose fit takes at most this share of the time of ours. A table without
            such a method is left out.
    """
    others = [name for name in selection.with_value(value) if name not in selection.ours]
    found = []
    for table in TABLES:
        pairs = [Pair.of(selection, table, method, value) for method in others]
        pairs = [pair for pair in pairs if pair.difference.n_splits > 0]
        if share_of_time is not None:
            pairs = [pair for pair in pairs if pair.their_seconds <= share_of_time * pair.our_seconds]
        if pairs:
            found.append(min(pairs, key=lambda pair: selection.ranked_mean(table, pair.method, value)))
    return found


def where_lower(selection: Selection, method: str, value: Value) -> list[Pair]:
    """The tables on which a method is better than ours."""
    pairs: Iterable[Pair] = (Pair.of(selection, table, method, value) for table in TABLES)
    return [pair for pair in pairs if pair.is_lower]
