"""``python -m benchmarks.trained``: measure what is not finished yet, and write the report."""

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import trained
from benchmarks.csv_store import CsvStore
from benchmarks.tabular.tables import read_tables
from benchmarks.trained.report import report
from benchmarks.trained.runs import METHODS, MOST_TEST_ROWS, Run, measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; returns the exit status, 2 for bad options or files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trained", description=trained.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder for each table")
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="names of tables (all)")
    parser.add_argument("--targets", nargs="+", type=int, choices=MOST_TEST_ROWS, help="(1 2 3)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="(all)")
    parser.add_argument("--out", type=Path, default=Path("results/trained"), help="(results/trained)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        tables = read_tables(options.data)
        chosen = options.tables or list(tables)
        if unknown := set(chosen) - set(tables):
            raise ValueError(f"--tables has {', '.join(sorted(unknown))}; choose from {', '.join(tables)}")
        store = CsvStore(options.out / "runs.csv", Run)
        found = store.read()
        with warnings.catch_warnings(action="ignore"):
            for name in chosen:
                for key in (
                    (name, D, method) for D in options.targets or MOST_TEST_ROWS for method in options.methods
                ):
                    if key not in found:
                        run = measure(tables[name], *key[1:])
                        store.add(run)
                        print(run, flush=True)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    (options.out / "trained.md").write_text(report(list(store.read().values())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
