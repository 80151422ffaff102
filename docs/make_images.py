"""Draws the pictures of the documentation: python docs/make_images.py."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ebreg import EnergyRegressor, plots

plt.switch_backend("Agg")
HERE = Path(__file__).parent / "images"


def journeys(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The data of docs/getting-started.md."""
    rng = np.random.default_rng(seed)
    km = rng.uniform(1, 12, n)
    rain = rng.integers(0, 2, n)
    by_bicycle = rng.random(n) < np.where(rain == 1, 0.25, 0.75)
    bicycle = 4.5 * km + rng.normal(0, 1.5, n)
    bus = 5 + 1.2 * km + rng.gamma(2, 1.5, n)
    return np.column_stack([km, rain]), np.where(by_bicycle, bicycle, bus)


def main() -> None:
    """Train once, draw all."""
    X, y = journeys(1500, seed=0)
    X_test, y_test = journeys(500, seed=1)
    model = EnergyRegressor(random_state=0).fit(X, y)

    km = np.linspace(1, 12, 160)

    def panel(rain: int):
        rows = X_test[:, 1] == rain
        grid = model.predict_distribution(np.column_stack([km, np.full_like(km, rain)]))
        return lambda ax: plots.conditional(grid, km, X_test[rows, 0], y_test[rows], ax, y_range=(0, 62))

    figure, axes = plots.side_by_side({"Dry": panel(0), "Rain": panel(1)}, width=3.6, height=3.0)
    for ax in axes:
        ax.set_xlabel("km")
    axes[0].set_ylabel("minutes")
    save(figure, "journeys")

    ax = plots.row(model.predict_distribution([[10.0, 0.0]]), 0)
    ax.set_xlabel("minutes, for 10 km on a dry day")
    save(ax.figure, "row")

    test = model.predict_distribution(X_test)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.4), layout="constrained")
    plots.calibration(test, y_test, left)
    plots.pit_histogram(test, y_test, right, bins=10)
    save(figure, "calibration")


def save(figure, name: str) -> None:
    """As a small PNG."""
    figure.savefig(HERE / f"{name}.png", dpi=110, pil_kwargs={"optimize": True})


if __name__ == "__main__":
    main()
