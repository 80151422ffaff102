"""What is measured of a method on a split."""

import math
from dataclasses import dataclass

COVERAGES = (0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Run:
    """One method on one split.

    Attributes:
        table: Name of the table.
        split: Number of the split.
        method: Name of the method.
        n_calibration: Calibration rows; 0 where nothing is calibrated.
        n_test: Test rows.
        coverage_80: Share of the test rows in the sets of 80 %; likewise the others.
        coverage_90: Of 90 %.
        coverage_95: Of 95 %.
        size_80: Mean length of the sets of 80 %, all parts together; likewise the others.
        size_90: Of 90 %.
        size_95: Of 95 %.
        median_90: The median length of the sets of 90 %: a few rows may have enormous ones.
        unreliable: Share of the test rows that are marked as unreliable; NaN where nothing says so.
        unusual: Share of the test rows that are marked as unusual; likewise.
        fit_seconds: CPU time of the fit.
        conformalize_seconds: CPU time of the calibration; 0 where there is none.
        predict_seconds: CPU time of the intervals of 90 % of the test rows.
    """

    table: str
    split: int
    method: str
    n_calibration: int
    n_test: int
    coverage_80: float
    coverage_90: float
    coverage_95: float
    size_80: float
    size_90: float
    size_95: float
    median_90: float = math.nan
    unreliable: float = math.nan
    unusual: float = math.nan
    fit_seconds: float = math.nan
    conformalize_seconds: float = 0.0
    predict_seconds: float = math.nan

    @property
    def key(self) -> tuple[str, int, str]:
        """What there is one run of."""
        return self.table, self.split, self.method
