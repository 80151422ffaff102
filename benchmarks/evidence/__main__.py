"""``python -m benchmarks.evidence``: write the page from the results, without measuring anything."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.evidence.page import page


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=page.__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="(results)")
    parser.add_argument("--out", type=Path, default=Path("docs/trust.md"), help="(docs/trust.md)")
    options = parser.parse_args(arguments)
    options.out.write_text(page(options.results), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
