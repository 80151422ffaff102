"""A flow as the proposal, beside the mixture, on the paper's two 1-D data sets.

``python -m benchmarks.proposals --points FOLDER --out results/proposals``. Both are trained by the setting
``modern`` of Table 1, with the same energy, draws and epochs: only q differs. FOLDER holds the authors'
points of the first set; without it, points of the same distribution are drawn. A run that is in the CSV file
is not repeated.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import markdown_table
from ebreg import networks
from ebreg._utils.random_state import seeded
from ebreg.datasets import TASKS
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.toy import ToyExperiment, ToySource
from ebreg.methods import Method
from ebreg.training import fit

PROPOSALS = ("mixture", "flow")
COLUMNS = (
    "dataset",
    "proposal",
    "seed",
    "parameters of q",
    "KL or NLL on the paper's grid",
    "KL or NLL",
    "effective share of 512 draws",
    "training, CPU seconds",
    "1,000 rows, CPU seconds",
)
N_ROWS, TURNS = 1000, 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=Path)
    parser.add_argument("--out", type=Path, default=Path("reproduced/proposals"))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "runs.csv"
    for seed in range(options.seeds):
        for dataset in TASKS:
            for proposal in PROPOSALS:
                if (dataset, proposal, str(seed)) not in finished(path):
                    add(path, run(dataset, proposal, seed, options.points))
    write_summary(path, options.out / "proposals.md")


def run(dataset: str, proposal: str, seed: int, points: Path | None) -> dict[str, Any]:
    """Train one model and measure it."""
    experiment = ToyExperiment(TABLE1.settings["modern"], ToySource(dataset, points), seed)
    method = build(experiment, proposal)
    model, data = method.model, experiment.data()[0]
    _, training = timed(lambda: fit(method, data, config=experiment.config, progress=False))
    found = experiment.evaluate(model)
    x = torch.linspace(float(data[0].min()), float(data[0].max()), N_ROWS)[:, None]
    model = model.to_float64().eval()
    with torch.no_grad():
        share = model.predictive(x).effective_sample_size.median().item() / 512
        seconds = [timed(lambda: answer(model, x))[1] for _ in range(TURNS)]
    q = sum(parameter.numel() for parameter in model.proposal.parameters())
    values = (found["on_grid"], found["predictive"], share, training, statistics.median(seconds))
    return dict(zip(COLUMNS, (dataset, proposal, seed, q, *(round(v, 5) for v in values)), strict=True))


def build(experiment: ToyExperiment, proposal: str) -> Method:
    """The method of the setting, with another q."""
    method: Any = experiment.method()
    if proposal != networks.DEFAULT_PROPOSAL:
        width = experiment.recipe.network_settings["width"]
        with seeded(experiment.seed):
            method.model.proposal = networks.PROPOSALS[proposal](width, 1)
    return method


def answer(model: Any, x: torch.Tensor) -> None:
    """What a prediction is asked for."""
    p = model.predictive(x)
    _ = p.mean, p.stddev, p.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64))


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    return call(), time.process_time() - begin


def finished(path: Path) -> set[tuple[str, ...]]:
    return {(row["dataset"], row["proposal"], row["seed"]) for row in rows_of(path)}


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
    rows, numbers = rows_of(path), COLUMNS[3:]
    lines = [
        "# Proposals on the 1-D data sets",
        "",
        "Made by `python -m benchmarks.proposals`: median (smallest to largest) of all runs, which are in",
        "`runs.csv`. The first set has the KL divergence from the truth, the second the NLL of test points.",
        "",
    ]
    body = []
    for dataset in TASKS:
        for proposal in PROPOSALS:
            group = [row for row in rows if (row["dataset"], row["proposal"]) == (dataset, proposal)]
            cells = [spread([float(row[name]) for row in group]) for name in numbers]
            body.append((dataset, proposal, str(len(group)), *cells))
    table = markdown_table(("dataset", "proposal", "runs", *numbers), body)
    out.write_text("\n".join([*lines, table, ""]), encoding="utf-8")
    print(out.read_text())


def spread(values: list[float]) -> str:
    middle = statistics.median(values)
    if min(values) == max(values):
        return f"{middle:g}"
    return f"{middle:.4g} ({min(values):.4g} to {max(values):.4g})"


if __name__ == "__main__":
    main()
