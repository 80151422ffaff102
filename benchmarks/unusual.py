"""How well inputs unlike those of the training are found, on tables, beside two detectors of scikit-learn.

``python -m benchmarks.unusual --data FOLDER`` writes ``results/unusual``. No network is trained: the
detectors learn from the training inputs of each split and are asked about its test inputs: as they are, with
one column moved by five standard deviations, and with every column shuffled by itself.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import torch
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.csv_store import CsvStore
from benchmarks.measure import markdown_table
from benchmarks.tabular.tables import Table, read_tables
from ebreg.estimators.seen import SHARE, SeenInputs

MOVE = 5.0  # standard deviations
# scikit-learn's detectors are given at most so many training rows, to keep the run short.
MOST_ROWS_OF_RIVALS = 10_000

Flags = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Run:
    """One detector on one split.

    Attributes:
        table: Its name.
        detector: Its name.
        split: Its number.
        n_train: Training rows.
        n_columns: C.
        fresh: Share of the test rows that are flagged.
        shuffled: The same, with every column shuffled by itself.
        moved: The same for each column, moved in both directions, separated by spaces.
        learn_seconds: CPU time.
        score_microseconds: CPU time of a row.
    """

    table: str
    detector: str
    split: int
    n_train: int
    n_columns: int
    fresh: float
    shuffled: float
    moved: str
    learn_seconds: float
    score_microseconds: float

    @property
    def key(self) -> tuple[str, str, int]:
        """What there is one run of."""
        return self.table, self.detector, self.split

    @property
    def moved_by_column(self) -> np.ndarray:
        """Shape (C,)."""
        return np.array(self.moved.split(), dtype=float)


def ours(X: np.ndarray) -> Flags:
    """What a fit of ebreg learns of its inputs."""
    seen = SeenInputs.of(torch.from_numpy(X))
    return lambda rows: (seen.score(torch.from_numpy(rows)) > 1).numpy()


def rival(make: Callable[[], object]) -> Callable[[np.ndarray], Flags]:
    """A detector of scikit-learn on standardised columns."""

    def learn(X: np.ndarray) -> Flags:
        rows = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS_OF_RIVALS]
        detector = make_pipeline(StandardScaler(), make()).fit(X[rows])
        return lambda rows: detector.predict(rows) < 0

    return learn


DETECTORS: dict[str, Callable[[np.ndarray], Flags]] = {
    "ebreg": ours,
    "IsolationForest": rival(lambda: IsolationForest(random_state=0)),
    f"IsolationForest, {SHARE:g}": rival(lambda: IsolationForest(random_state=0, contamination=SHARE)),
    "LocalOutlierFactor": rival(lambda: LocalOutlierFactor(novelty=True)),
    f"LocalOutlierFactor, {SHARE:g}": rival(lambda: LocalOutlierFactor(novelty=True, contamination=SHARE)),
}


def inputs_of(table: Table, split: int, inner: bool) -> tuple[np.ndarray, np.ndarray]:
    """Training and test inputs; with ``inner`` both are from the training rows."""
    train, test = (rows.X for rows in table.split(split))
    if not inner:
        return train, test
    order = np.random.default_rng(1000 + split).permutation(len(train))
    n_test = max(1, len(train) // 10)
    return train[order[n_test:]], train[order[:n_test]]


def measure(table: Table, detector: str, split: int, inner: bool) -> Run:
    """One detector on one split of a table."""
    train, test = inputs_of(table, split, inner)
    start = process_time()
    flags = DETECTORS[detector](train)
    learned = process_time()
    fresh = flags(test).mean()
    scored = process_time()
    rng = np.random.default_rng(split)
    shuffled = np.column_stack([rng.permutation(column) for column in test.T])
    moved = [np.mean([flags(rows).mean() for rows in pair]) for pair in moves(test, train.std(axis=0))]
    return Run(
        table.name,
        detector,
        split,
        *train.shape,
        fresh=float(fresh),
        shuffled=float(flags(shuffled).mean()),
        moved=" ".join(f"{share:.4f}" for share in moved),
        learn_seconds=learned - start,
        score_microseconds=1e6 * (scored - learned) / len(test),
    )


def moves(X: np.ndarray, stddev: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """X with one column moved down and up, for every column."""
    for column, step in enumerate(MOVE * stddev):
        down, up = X.copy(), X.copy()
        down[:, column] -= step
        up[:, column] += step
        yield down, up


def report(runs: Sequence[Run], inner: bool) -> str:
    """Markdown of the means over splits."""
    titles = [
        "table", "rows, columns", "detector", "test rows flagged", "moved rows flagged",
        "worst column", "shuffled rows flagged", "learning, CPU s", "a row, CPU µs",
    ]  # fmt: skip
    pairs = dict.fromkeys((run.table, run.detector) for run in runs)
    tables = list(dict.fromkeys(name for name, _ in pairs))
    body = [
        _cells([run for run in runs if (run.table, run.detector) == pair])
        for pair in sorted(pairs, key=lambda pair: tables.index(pair[0]))
    ]
    rows = "rows taken out of the training rows of each split" if inner else "the test rows of each split"
    return f"""# Inputs unlike those of the training

Made by `python -m benchmarks.unusual --data FOLDER{" --inner" if inner else ""}`: means over the splits,
each of which is in `runs.csv`. Asked about are {rows}: as they are, moved by {MOVE:g} standard
deviations in one column, down and up, and with every column shuffled by itself. The worst column is
counted from 0. scikit-learn's detectors have standardised columns and at most
{MOST_ROWS_OF_RIVALS:,} training rows; the number after a name is their `contamination`, otherwise it is
the default. The design of ours was chosen with rows taken out of the training rows, as `--inner` does.

{markdown_table(titles, body)}
"""


def _cells(runs: Sequence[Run]) -> list[str]:
    def mean(name: str) -> float:
        return float(np.mean([getattr(run, name) for run in runs]))

    moved = np.mean([run.moved_by_column for run in runs], axis=0)
    return [
        runs[0].table,
        f"{runs[0].n_train:,} x {runs[0].n_columns}",
        runs[0].detector,
        f"{mean('fresh'):.2%}",
        f"{moved.mean():.1%}",
        f"{moved.min():.1%} ({moved.argmin()})",
        f"{mean('shuffled'):.1%}",
        f"{mean('learn_seconds'):.3f}",
        f"{mean('score_microseconds'):.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unusual", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder for each table")
    parser.add_argument("--out", type=Path, help="(results/unusual, with --inner results/unusual-inner)")
    parser.add_argument("--splits", type=int, default=20, help="of each table, at most")
    parser.add_argument("--inner", action="store_true", help="leave the test rows alone")
    parser.add_argument("--ours", action="store_true", help="no other detectors")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.ours:
        for name in [name for name in DETECTORS if name != "ebreg"]:
            del DETECTORS[name]
    out = options.out or Path("results/unusual-inner" if options.inner else "results/unusual")
    store = CsvStore(out / "runs.csv", Run)
    found = store.read()
    for table in read_tables(options.data).values():
        for split in sorted(table.splits)[: options.splits]:
            for detector in DETECTORS:
                if (table.name, detector, split) not in found:
                    store.add(measure(table, detector, split, options.inner))
    runs = list(store.read().values())
    text = report(runs, options.inner)
    (out / "unusual.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
