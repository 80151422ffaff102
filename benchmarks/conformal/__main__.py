"""``python -m benchmarks.conformal``: run what is not finished yet, and write the report."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.conformal.methods import Mapie, Method, Ours
from benchmarks.conformal.report import report
from benchmarks.conformal.runs import Run
from benchmarks.conformal.toy import two_branches
from benchmarks.csv_store import CsvStore
from benchmarks.tabular.tables import Rows, Table, read_tables

CALIBRATION_SHARE = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report; returns the exit status, 2 for bad options or files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformal")
    parser.add_argument(
        "--data", type=Path, help="folder of tables in files; without it, the toy table alone"
    )
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="names of tables (all)")
    parser.add_argument("--splits", nargs="+", type=int, help="(all)")
    parser.add_argument(
        "--random", type=at_least_1, metavar="N", help="N random splits instead of those in files"
    )
    parser.add_argument("--preset", default="default", help="of EnergyRegressor (default)")
    parser.add_argument("--out", type=Path, default=Path("results/conformal"), help="(results/conformal)")
    parser.add_argument("--report-only", action="store_true", help="run nothing, write the report")
    options = parser.parse_args(arguments)
    try:
        store = CsvStore(options.out / "runs.csv", Run)
        if not options.report_only:
            run_all(options, store)
        runs = list(store.read().values())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    data = " --data FOLDER" if {run.table for run in runs} - {two_branches().name} else ""
    (options.out / "conformal.md").write_text(report(runs, data), encoding="utf-8")
    return 0


def run_all(options: argparse.Namespace, store: CsvStore[Run]) -> None:
    """Run what the options ask for and the store does not have."""
    toy = two_branches()
    tables = {toy.name: toy} | (read_tables(options.data) if options.data else {})
    unknown = set(options.tables or ()) - set(tables)
    if unknown:
        raise ValueError(f"--tables has {', '.join(sorted(unknown))}; choose from {', '.join(tables)}")
    if options.random:
        tables = {
            name: with_random_splits(table, options.random)
            for name, table in tables.items()
            if name != toy.name  # every split of it is random
        }
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for name in options.tables or tables:
            for split in sorted(options.splits or tables[name].splits):
                for method in (Ours(options.preset), Mapie("split"), Mapie("quantiles")):
                    run_one(store, tables[name], split, method)


def at_least_1(text: str) -> int:
    """A positive whole number."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def with_random_splits(table: Table, n: int) -> Table:
    """A table with n random splits: a tenth of the rows are for testing."""
    n_rows = len(table.rows.y)
    orders = [np.random.default_rng([seed, n_rows]).permutation(n_rows) for seed in range(n)]
    splits = {seed: (order[n_rows // 10 :], order[: n_rows // 10]) for seed, order in enumerate(orders)}
    return Table(f"{table.name}, random splits", table.rows, splits)


def run_one(store: CsvStore[Run], table: Table, split: int, method: Method) -> None:
    """Run a method on a split and store its runs, unless they are finished."""
    found = store.read()
    if all((table.name, split, name) in found for name in method.names):
        return
    training, test = table.split(split)
    order = np.random.default_rng(split).permutation(len(training.y))
    n_calibration = round(CALIBRATION_SHARE * len(order))
    calibration, train = (
        Rows(training.X[part], training.y[part]) for part in (order[:n_calibration], order[n_calibration:])
    )
    columns = method.runs(train, calibration, test, split)
    for name, values in zip(method.names, columns, strict=True):
        run = Run(
            **{
                "n_calibration": 0,
                **values,
                "table": table.name,
                "split": split,
                "method": name,
                "n_test": len(test.y),
            }
        )
        if run.key not in found:
            store.add(run)
        print(
            f"{time.strftime('%H:%M:%S')} {table.name}, split {split}, {name}: "
            f"90 % covers {run.coverage_90:.3f} at size {run.size_90:.4g}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
