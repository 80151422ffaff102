"""The regressors with their defaults on the paper's two 1-D data sets.

``python -m benchmarks.toy_defaults --points FOLDER --out results/toy-defaults``. FOLDER holds the authors'
points of the first set; without it, points of the same distribution are drawn. A run that is in the CSV file
is not repeated.
"""

import argparse
import csv
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import markdown_table
from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.datasets import TASKS
from ebreg.experiments.toy import ToySource
from ebreg.experiments.toy.evaluation import evaluate

REGRESSORS = {"EnergyRegressor()": EnergyRegressor, "MixtureDensityRegressor()": MixtureDensityRegressor}
COLUMNS = ("dataset", "regressor", "seed", "KL or NLL", "epochs", "training, CPU seconds")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=Path)
    parser.add_argument("--out", type=Path, default=Path("reproduced/toy-defaults"))
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "runs.csv"
    for seed in range(options.seeds):
        for dataset in TASKS:
            for name in REGRESSORS:
                if (dataset, name, str(seed)) not in {tuple(list(row.values())[:3]) for row in rows_of(path)}:
                    add(path, run(dataset, name, seed, options.points))
    write_summary(path, options.out / "toy-defaults.md")


def run(dataset: str, name: str, seed: int, points: Path | None) -> dict[str, Any]:
    """Fit one regressor and measure it."""
    task = ToySource(dataset, points).load()
    regressor = REGRESSORS[name](random_state=seed, verbose=False)
    begin = time.process_time()
    regressor.fit(task.x_train, task.y_train[:, 0])
    seconds = time.process_time() - begin
    found = evaluate(task, regressor.model_)["predictive"]
    values = (dataset, name, seed, round(found, 5), regressor.n_iter_, round(seconds, 1))
    return dict(zip(COLUMNS, values, strict=True))


def rows_of(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add(path: Path, row: dict[str, Any]) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(row, flush=True)


def write_summary(path: Path, out: Path) -> None:
    rows = rows_of(path)
    body = []
    for dataset in TASKS:
        for name in REGRESSORS:
            group = [row for row in rows if (row["dataset"], row["regressor"]) == (dataset, name)]
            values = [float(row[COLUMNS[3]]) for row in group]
            seconds = statistics.mean(float(row[COLUMNS[5]]) for row in group)
            cells = (f"{statistics.mean(values):.4f}", f"{min(values):.4f} to {max(values):.4f}")
            body.append((dataset, name, str(len(group)), *cells, f"{seconds:.0f}"))
    text = [
        "# The defaults on the 1-D data sets",
        "",
        "Made by `python -m benchmarks.toy_defaults`; every run is in `runs.csv`. The first set has the KL",
        "divergence from the truth, the second the NLL of test points.",
        "",
        markdown_table(("dataset", "regressor", "runs", "mean", "smallest to largest", "CPU seconds"), body),
        "",
    ]
    out.write_text("\n".join(text), encoding="utf-8")
    print(out.read_text())


if __name__ == "__main__":
    main()
