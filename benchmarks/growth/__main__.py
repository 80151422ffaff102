"""``python -m benchmarks.growth``: measure what is not measured yet, and write the report."""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import growth
from benchmarks.growth.case import FULL, METHODS, QUICK, Plan
from benchmarks.growth.picture import draw
from benchmarks.growth.report import report
from benchmarks.growth.store import Store
from benchmarks.speed.timing import threads
from ebreg import plots


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the report."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=growth.__doc__)
    options.add_argument("--out", type=Path, default=Path("reproduced/growth"), help="(reproduced/growth)")
    options.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    chosen = options.parse_args(arguments)
    plots.require_matplotlib()
    plan, store = QUICK if chosen.quick else FULL, Store(chosen.out)
    with threads(1), warnings.catch_warnings(action="ignore"):
        measure(plan, store)
    (chosen.out / "growth.md").write_text(report(plan, store), encoding="utf-8")
    plots.save(draw(plan, store), chosen.out / "growth.png")
    print(f"{chosen.out / 'growth.md'}, {chosen.out / 'growth.png'}")


def measure(plan: Plan, store: Store) -> None:
    """Measure the cases that the store does not have."""
    missing = [case for case in plan if case not in store]
    if missing:
        for method in METHODS:  # the first call of anything is slower
            replace(QUICK.base, method=method).measure()
    for case in missing:
        times = case.measure()
        store.add(case, times)
        print(f"{case}: {times}", flush=True)


if __name__ == "__main__":
    main()
