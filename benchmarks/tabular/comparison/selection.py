"""Selection: the runs that are compared, and on which splits."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from benchmarks.tabular import registry
from benchmarks.tabular.runs import Run
from benchmarks.tabular.summary import Mean, Value

TABLES = {
    "yacht": "yacht",
    "bostonHousing": "boston",
    "energy": "energy",
    "concrete": "concrete",
    "power-plant": "power",
    "protein-tertiary-structure": "protein",
}
"""The tables that are compared, the smallest first, with their names on the page."""
SEED = 0
OLD = (" 0.1", " c36ad7f")
"""Ends of the names of the estimators of old versions."""
MIN_SPLITS = 3
"""A method with fewer splits on a table does not reduce the splits that the ranks of the others rest on."""

Cell = tuple[str, str]


@dataclass(frozen=True)
class Selection:
    """Runs of the methods that were run on all tables, with one seed.

    Attributes:
        methods: Names, in the order of the registry.
        ours: Those of them that are estimators of ebreg.
        left_out: Methods that were not run on every table.
        runs: By table and method: the runs by split.
    """

    methods: list[str]
    ours: set[str]
    left_out: list[str]
    runs: Mapping[Cell, Mapping[int, Run]]

    @classmethod
    def of(cls, runs: Iterable[Run]) -> "Selection":
        """Choose from all runs.

        Raises:
            ValueError: If no method was run on all tables.
        """
        cells: dict[Cell, dict[int, Run]] = {}
        for run in runs:
            key = run.key
            if key.table in TABLES and key.seed == SEED and not key.method.endswith(OLD):
                cells.setdefault((key.table, key.method), {})[key.split] = run
        known = list(registry.methods())
        names = sorted({method for _, method in cells}, key=lambda name: (_place(name, known), name))
        methods = [name for name in names if all((table, name) in cells for table in TABLES)]
        if not methods:
            raise ValueError(f"no method was run on all of the tables {', '.join(TABLES)}")
        ours = {name for (_, name), own in cells.items() if _versions(own).startswith("ebreg ")}
        left_out = [name for name in names if name not in methods]
        return cls(methods, ours & set(methods), left_out, cells)

    def splits(self, table: str, method: str) -> set[int]:
        """The splits of a table on which a method was run."""
        return set(self.runs[table, method])

    def most_splits(self, table: str) -> int:
        """The largest number of splits that a method has on a table."""
        return max(len(self.splits(table, method)) for method in self.methods)

    def shared_splits(self, table: str) -> set[int]:
        """The splits that all methods have, without the methods with fewer than MIN_SPLITS.

        Raises:
            ValueError: If there is none.
        """
        every = [self.splits(table, method) for method in self.methods]
        shared = set.intersection(*([own for own in every if len(own) >= MIN_SPLITS] or [set()]))
        if not shared:
            raise ValueError(f"the methods with {MIN_SPLITS} or more splits of {table} share no split")
        return shared

    def ranked_splits(self, table: str, method: str) -> set[int]:
        """The splits on which the rank of a method rests: the shared ones, or its own if it has too few."""
        own = self.splits(table, method)
        return own if len(own) < MIN_SPLITS else self.shared_splits(table)

    def mean(self, table: str, method: str, value: Value, splits: Collection[int] | None = None) -> Mean:
        """Mean of a method over its splits of a table, or over some of them."""
        own = self.runs[table, method]
        return Mean.of([value(own[split]) for split in sorted(own if splits is None else splits)])

    def ranked_mean(self, table: str, method: str, value: Value) -> float:
        """The mean by which a method is ranked on a table."""
        return self.mean(table, method, value, self.ranked_splits(table, method)).mean

    def with_value(self, value: Value) -> list[str]:
        """The methods that have a value on every table: a method without a density has no NLL."""
        return [
            method
            for method in self.methods
            if not any(math.isnan(self.mean(table, method, value).mean) for table in TABLES)
        ]


def _place(name: str, known: list[str]) -> int:
    return known.index(name) if name in known else len(known)


def _versions(own: Mapping[int, Run]) -> str:
    return next(iter(own.values())).versions
