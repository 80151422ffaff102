"""Compare two checkouts: the same trainings must give the same weights, and predictions to 1e-9.

``python -m benchmarks.checkouts /path/to/before`` runs the same trainings with the sources of both checkouts,
on this machine and this Python: fits by the paper's methods, three settings of Table 1 on both data sets and
a small image training. Weights are compared bit for bit, predictions in units of the standard deviation of y,
and the metrics of the tables as they are reported.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TABLE1 = ("nce-0.1", "ours-4", "modern")
COVERAGES = (0.5, 0.9)
TOLERANCE = 1e-9


def estimators(folder: Path) -> None:
    """Fit by the paper's methods, also with bounds and with two targets, and store weights and answers."""
    import warnings

    from ebreg import EnergyRegressor, MixtureDensityRegressor

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.where(rng.random(300) < 0.5, X[:, 0], 2 - X[:, 0]) + 0.1 * rng.normal(size=300)
    two = np.stack([y, X[:, 1] + y**2 + 0.2 * rng.normal(size=300)], axis=1) * [100.0, 1e-3] + [5.0, 0.0]
    settings = {"max_iter": 15, "width": 16, "random_state": 0, "verbose": False}
    cases = {
        "joint-nce": (EnergyRegressor("joint-nce", **settings), 50 * y + 1000),
        "joint-nce, bounded": (EnergyRegressor("joint-nce", bounds=(0, None), **settings), np.exp(y)),
        "joint-nce, two targets": (EnergyRegressor("joint-nce", **settings), two),
        "mdn-teacher": (MixtureDensityRegressor("energy", **settings), y),
        "mdn-teacher, two targets": (MixtureDensityRegressor("energy", **settings), two),
    }
    for name, (regressor, targets) in cases.items():
        p = regressor.fit(X, targets).predict_distribution(np.concatenate([X[:40], 4 * X[:10]]))
        sd, at = targets.std(axis=0), np.resize(targets, (50, *targets.shape[1:]))
        answers = {
            "mean": p.mean / sd,
            "stddev": p.stddev / sd,
            "intervals": np.stack([p.interval(coverage) for coverage in COVERAGES]) / sd,
            "log_prob": p.log_prob(at),
            "cdf": p.cdf(at),
            "region": p.highest_density_region(0.9).log_threshold,
            "expectation": p.expectation(np.abs) / sd,
            "log_partition": p.log_partition,
        }
        weights = {key: value.numpy() for key, value in regressor.model_.state_dict().items()}
        np.savez(folder / f"{name}.npz", **{f"weight {k}": v for k, v in weights.items()}, **answers)


def experiments(folder: Path) -> None:
    """Train settings of Table 1 and a small Table 3 by the command, and keep weights and results."""
    import contextlib
    import io

    from ebreg.cli import main

    def run(arguments: list[str]) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = main(arguments)
        assert code == 0, out.getvalue()

    usage = io.StringIO()
    with contextlib.redirect_stdout(usage), contextlib.suppress(SystemExit):
        main(["reproduce", "table3", "--help"])
    option = "--settings" if "--settings" in usage.getvalue() else "--cells"
    common = ["--runs", "1", "--quiet", "--out", str(folder / "runs")]
    run(["reproduce", "table1", option, *TABLE1, "--epochs", "2", *common])
    small = ["--recipe", "scratch", "--backbone", "small-cnn", "--weights", "random", "--epochs", "2"]
    run(["reproduce", "table3", "--data", "synthetic:60", *small, option, "ours-4", "mdn-4", *common])
    for path in sorted((folder / "runs").rglob("*.safetensors")):
        np.savez(folder / f"{path.stem}.npz", **weights_in(path))
    for path in sorted((folder / "runs").rglob("runs.csv")):
        np.savez(folder / f"metrics of {path.parent.name}.npz", on_grid=column(path, "on_grid"))


def weights_in(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a trained network."""
    from safetensors.numpy import load_file

    return {f"weight {name}": value for name, value in load_file(path).items()}


def column(path: Path, name: str) -> np.ndarray:
    """A column of numbers of a CSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        return np.array([float(row[name]) for row in csv.DictReader(file)])


def compare(before: Path, after: Path) -> bool:
    """Print the largest difference of every case; whether all are within the tolerance."""
    good = True
    names = sorted(path.name for path in before.glob("*.npz"))
    missing = set(names) ^ {path.name for path in after.glob("*.npz")}
    if missing:
        print(f"not in both: {', '.join(sorted(missing))}")
        good = False
    for name in names:
        if name in missing:
            continue
        old, new = np.load(before / name), np.load(after / name)
        weights = [key for key in old.files if key.startswith("weight ")]
        equal = all(key in new.files and np.array_equal(old[key], new[key]) for key in weights)
        worst = 0.0
        for key in set(old.files) - set(weights):
            a, b = old[key], new[key]
            worst = max(worst, float(np.max(np.where(a == b, 0.0, np.abs(a - b)))))
        good = good and equal and worst <= TOLERANCE
        print(f"{name.removesuffix('.npz'):44} {len(weights):3} weights equal: {equal}   others: {worst:.1e}")
    return good


def run() -> int:
    """Run both checkouts and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="a checkout, or with --worker the folder to write to")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        estimators(options.before)
        experiments(options.before)
        return 0
    after = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        for name, checkout in (("before", options.before), ("after", after)):
            out = Path(folder) / name
            out.mkdir()
            environment = {
                **os.environ,
                "PYTHONPATH": str(checkout.resolve() / "src"),
                "OMP_NUM_THREADS": "1",
            }
            command = [sys.executable, str(Path(__file__)), "--worker", str(out)]
            subprocess.run(command, check=True, env=environment, cwd=folder)
        return 0 if compare(Path(folder) / "before", Path(folder) / "after") else 1


if __name__ == "__main__":
    raise SystemExit(run())
