"""The two engines of predictions: error of the mean and of log Z by evaluations of f, for K = 1 and K = 4.

``python -m benchmarks.engines --out results/engines``. An ``EnergyRegressor``, with default settings but for
K, is fitted to the paper's first 1-D set. The truth is the quadrature with 16,384 nodes.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from ebreg import EnergyRegressor, plots
from ebreg.datasets import gustafsson
from ebreg.models import EnergyModel
from ebreg.predictive import Accuracy, Predictive

N_COMPONENTS = (1, 4)
SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
SEEDS = range(10)  # of the draws
EXACT = Accuracy(n_nodes=16_384, max_nodes=16_384)
COLUMNS = (
    "K",
    "engine",
    "M",
    "error of the mean",
    "error of log Z",
    "stated error of log Z",
    "CPU milliseconds",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("reproduced/engines"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for K in N_COMPONENTS for row in errors(K)]
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "engines.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
    plots.save(draw(rows), options.out / "engines.png")


@torch.no_grad()
def errors(K: int) -> Iterator[tuple]:
    """For each engine and size: root mean squares over 100 inputs and the seeds."""
    task = gustafsson()
    regressor = EnergyRegressor("joint-nce", n_components=K, random_state=0)
    model = regressor.fit(task.x_train.numpy(), task.y_train[:, 0].numpy()).model_
    x = torch.linspace(-2.9, 2.9, 100, dtype=torch.float64)[:, None]
    exact = model.predictive(x, EXACT)
    size = model.predictive(x).effective_sample_size.median().item()
    print(f"K = {K}: effective sample size of 512 draws {size:.0f}", flush=True)
    for M in SIZES:
        nodes = Accuracy(n_nodes=M, max_nodes=M)
        yield K, "quadrature", M, *compared(model, x, exact, [nodes])
        draws = [Accuracy(engine="importance", n_draws=M, seed=seed) for seed in SEEDS]
        yield K, "importance", M, *compared(model, x, exact, draws)


def compared(
    model: EnergyModel, x: Tensor, exact: Predictive, settings: list[Accuracy]
) -> tuple[float, float, float, float]:
    """Errors of the mean, in standard deviations of the row; of log Z; as stated; and CPU time for x."""
    off_mean, off_log_z, stated, times = [], [], [], []
    for accuracy in settings:
        begin = time.process_time()
        p = model.predictive(x, accuracy)
        mean = p.mean
        times.append(1e3 * (time.process_time() - begin))
        off_mean.append(((mean - exact.mean) / exact.stddev).square())
        off_log_z.append((p.log_partition - exact.log_partition).square())
        stated.append(p.log_partition_error.square())
    rms = [torch.stack(each).mean().sqrt().item() for each in (off_mean, off_log_z, stated)]
    return rms[0], rms[1], rms[2], statistics.median(times)


def draw(rows: list[tuple]) -> object:
    """Both errors by the number of evaluations of f."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    colours, marks = {1: "tab:blue", 4: "tab:orange"}, {"quadrature": "o-", "importance": "s--"}
    for axis, column, title in zip(axes, (3, 4), ("mean, in standard deviations", "log Z"), strict=True):
        for K in N_COMPONENTS:
            for engine, mark in marks.items():
                points = [(row[2], row[column]) for row in rows if row[:2] == (K, engine)]
                label = f"{engine}, K = {K}"
                axis.loglog(*zip(*points, strict=True), mark, color=colours[K], label=label, markersize=4)
        axis.set_xlabel("M, nodes or draws")
        axis.set_title(f"error of the {title}" if column == 3 else f"error of {title}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("root mean square error")
    axes[1].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    main()
