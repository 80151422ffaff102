"""Times of fits, beside scikit-learn's network and NGBoost."""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.neural_network import MLPRegressor

from benchmarks.measure import markdown_table
from benchmarks.speed.data import Sizes, table
from benchmarks.speed.timing import cpu_seconds, threads, wall_seconds
from ebreg import EnergyRegressor, MixtureDensityRegressor

N_TARGETS = 3  # of the second table


def fits(sizes: Sizes, n_seeds: int) -> str:
    """A table: times of fits with one target, and their ratios to those of the first method."""
    return _measured(_methods(sizes), sizes, 1, n_seeds)


def fits_of_several_targets(sizes: Sizes) -> str:
    """The same with three targets, of one fit each, of the mixture first."""
    return _measured(_ours(sizes), sizes, N_TARGETS, n_seeds=1)


def _ours(sizes: Sizes) -> dict[str, Callable[[int], Any]]:
    def of(method: type, **arguments: Any) -> Callable[[int], Any]:
        return lambda seed: method(random_state=seed, verbose=False, **sizes.of_fits, **arguments)

    return {
        "MixtureDensityRegressor()": of(MixtureDensityRegressor),
        "EnergyRegressor()": of(EnergyRegressor),
        'EnergyRegressor(preset="fast")': of(EnergyRegressor, preset="fast"),
    }


def _methods(sizes: Sizes) -> dict[str, Callable[[int], Any]]:
    from ngboost import NGBRegressor  # of the extra "bench"

    limit = sizes.max_iter
    return {
        "MLPRegressor(early_stopping=True, max_iter=500)": lambda seed: MLPRegressor(
            early_stopping=True, max_iter=limit or 500, random_state=seed
        ),
        "NGBRegressor()": lambda seed: NGBRegressor(
            n_estimators=limit or 500, random_state=seed, verbose=False
        ),
        **_ours(sizes),
    }


def _measured(methods: dict[str, Callable[[int], Any]], sizes: Sizes, n_targets: int, n_seeds: int) -> str:
    X, y = table(sizes.n_rows, n_targets, n_columns=sizes.n_columns)
    MixtureDensityRegressor(max_iter=1, verbose=False).fit(X[:100], y[:100])  # imports are not measured

    def columns(seconds: Callable[[Callable[[], Any]], float]) -> list[list[str]]:
        def of(method: Callable[[int], Any]) -> list[float]:
            return [seconds(partial(method(seed).fit, X, y)) for seed in range(n_seeds)]

        found = [of(method) for method in methods.values()]
        first = statistics.fmean(found[0])
        return [_cells(each, first) for each in found]

    with threads(1):
        one = columns(cpu_seconds)
    with threads(sizes.n_threads):
        several = columns(wall_seconds)
    others = ["range", "to the first"]
    wall = f"wall-clock seconds, threads: {sizes.n_threads}"
    titles = ["", "CPU seconds, one thread", *others, wall, *others]
    return markdown_table(titles, [[n, *a, *b] for n, a, b in zip(methods, one, several, strict=True)])


def _cells(seconds: list[float], first: float) -> list[str]:
    """Mean, range, and ratio of the mean to that of the first method."""
    mean = statistics.fmean(seconds)
    span = f"{min(seconds):.3g} to {max(seconds):.3g}" if len(seconds) > 1 else ""
    return [f"{mean:.3g}", span, f"{mean / first:.2g}"]
