"""``python -m benchmarks.speed``: measure, and print tables."""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import speed
from benchmarks.measure import markdown_table
from benchmarks.speed import child, memory, predictions
from benchmarks.speed.data import QUICK, Sizes
from benchmarks.speed.differences import differences
from benchmarks.speed.fits import N_TARGETS, fits, fits_of_several_targets
from benchmarks.speed.timing import threads
from ebreg import MixtureDensityRegressor


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables as they are finished."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=speed.__doc__)
    options.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout of another version")
    options.add_argument("--seeds", type=int, default=5, help="seeds of the fits (5)")
    options.add_argument("--out", type=Path, help="file for the tables")
    options.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    chosen = options.parse_args(arguments)
    if chosen.before is not None and not (chosen.before / "src" / "ebreg").is_dir():
        options.error(f"--before {chosen.before}: it has no src/ebreg")
    parts = []
    with threads(1), warnings.catch_warnings(action="ignore"):
        for part in tables(QUICK if chosen.quick else Sizes(), chosen.seeds, chosen.before):
            print(part, end="\n\n", flush=True)
            parts.append(part)
    if chosen.out is not None:
        chosen.out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def tables(sizes: Sizes, n_seeds: int, before: Path | None) -> Iterator[str]:
    """The tables, each after what is said about it."""
    energy, seed = predictions.fitted_energy(sizes)
    yield (
        f"Predictions of {sizes.n_predicted:,} rows and regions of {sizes.n_regions:,} after fits of "
        f"{sizes.n_rows:,} rows and {sizes.n_columns} columns: CPU time in one thread, the best of "
        f"{predictions.REPEATS} calls. {_which(seed)} Without a correction of its mixture an energy answers "
        "as its mixture, so it is the first fit with one."
    )
    mixture = predictions.fitted(MixtureDensityRegressor, 0, sizes)
    now = predictions.times(energy, sizes) | predictions.times(mixture, sizes)
    if before is None:
        yield markdown_table(["", "now"], [[name, f"{value:.3g}"] for name, value in now.items()])
    else:
        seed, then = child.run("predictions", "of_version", sizes, before)
        yield f"Before: {before.resolve().name}. {_which(seed)}"
        yield markdown_table(
            ["", "now", "before", "times faster"],
            [[k, f"{now[k]:.3g}", f"{then[k]:.3g}", f"{then[k] / now[k]:.2g}"] for k in now],
        )
    yield "Differences of that energy's answers from those with 16 times the nodes, in standard deviations."
    yield markdown_table(["", "largest", "99.9 % quantile over rows"], differences(energy, sizes))
    yield f"Fits of {sizes.n_rows:,} rows and {sizes.n_columns} columns, seeds of each: {n_seeds}."
    yield fits(sizes, n_seeds)
    yield f"The same with {N_TARGETS} targets, one fit each."
    yield fits_of_several_targets(sizes)
    seed, seconds, megabytes = child.run("memory", "one_pass", sizes)
    what = f"to_frame of {sizes.n_long:,} rows and {memory.N_COLUMNS} columns"
    yield f'One pass over a long table with EnergyRegressor(preset="fast"). {_which(seed)}'
    yield markdown_table(["", "CPU seconds", "MB more"], [[what, f"{seconds:.1f}", f"{megabytes:.0f}"]])


def _which(seed: int) -> str:
    return f"The energy is that of seed {seed}."


if __name__ == "__main__":
    main()
