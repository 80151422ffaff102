"""``python -m benchmarks.tabular.comparison``: write the page and its pictures."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tabular.comparison import cost_panels, rank_diagram
from benchmarks.tabular.comparison.page import RANKED, page
from benchmarks.tabular.comparison.pictures import save
from benchmarks.tabular.comparison.ranking import Ranking
from benchmarks.tabular.comparison.selection import Selection
from benchmarks.tabular.report import METRICS
from benchmarks.tabular.runs import Store, write_text


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.tabular.comparison",
        description="Write the page that compares the methods on six regression tables, with two pictures.",
    )
    folder = Path("results/tabular")
    options.add_argument("--runs", type=Path, default=folder, help="folder of runs.csv (results/tabular)")
    options.add_argument("--out", type=Path, default=Path("docs"), help="folder of the page (docs)")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit status: 2 if the runs are missing or do not suffice."""
    options = parser().parse_args(arguments)
    try:
        if not (options.runs / "runs.csv").exists():
            raise ValueError(f"--runs {options.runs} has no runs.csv; run python -m benchmarks.tabular first")
        write(Selection.of(Store(options.runs).read().values()), options.out)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(options.out / "comparison.md")
    return 0


def write(selection: Selection, folder: Path) -> None:
    """Write the page and its pictures to a folder."""
    rankings = {name: Ranking.of(selection, METRICS[name].value) for name in RANKED}
    text = page(selection, rankings)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    titles = {METRICS[name].title: ranking for name, ranking in rankings.items()}
    figure = rank_diagram.draw(titles, bold=selection.ours)
    save(figure, folder / "images" / "critical-difference.png")
    figure = cost_panels.draw(selection)
    save(figure, folder / "images" / "cost-quality.png")
    write_text(folder / "comparison.md", text)


if __name__ == "__main__":
    sys.exit(main())
