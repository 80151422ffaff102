"""A trained model on a split of a table, and what is measured of its predictions."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.tabular.tables import Rows, Table
from ebreg import EnergyRegressor
from ebreg.estimators import Prediction
from ebreg.predictive import Accuracy

# Larger tables are cut: fits are not what is measured.
MOST_TRAINING_ROWS, MOST_TEST_ROWS = 5_000, {1: 1_000, 2: 200, 3: 200}
# The truth has many times the nodes or draws, and draws of its own.
TRUTH = Accuracy(n_nodes=4096, max_nodes=4096, n_draws=2**16, max_draws=2**16, seed=1)
_TRUTH_ROWS_AT_ONCE = 16
# log Z is wrong where it is off by more than this and by more than twice what is stated.
TOLERANCE = 0.05

# The paper's energy has no bound, and may have modes that its proposal misses. That of the members corrects
# its proposal by a bounded factor.
METHODS = {"joint-nce": {"method": "joint-nce"}, "residual-nce": {"preset": "fast"}}


@dataclass(frozen=True)
class Run:
    """One model.

    Attributes:
        table: Name of the table.
        n_targets: D: the target, and as many of the last columns.
        method: Name of the method.
        n_test: Test rows.
        median_error: Median over rows of the stated error of log Z.
        high_error: The 99 % quantile.
        worst_miss: The largest true error among rows without a flag.
        fooled: Share of rows whose log Z is off by more than 0.05 and twice the stated error, without a flag.
        unreliable: Share of rows that are flagged because of the computation.
        unusual: Share of rows that are flagged because of the input.
        fit_seconds: CPU time of the fit.
        predict_seconds: CPU time of the means of the test rows.
        unsearched_seconds: The same without a search for modes that the proposal misses.
    """

    table: str
    n_targets: int
    method: str
    n_test: int
    median_error: float
    high_error: float
    worst_miss: float
    fooled: float
    unreliable: float
    unusual: float
    fit_seconds: float
    predict_seconds: float
    unsearched_seconds: float

    @property
    def key(self) -> tuple[str, int, str]:
        """What there is one run of."""
        return self.table, self.n_targets, self.method


def several_targets(rows: Rows, n_targets: int, most: int) -> Rows:
    """The first rows with the last columns moved to the targets, (n, D), or (n,) for one target."""
    X, y = rows.X[:most], rows.y[:most]
    if n_targets == 1:
        return Rows(X, y)
    moved = n_targets - 1
    return Rows(X[:, :-moved], np.column_stack([y, X[:, -moved:]]))


def measure(table: Table, n_targets: int, method: str, split: int = 0) -> Run:
    """Fit a model and look at its predictions of the test rows."""
    train, test = table.split(split)
    train = several_targets(train, n_targets, MOST_TRAINING_ROWS)
    test = several_targets(test, n_targets, MOST_TEST_ROWS[n_targets])
    model = EnergyRegressor(**METHODS[method], random_state=split, verbose=False)  # type: ignore[arg-type]
    fit_seconds = _seconds(lambda: model.fit(train.X, train.y))
    p = model.predict_distribution(test.X)
    unsearched = replace(Accuracy(), search=False)
    truth = model.predict_distribution(test.X, accuracy=TRUTH, chunk=_TRUTH_ROWS_AT_ONCE)
    stated, miss = p.log_partition_error, np.abs(p.log_partition - truth.log_partition)
    is_wrong = (miss > TOLERANCE) & (miss > 2 * stated) & ~p.unreliable
    return Run(
        table.name,
        n_targets,
        method,
        len(test.y),
        median_error=float(np.median(stated)),
        high_error=float(np.quantile(stated, 0.99)),
        worst_miss=float(np.max(miss[~p.unreliable], initial=0.0)),
        fooled=float(np.mean(is_wrong)),
        unreliable=float(np.mean(p.unreliable)),
        unusual=float(np.mean(p.unusual)),
        fit_seconds=fit_seconds,
        predict_seconds=_best(lambda: model.predict_distribution(test.X)),
        unsearched_seconds=_best(lambda: model.predict_distribution(test.X, accuracy=unsearched)),
    )


def _best(predict: Callable[[], Prediction], repeats: int = 3) -> float:
    return min((_seconds(lambda: predict().mean) for _ in range(repeats)), default=math.nan)


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
