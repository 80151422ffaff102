"""Tables: inputs, a target, and fixed splits into training and test rows."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3

N_BUNDLED_SPLITS = 20
TRAINING_SHARE = 0.9


@dataclass(frozen=True)
class Rows:
    """Inputs (n, d) and targets (n,)."""

    X: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Table:
    """A regression table and its splits.

    Attributes:
        name: Its name in results.
        rows: All rows.
        splits: By number: the row numbers for training and for testing.
    """

    name: str
    rows: Rows
    splits: Mapping[int, tuple[np.ndarray, np.ndarray]]

    def split(self, number: int) -> tuple[Rows, Rows]:
        """The training and the test rows of a split.

        Raises:
            ValueError: If the table has no such split.
        """
        if number not in self.splits:
            numbers = ", ".join(map(str, sorted(self.splits)))
            raise ValueError(f"--splits has {number}, but the table {self.name} has the splits {numbers}")
        train, test = self.splits[number]
        X, y = self.rows.X, self.rows.y
        return Rows(X[train], y[train]), Rows(X[test], y[test])


def read_tables(folder: Path) -> dict[str, Table]:
    """The tables in the folders of a folder, the smallest first.

    Raises:
        ValueError: If there is none, or one is damaged.
    """
    found = sorted(path.parent for path in folder.glob("*/data.txt"))
    if not found:
        raise ValueError(
            f"--data {folder} has no table; it must be a folder with a folder for each table, which holds "
            "data.txt, index_features.txt, index_target.txt, index_train_0.txt and index_test_0.txt"
        )
    tables = sorted(map(read_table, found), key=lambda table: table.rows.X.size)
    return {table.name: table for table in tables}


def read_table(folder: Path) -> Table:
    """The table in a folder.

    Raises:
        ValueError: If a file is missing or damaged.
    """
    data = _numbers(folder / "data.txt", ndmin=2)
    features = _indices(folder / "index_features.txt", data.shape[1])
    target = _indices(folder / "index_target.txt", data.shape[1])
    if len(target) != 1:
        raise ValueError(f"{folder / 'index_target.txt'} names {len(target)} columns; it must name one")
    if not np.isfinite(data).all():
        raise ValueError(f"{folder / 'data.txt'} has values that are not finite; remove those rows")
    names = (re.fullmatch(r"index_train_(\d+)\.txt", path.name) for path in folder.iterdir())
    numbers = sorted(int(name[1]) for name in names if name)
    if not numbers:
        raise ValueError(f"{folder} has no splits; it must have index_train_0.txt and index_test_0.txt")
    splits = {i: _split(folder, i, len(data)) for i in numbers}
    return Table(folder.name, Rows(data[:, features], data[:, target[0]]), splits)


def _split(folder: Path, number: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    train, test = (_indices(folder / f"index_{part}_{number}.txt", n_rows) for part in ("train", "test"))
    if np.intersect1d(train, test).size:
        raise ValueError(f"split {number} of {folder} has test rows among its training rows")
    return train, test


def _numbers(path: Path, ndmin: Literal[1, 2]) -> np.ndarray:
    try:
        values = np.loadtxt(path, ndmin=ndmin)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error}); the table needs this file") from error
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers, one row a line: {error}") from error
    if not values.size:
        raise ValueError(f"{path} is empty")
    return values


def _indices(path: Path, size: int) -> np.ndarray:
    values = _numbers(path, ndmin=1)
    indices = values.astype(int)
    if (indices != values).any() or indices.min() < 0 or indices.max() >= size:
        raise ValueError(f"{path} must hold whole numbers from 0 to {size - 1}")
    return indices


def bundled_tables() -> dict[str, Table]:
    """Tables that need no files: diabetes, and Friedman's three functions with noise."""
    makers: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        "diabetes": lambda: load_diabetes(return_X_y=True),
        "friedman1": lambda: make_friedman1(n_samples=1000, noise=1.0, random_state=0),
        "friedman2": lambda: make_friedman2(n_samples=1000, noise=125.0, random_state=0),
        "friedman3": lambda: make_friedman3(n_samples=1000, noise=0.1, random_state=0),
    }
    return {name: _randomly_split(name, Rows(*make())) for name, make in makers.items()}


def _randomly_split(name: str, rows: Rows) -> Table:
    n_train = round(TRAINING_SHARE * len(rows.y))
    orders = (np.random.default_rng(seed).permutation(len(rows.y)) for seed in range(N_BUNDLED_SPLITS))
    return Table(name, rows, {i: (order[:n_train], order[n_train:]) for i, order in enumerate(orders)})
