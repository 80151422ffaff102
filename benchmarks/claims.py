"""The paper's claims on images, as differences between runs with the same seed.

``python -m benchmarks.claims results/images/tables`` reads the ``runs.csv`` of Tables 2 to 6 in a folder and
writes ``claims.md`` there. A difference is of two settings, seed by seed; negative means that the first is
better.
"""

import csv
import itertools
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from ebreg.experiments.markdown_tables import lines

METRICS = {"on_grid": "NLL on the paper's grid", "predictive": "NLL", "crps": "CRPS"}
TABLES = {"steering": 2, "cells": 3, "age": 4, "head-pose": 5}
COMPONENTS = {"steering": (4, 8), "cells": (4, 8), "age": (4, 8), "head-pose": (4, 8, 16)}

Runs = dict[tuple[str, str], dict[int, dict[str, float]]]


def main() -> None:
    folder = Path(sys.argv[1])
    runs = read(folder)
    text = [
        "# The paper's claims, by runs with the same seed",
        "",
        "Made by `python -m benchmarks.claims`. Mean difference ± its standard error, number of seeds with",
        "a lower value for the first. The best sigma of a metric is the one with the lowest mean on the",
        "test images, which favours NCE.",
        "",
        "## Ours against NCE",
        "",
        *table(runs, against_nce(runs)),
        "",
        "## A teacher against none, and a shared one",
        "",
        *table(runs, teachers()),
        "",
    ]
    (folder / "claims.md").write_text("\n".join(text), encoding="utf-8")
    print((folder / "claims.md").read_text(encoding="utf-8"))


def read(folder: Path) -> Runs:
    """Metrics by data set and setting, then by seed."""
    runs: Runs = {}
    for number in (*TABLES.values(), 6):
        with (folder / f"table{number}" / "runs.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                values = {name: float(row[name]) for name in METRICS if row.get(name)}
                runs.setdefault((row["dataset"], row["setting"]), {})[int(row["seed"])] = values
    return runs


def against_nce(runs: Runs) -> Iterator[tuple[str, str, str, dict[str, str]]]:
    """Data set, label, first setting, and the second for each metric."""
    for dataset in TABLES:
        noises = [setting for name, setting in runs if name == dataset and setting.startswith("nce-")]
        for label, choose in (("the best sigma", min), ("the worst sigma", max)):
            chosen = {
                metric: choose(noises, key=lambda noise, metric=metric: mean(runs, dataset, noise, metric))
                for metric in METRICS
            }
            yield dataset, f"ours, K = 4, against {label}", "ours-4", chosen


def teachers() -> Iterator[tuple[str, str, str, dict[str, str]]]:
    """The same for mixtures."""
    for dataset, numbers in COMPONENTS.items():
        for K, name in itertools.product(numbers, ("teacher", "shared-teacher")):
            label = f"{name.replace('-', ' ')} against none, K = {K}"
            yield dataset, label, f"mdn-{name}-{K}", same(f"mdn-{K}")


def same(setting: str) -> dict[str, str]:
    return dict.fromkeys(METRICS, setting)


def mean(runs: Runs, dataset: str, setting: str, metric: str) -> float:
    return statistics.mean(values[metric] for values in runs[dataset, setting].values())


def table(runs: Runs, comparisons: Iterator[tuple[str, str, str, dict[str, str]]]) -> list[str]:
    rows = [
        [dataset, label, *(cell(runs, dataset, first, second[metric], metric) for metric in METRICS)]
        for dataset, label, first, second in comparisons
    ]
    return lines(["data", "comparison", *METRICS.values()], rows)


def cell(runs: Runs, dataset: str, first: str, second: str, metric: str) -> str:
    """The difference of two settings, over the seeds that have both."""
    ours, theirs = runs.get((dataset, first), {}), runs.get((dataset, second), {})
    seeds = [seed for seed in ours if seed in theirs and metric in ours[seed] and metric in theirs[seed]]
    differences = [ours[seed][metric] - theirs[seed][metric] for seed in seeds]
    if len(differences) < 2:
        return "too few runs"
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    lower = sum(difference < 0 for difference in differences)
    noise = f", {second}" if second.startswith("nce-") else ""
    return f"{statistics.mean(differences):+.2f} ± {error:.2f} ({lower} of {len(differences)}{noise})"


if __name__ == "__main__":
    main()
