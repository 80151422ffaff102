"""``python -m benchmarks.tabular``: run what is not finished yet, and write the report."""

import argparse
import itertools
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

from benchmarks.tabular import registry
from benchmarks.tabular.predicted import Method
from benchmarks.tabular.report import write_report
from benchmarks.tabular.runs import Key, Store, measure
from benchmarks.tabular.tables import Table, bundled_tables, read_tables

T = TypeVar("T")


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.tabular",
        description="Compare the estimators of ebreg with other libraries on regression tables. Finished "
        "runs are stored and not repeated.",
    )
    text = "folder of tables in files; without it, tables that come with scikit-learn"
    options.add_argument("--data", type=Path, help=text)
    options.add_argument("--tables", nargs="+", metavar="NAME", help="names of tables (all)")
    options.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2, 3, 4], help="(0 1 2 3 4)")
    options.add_argument("--methods", nargs="+", metavar="NAME", help="names of methods (all installed)")
    options.add_argument("--seeds", nargs="+", type=int, default=[0], help="seeds of the methods (0)")
    options.add_argument("--out", type=Path, default=Path("results/tabular"), help="(results/tabular)")
    options.add_argument("--label", default="", help="added to the names of ebreg's estimators: a version")
    options.add_argument("--report-only", action="store_true", help="run nothing, write the report")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report; returns the exit status: 1 if a run failed, 2 for bad options or files."""
    options = parser().parse_args(arguments)
    store = Store(options.out)
    try:
        failed = False if options.report_only else run_all(options, store)
        runs = list(store.read().values())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    bundled = {run.key.table for run in runs} <= set(bundled_tables())
    write_report(options.out, runs, "python -m benchmarks.tabular" + ("" if bundled else " --data FOLDER"))
    print(f"{options.out / 'tabular.md'}: {len(runs)} runs")
    return int(failed)


def run_all(options: argparse.Namespace, store: Store) -> bool:
    """Run what the options ask for and the store does not have; returns whether a run failed."""
    tables = read_tables(options.data) if options.data else bundled_tables()
    tables = chosen("--tables", tables, options.tables)
    methods = installed(registry.methods(options.label), options.methods)
    for method in methods.values():
        store.check_settings(method)
    for table, split in itertools.product(tables.values(), options.splits):
        table.split(split)
    wanted = itertools.product(tables.values(), options.splits, methods.values(), options.seeds)
    torch.set_num_threads(1)
    with threadpool_limits(1):
        return sum(run_one(store, *each) for each in wanted) > 0


def run_one(store: Store, table: Table, split: int, method: Method, seed: int) -> bool:
    """Run and store one, unless it is finished; returns whether it failed."""
    key = Key(table.name, split, method.name, seed)
    if key in store.read():
        return False
    what = f"{time.strftime('%H:%M:%S')} {table.name}, split {split}, {method.name}, seed {seed}"
    try:
        run = measure(table, split, method, seed)
    except Exception:  # the other runs are worth having, and this one is tried again the next time
        print(f"{what}: failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return True
    store.add(run)
    scores = f"NLL {run.scores.nll:.3f}, CRPS {run.scores.crps:.4g}, RMSE {run.scores.rmse:.4g}"
    print(f"{what}: {scores}, fit {run.fit_seconds:.1f} s, predict {run.predict_seconds:.1f} s", flush=True)
    return False


def chosen(option: str, known: dict[str, T], names: Sequence[str] | None) -> dict[str, T]:
    """Those with the names that an option gives, in the order in which they are known.

    Raises:
        ValueError: For an unknown name.
    """
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"{option} has {unknown[0]!r}; choose from {', '.join(map(repr, known))}")
    return {name: value for name, value in known.items() if names is None or name in names}


def installed(methods: dict[str, Method], names: Sequence[str] | None) -> dict[str, Method]:
    """The chosen methods; without a choice, those whose packages are installed.

    Raises:
        ValueError: For an unknown name, or if a method was chosen whose packages are not installed.
    """
    methods = chosen("--methods", methods, names)
    missing = {name: registry.missing(method) for name, method in methods.items()}
    for name, packages in missing.items():
        if packages:
            text = f"{name} needs {', '.join(packages)}: pip install 'ebreg[bench]'"
            if names is not None:
                raise ValueError(text)
            print(f"left out: {text}", file=sys.stderr)
    return {name: method for name, method in methods.items() if not missing[name]}


if __name__ == "__main__":
    sys.exit(main())
