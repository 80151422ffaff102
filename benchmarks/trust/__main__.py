"""Command: python -m benchmarks.trust [--seeds N] [--only WORD] [--label NAME] [--out FOLDER]."""

import argparse
from pathlib import Path

from benchmarks.trust.cases import CASES
from benchmarks.trust.measure import measure
from benchmarks.trust.report import report


def main() -> None:
    """Measure how often each density fools the stated error, and write a report on all that was measured.

    A label names the code that is measured: a checkout of another commit, say, on the path.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trust", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--only", default="", help="part of the names of the densities")
    parser.add_argument("--label", default="now")
    parser.add_argument("--out", type=Path, default=Path("results/trust"))
    args = parser.parse_args()
    for case in CASES:
        if args.only in case.name:
            result = measure(case, args.seeds)
            result.write(args.out, args.label)
            print(result, flush=True)
    (args.out / "trust.md").write_text(report(args.out), encoding="utf-8")


if __name__ == "__main__":
    main()
