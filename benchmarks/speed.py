"""Fits and predictions on a table of 2,000 rows and 12 columns, beside scikit-learn and NGBoost.

``python -m benchmarks.speed`` measures CPU seconds in one process and one thread, and prints ratios. With
``--before FOLDER``, a checkout of another version, the predictions of that version are measured too, by the
same script in a process of its own.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.measure import markdown_table

N_ROWS, N_COLUMNS, N_PREDICTED, N_REGIONS = 2000, 12, 5000, 1000


def table(n: int, n_targets: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two modes, and noise whose width depends on the inputs: X, (n, 12), and y, (n,) or (n, D)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_COLUMNS))
    targets = []
    for d in range(n_targets):
        Z = np.roll(X, d, axis=1)
        upper = rng.random(n) < 1 / (1 + np.exp(-Z[:, 2]))
        noise = np.exp(0.5 * Z[:, 1] - 1) * rng.gamma(2, 0.5, n)
        trend = np.sin(2 * Z[:, 0]) + 0.5 * Z[:, 3] * Z[:, 4]
        targets.append(trend + np.where(upper, 1.5 + 0.3 * Z[:, 5], 0) + noise)
    return X, targets[0] if n_targets == 1 else np.stack(targets, axis=1)


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Of a call, in this process."""
    start = time.process_time()
    call()
    return time.process_time() - start


def fits(n_seeds: int) -> list[list[str]]:
    """Rows of a table: CPU seconds of fits, and their ratio to the first."""
    from ngboost import NGBRegressor
    from sklearn.neural_network import MLPRegressor

    from ebreg import EnergyRegressor, MixtureDensityRegressor

    X, y = table(N_ROWS)
    MixtureDensityRegressor(max_iter=1, verbose=False).fit(X[:100], y[:100])  # imports are not measured
    methods: dict[str, Callable[[int], Any]] = {
        "MLPRegressor(early_stopping=True, max_iter=500)": lambda s: MLPRegressor(
            early_stopping=True, max_iter=500, random_state=s
        ),
        "NGBRegressor()": lambda s: NGBRegressor(random_state=s, verbose=False),
        "MixtureDensityRegressor()": lambda s: MixtureDensityRegressor(random_state=s, verbose=False),
        "EnergyRegressor()": lambda s: EnergyRegressor(random_state=s, verbose=False),
        'EnergyRegressor(preset="fast")': lambda s: EnergyRegressor(
            preset="fast", random_state=s, verbose=False
        ),
    }
    rows, first = [], None
    for name, method in methods.items():
        seconds = [cpu_seconds(lambda s=s, m=method: m(s).fit(X, y)) for s in range(n_seeds)]
        mean = statistics.fmean(seconds)
        first = mean if first is None else first
        rows.append([name, f"{mean:.2f}", f"{min(seconds):.2f} to {max(seconds):.2f}", f"{mean / first:.1f}"])
    X, y = table(N_ROWS, 3)
    mixture, energy = (
        cpu_seconds(lambda r=r: r(random_state=0, verbose=False).fit(X, y))
        for r in (MixtureDensityRegressor, EnergyRegressor)
    )
    rows.append(["three targets, MixtureDensityRegressor()", f"{mixture:.2f}", "", ""])
    rows.append(["three targets, EnergyRegressor()", f"{energy:.2f}", "", f"{energy / mixture:.2f} (to it)"])
    return rows


def predictions() -> dict[str, float]:
    """CPU seconds of predictions by name."""
    from ebreg import EnergyRegressor, MixtureDensityRegressor

    X, y = table(N_ROWS)
    new, _ = table(N_PREDICTED, seed=1)
    found = {}
    for method in (EnergyRegressor, MixtureDensityRegressor):
        model, name = method(random_state=0, verbose=False).fit(X, y), method.__name__
        model.predict_interval(new[:300])
        found[f"{name}.predict"] = cpu_seconds(lambda m=model: m.predict(new))
        found[f"{name}.predict_interval"] = cpu_seconds(lambda m=model: m.predict_interval(new))
        some = new[:N_REGIONS]
        found[f"{name}, regions"] = cpu_seconds(
            lambda m=model, x=some: m.predict_distribution(x).highest_density_region(0.9)
        )
    return found


def differences() -> dict[str, float]:
    """Largest differences of answers from those with 16 times the nodes, in standard deviations."""
    from ebreg import EnergyRegressor
    from ebreg.predictive import Accuracy

    model, (X, _) = (
        EnergyRegressor(random_state=0, verbose=False).fit(*table(N_ROWS)),
        table(N_REGIONS, seed=1),
    )
    p, fine = (model.predict_distribution(X, accuracy=a) for a in (None, Accuracy(n_nodes=2048)))
    scale = fine.stddev
    return {
        "difference of means": float((np.abs(p.mean - fine.mean) / scale).max()),
        "difference of intervals": float((np.abs(p.interval() - fine.interval()) / scale[:, None]).max()),
    }


def one_pass(n_rows: int = 100_000, n_columns: int = 20) -> list[str]:
    """``to_frame`` of many rows: seconds, and the growth of the peak of the memory, in MB."""
    from ebreg import EnergyRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    y = X[:, 0] + np.exp(0.3 * X[:, 1]) * rng.gamma(2, 0.5, n_rows)
    model = EnergyRegressor(preset="fast", random_state=0, verbose=False).fit(X[:N_ROWS], y[:N_ROWS])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = cpu_seconds(lambda: model.predict_distribution(X).to_frame())
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return [f"to_frame, {n_rows:,} x {n_columns}", f"{seconds:.1f}", f"{(after - before) / 1024:.0f} MB more"]


def of_checkout(folder: Path) -> dict[str, float]:
    """:func:`predictions` of another version."""
    paths = os.pathsep.join([str(folder / "src"), str(Path(__file__).parents[1])])
    code = "import json, benchmarks.speed as s; s.in_one_thread(); print(json.dumps(s.predictions()))"
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    if run.returncode:
        raise RuntimeError(run.stderr)
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def in_one_thread() -> None:
    """Set the number of threads of torch and of linear algebra, and hide warnings."""
    torch.set_num_threads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    options.add_argument("--before", type=Path, help="folder of a checkout of another version")
    options.add_argument("--seeds", type=int, default=5, help="seeds of the fits (5)")
    options.add_argument("--out", type=Path, help="file for the tables")
    chosen = options.parse_args(arguments)
    in_one_thread()
    now = predictions() | differences()
    before = {} if chosen.before is None else of_checkout(chosen.before)
    rows = [
        [name, f"{value:.3g}", f"{before[name]:.3g}", f"{before[name] / value:.2g}"]
        if name in before
        else [name, f"{value:.3g}", "", ""]
        for name, value in now.items()
    ]
    pages = [
        f"CPU seconds in one thread, {N_PREDICTED:,} rows, regions of {N_REGIONS:,}.",
        markdown_table(["", "now", "before", "times faster"], rows),
        f"Fits of {N_ROWS:,} rows and {N_COLUMNS} columns, CPU seconds in one thread, {chosen.seeds} seeds.",
        markdown_table(["", "mean", "range", "to the first"], fits(chosen.seeds)),
        markdown_table(["", "CPU seconds", "memory"], [one_pass()]),
    ]
    text = "\n\n".join(pages) + "\n"
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(text)


if __name__ == "__main__":
    main()
