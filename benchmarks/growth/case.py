"""A case, which is what is measured, and the plan of all cases."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from benchmarks.speed import table
from benchmarks.speed.corrected import n_corrected
from benchmarks.speed.timing import cpu_seconds
from ebreg import EnergyRegressor, MixtureDensityRegressor

METHODS = {
    "EnergyRegressor()": EnergyRegressor,
    'EnergyRegressor(preset="fast")': partial(EnergyRegressor, preset="fast"),
    "MixtureDensityRegressor()": MixtureDensityRegressor,
}
REPEATS = 2  # of a prediction


@dataclass(frozen=True)
class Case:
    """A method, and the sizes that it is measured with; None: the method's default."""

    method: str = ""
    n_rows: int = 2000
    n_columns: int = 12
    n_targets: int = 1
    n_draws: int | None = None
    n_members: int | None = None
    max_iter: int | None = None
    n_predicted: int = 500
    most_fits: int = 2

    def measure(self) -> "Times":
        """Fit seeds 0, 1, 2, ... until one has a correction of its mixture, and predict with the last."""
        X, y = table(self.n_rows, self.n_targets, seed=1, n_columns=self.n_columns)
        new, _ = table(self.n_predicted, seed=2, n_columns=self.n_columns)
        sizes = {"n_draws": self.n_draws, "n_members": self.n_members, "max_iter": self.max_iter}
        given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
        fit, epochs = [], []
        for seed in range(self.most_fits):
            model = METHODS[self.method](random_state=seed, verbose=False, **given)
            fit.append(cpu_seconds(partial(model.fit, X, y)))
            epochs.append(model.n_iter_)
            if n_corrected(model) != 0:
                break
        predict_interval = cpu_seconds(lambda: model.predict_interval(new), REPEATS)
        return Times(fmean(fit), predict_interval, fmean(epochs), len(fit), n_corrected(model))


@dataclass(frozen=True)
class Times:
    """What is measured.

    Attributes:
        fit: CPU seconds, the mean of the fits.
        predict_interval: CPU seconds, the best of some calls.
        epochs: Before fine-tuning, the mean of the fits.
        fits: How many.
        corrected: Members of the last fit with a correction of their mixture; None for a mixture.
    """

    fit: float
    predict_interval: float
    epochs: float
    fits: int
    corrected: int | None


@dataclass(frozen=True)
class Plan:
    """The values of each factor, a field of a case, and the base of all other fields."""

    base: Case
    values: dict[str, tuple[int, ...]]

    def cases(self, factor: str, method: str) -> dict[int, Case]:
        """By the value of the factor; none where the method does not have it."""
        if factor == "n_draws" and not method.startswith("EnergyRegressor"):
            return {}
        base = replace(self.base, method=method)
        return {value: replace(base, **{factor: value}) for value in self.values[factor]}

    def __iter__(self) -> Iterator[Case]:
        """Every case once."""
        cases = (case for factor in self.values for m in METHODS for case in self.cases(factor, m).values())
        return iter(dict.fromkeys(cases))


FULL = Plan(
    Case(),
    {
        "n_rows": (500, 2000, 8000, 32_000),
        "n_columns": (4, 16, 64, 256),
        "n_targets": (1, 2, 3),
        "n_draws": (1, 4, 16),
        "n_members": (2, 4, 8, 16),
    },
)
QUICK = Plan(
    Case(n_rows=60, n_columns=3, max_iter=2, n_predicted=20, most_fits=1),
    {"n_rows": (30, 60), "n_columns": (2, 3), "n_targets": (1, 2), "n_draws": (1, 2), "n_members": (2, 4)},
)
