"""The methods: ours before and after ``conformalize``, and two of MAPIE."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from benchmarks.conformal.runs import COVERAGES
from benchmarks.conformal.sets import measured
from benchmarks.tabular.tables import Rows
from ebreg import EnergyRegressor

T = TypeVar("T")


class Method(Protocol):
    """What is fitted to the proper training rows and calibrated on others."""

    @property
    def names(self) -> list[str]:
        """Of the runs that it gives."""

    def runs(self, train: Rows, calibration: Rows, test: Rows, seed: int) -> Iterator[dict[str, Any]]:
        """The columns of each run that are not those of the split, in the order of the names."""


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """The result of a call, and its CPU seconds."""
    start = time.process_time()
    return call(), time.process_time() - start


@dataclass(frozen=True)
class Ours:
    """EnergyRegressor, fitted once: intervals and regions as the model says, and calibrated."""

    preset: str

    @property
    def names(self) -> list[str]:
        """See :class:`Method`."""
        model = f"ebreg, {self.preset}"
        kinds = ("intervals", "regions")
        return [f"{model}: {how}{kind}" for how in ("", "calibrated ") for kind in kinds]

    def runs(self, train: Rows, calibration: Rows, test: Rows, seed: int) -> Iterator[dict[str, Any]]:
        """See :class:`Method`."""
        model = EnergyRegressor(preset=self.preset, random_state=seed, verbose=False)
        _, fit_seconds = timed(lambda: model.fit(train.X, train.y))
        p = model.predict_distribution(test.X)
        flags = {
            name: float(np.mean(getattr(p, name)))
            for name in ("unreliable", "unusual")
            if hasattr(type(p), name)
        }
        common = {"fit_seconds": fit_seconds, **flags}
        yield from (common | run for run in self._sets(model, test))
        _, seconds = timed(lambda: model.conformalize(calibration.X, calibration.y))
        common |= {"conformalize_seconds": seconds, "n_calibration": len(calibration.y)}
        yield from (common | run for run in self._sets(model, test))

    def _sets(self, model: EnergyRegressor, test: Rows) -> Iterator[dict[str, Any]]:
        _, seconds = timed(lambda: model.predict_interval(test.X, 0.9))
        intervals = {level: model.predict_interval(test.X, level)[:, None] for level in COVERAGES}
        yield measured(intervals, test.y) | {"predict_seconds": seconds}
        _, seconds = timed(lambda: model.predict_region(test.X, 0.9))
        regions = {level: model.predict_region(test.X, level).intervals for level in COVERAGES}
        yield measured(regions, test.y) | {"predict_seconds": seconds}


@dataclass(frozen=True)
class Mapie:
    """A conformal regressor of MAPIE, one for each level, around HistGradientBoostingRegressor.

    Attributes:
        kind: "split", of absolute residuals, or "quantiles", conformalised quantile regression.
    """

    kind: str

    @property
    def names(self) -> list[str]:
        """See :class:`Method`."""
        return [{"split": "MAPIE, split", "quantiles": "MAPIE, CQR"}[self.kind]]

    def runs(self, train: Rows, calibration: Rows, test: Rows, seed: int) -> Iterator[dict[str, Any]]:
        """See :class:`Method`."""
        sets, seconds = {}, {}
        for level in COVERAGES:
            model = self._regressor(level, seed)
            _, fit = timed(lambda model=model: model.fit(train.X, train.y))
            _, conformalize = timed(lambda model=model: model.conformalize(calibration.X, calibration.y))
            (_, intervals), predict = timed(lambda model=model: model.predict_interval(test.X))
            sets[level] = np.swapaxes(intervals, 1, 2)
            seconds[level] = {
                "fit_seconds": fit,
                "conformalize_seconds": conformalize,
                "predict_seconds": predict,
            }
        yield measured(sets, test.y) | seconds[0.9] | {"n_calibration": len(calibration.y)}

    def _regressor(self, level: float, seed: int) -> Any:
        from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
        from sklearn.ensemble import HistGradientBoostingRegressor

        if self.kind == "split":
            base = HistGradientBoostingRegressor(random_state=seed)
            return SplitConformalRegressor(base, confidence_level=level, prefit=False)
        base = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, random_state=seed)
        return ConformalizedQuantileRegressor(base, confidence_level=level)
