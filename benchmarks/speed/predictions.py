"""CPU time of predictions, by what every version since 0.1 has."""

from typing import Any

from benchmarks.speed.corrected import corrected
from benchmarks.speed.data import Sizes, table
from benchmarks.speed.timing import cpu_seconds
from ebreg import EnergyRegressor, MixtureDensityRegressor

REPEATS = 3


def fitted(method: type, seed: int, sizes: Sizes) -> Any:
    """A regressor with default settings, fitted to the table."""
    model = method(random_state=seed, verbose=False, **sizes.of_fits)
    return model.fit(*table(sizes.n_rows, n_columns=sizes.n_columns))


def fitted_energy(sizes: Sizes) -> tuple[EnergyRegressor, int]:
    """One with a correction of its mixture, and its seed."""
    return corrected(lambda seed: fitted(EnergyRegressor, seed, sizes), required=sizes.max_iter is None)


def times(model: Any, sizes: Sizes) -> dict[str, float]:
    """Of the predictions of a fitted regressor, by name; the best of three calls each."""
    X, _ = table(sizes.n_predicted, seed=1, n_columns=sizes.n_columns)
    some, name = X[: sizes.n_regions], type(model).__name__
    model.predict_interval(X[:300])  # the first call of anything is slower
    regions = cpu_seconds(lambda: model.predict_distribution(some).highest_density_region(0.9), REPEATS)
    return {
        f"{name}.predict, seconds": cpu_seconds(lambda: model.predict(X), REPEATS),
        f"{name}.predict_interval, seconds": cpu_seconds(lambda: model.predict_interval(X), REPEATS),
        f"{name}, regions, milliseconds a row": 1e3 * regions / len(some),
    }


def of_version(sizes: Sizes) -> tuple[int, dict[str, float]]:
    """The seed of the energy, and the times of both regressors, of the version that is imported."""
    energy, seed = fitted_energy(sizes)
    return seed, times(energy, sizes) | times(fitted(MixtureDensityRegressor, 0, sizes), sizes)
