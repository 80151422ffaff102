"""Coverage on rows of new groups, with validation rows and calibration rows at random and in whole groups.

``python -m benchmarks.grouped_rows --seeds 5``. Every seed makes a table, fits it several times and tests all
fits on rows of groups that none has seen.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.measure import markdown_table
from ebreg import EnergyRegressor, metrics

COVERAGE = 0.9


@dataclass(frozen=True)
class GroupedTable:
    """Rows of patients, each with a level of its own.

    Attributes:
        X: Inputs, (n, 1 + n_marks): one column that explains y, and marks by which a patient is recognised.
        y: Targets, (n,).
        groups: Number of the patient of each row, (n,).
    """

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray

    @classmethod
    def of(
        cls, n_groups: int, n_rows: int, seed: int, n_marks: int = 4, level: float = 1.0, noise: float = 0.3
    ) -> "GroupedTable":
        """A table in which y = sin(2 x) + the patient's level + noise.

        Marks say which patient it is, and nothing of a patient that was not seen before: a fit can learn the
        levels of its own patients, and for others only how levels are distributed. The standard deviation of
        y, where x is known, is ``noise`` for a patient that was seen and that of noise and level together for
        a new one.

        Args:
            n_groups: Number of patients.
            n_rows: Rows of each.
            seed: Of all random numbers.
            n_marks: Number of marks, each a standard normal number of the patient.
            level: Standard deviation of the patients' levels.
            noise: Standard deviation of the noise of a row.
        """
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(n_groups), n_rows)
        marks, levels = rng.normal(size=(n_groups, n_marks)), level * rng.normal(size=n_groups)
        x = rng.uniform(-2, 2, len(groups))
        y = np.sin(2 * x) + levels[groups] + noise * rng.normal(size=len(groups))
        return cls(np.column_stack([x, marks[groups]]), y, groups)

    def take(self, rows: np.ndarray) -> "GroupedTable":
        """Some of the rows, at a mask."""
        return GroupedTable(self.X[rows], self.y[rows], self.groups[rows])


def measure(seed: int, preset: str, n_groups: int, n_rows: int, level: float = 1.0) -> dict[str, list[float]]:
    """Coverage, mean width and NLL of new groups, by how validation rows are chosen."""
    train = GroupedTable.of(n_groups, n_rows, seed, level=level)
    new = GroupedTable.of(400, 5, seed + 10_000, level=level)
    found = {}
    for name, groups in (("at random", None), ("whole groups", train.groups)):
        model = EnergyRegressor(preset=preset, random_state=seed, verbose=False)
        p = model.fit(train.X, train.y, groups=groups).predict_distribution(new.X)
        width = float(np.diff(p.interval(COVERAGE), axis=1).mean())
        found[name] = [
            float(metrics.coverage(p, new.y, COVERAGE)),
            width,
            float(metrics.nll(p, new.y).mean()),
        ]
    return found


def measure_calibrated(
    seed: int, preset: str, n_groups: int, n_rows: int, level: float = 1.0
) -> dict[str, list[float]]:
    """Coverage and mean width for new groups after ``conformalize``, by how calibration rows are chosen."""
    table = GroupedTable.of(n_groups, n_rows, seed, level=level)
    new = GroupedTable.of(400, 5, seed + 10_000, level=level)
    rng = np.random.default_rng(seed)
    n_calibration = n_groups // 2 - 1
    whole = np.isin(table.groups, rng.permutation(n_groups)[:n_calibration])

    def fitted(rows: GroupedTable, groups: np.ndarray | None) -> EnergyRegressor:
        model = EnergyRegressor(preset=preset, random_state=seed, verbose=False)
        return model.fit(rows.X, rows.y, groups=groups)

    def split(is_calibration: np.ndarray, by_group: bool) -> EnergyRegressor:
        train, calibration = table.take(~is_calibration), table.take(is_calibration)
        model = fitted(train, train.groups if by_group else None)
        groups = calibration.groups if by_group else None
        return model.conformalize(calibration.X, calibration.y, groups=groups)

    models = {
        "at random": split(rng.permutation(whole), by_group=False),
        "whole groups": split(whole, by_group=True),
        "five folds of groups": fitted(table, table.groups).conformalize(
            table.X, table.y, cv=5, groups=table.groups
        ),
    }
    found = {}
    for name, model in models.items():
        low, high = model.predict_interval(new.X, COVERAGE).T
        found[name] = [float(np.mean((low <= new.y) & (new.y <= high))), float(np.mean(high - low))]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--rows", type=int, default=20, help="of each group")
    parser.add_argument("--level", type=float, default=1.0, help="standard deviation between groups")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    settings = (options.preset, options.groups, options.rows, options.level)
    for name, way, titles in (
        ("validation rows", measure, ["coverage of 90 %", "mean width", "NLL"]),
        ("calibration rows", measure_calibrated, ["coverage of 90 %", "mean width"]),
    ):
        runs = [way(seed, *settings) for seed in range(options.seeds)]
        body = [[how, *(_cell([run[how][i] for run in runs]) for i in range(len(titles)))] for how in runs[0]]
        print(markdown_table([name, *titles], body), end="\n\n")


def _cell(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
