"""Means of runs with their standard deviations, as the paper prints them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MeanStd:
    """Mean and standard deviation of the values of some runs.

    Attributes:
        mean: The mean.
        std: The number after the ±; None for a single run, or where the paper prints none.
    """

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "MeanStd":
        """Of at least one value; with the sample standard deviation, which divides by n - 1."""
        return cls(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None)

    def text(self, digits: int, bold: bool = False) -> str:
        """As in the paper: 1.39 ± 0.02, in Markdown with a bold mean for the best of a row."""
        mean = f"**{self.mean:.{digits}f}**" if bold else f"{self.mean:.{digits}f}"
        return mean if self.std is None else f"{mean} ± {self.std:.{digits}f}"
