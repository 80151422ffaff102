"""The paper's tables as data: their cells, their data sets, and what is measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ebreg._utils import checks
from ebreg.experiments.cells import PAPER_MEASURE, Cell, Run


@dataclass(frozen=True)
class Measure:
    """What is reported of a run.

    Attributes:
        name: In records; the first of a table is the one that the paper reports.
        title: In reports.
        digits: After the decimal point.
    """

    name: str
    title: str
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """A table of the paper, with rows that go beyond it.

    Attributes:
        name: How it is called on the command line.
        title: Of its report.
        cells: Its settings by name.
        datasets: What is measured first on each data set, by the name of the set.
        measures: What is reported of every run; the first is the paper's.
    """

    name: str
    title: str
    cells: Mapping[str, Cell]
    datasets: Mapping[str, str]
    measures: tuple[Measure, ...]

    @property
    def sets(self) -> dict[str, tuple[str, ...]]:
        """Names that stand for several cells."""
        return {
            "all": tuple(self.cells),
            "paper": tuple(name for name, cell in self.cells.items() if cell.published),
            "beyond": tuple(name for name, cell in self.cells.items() if not cell.published),
        }

    def select(self, names: Iterable[str]) -> list[Cell]:
        """Cells by their names or those of sets, each once, in the order of the table."""
        names = list(names)
        for name in names:
            checks.one_of("a cell", name, [*self.sets, *self.cells])
        wanted = {each for name in names for each in self.sets.get(name, (name,))}
        return [cell for name, cell in self.cells.items() if name in wanted]

    def runs(
        self,
        cells: Sequence[str] = ("all",),
        datasets: Sequence[str] | None = None,
        n_runs: int | None = None,
    ) -> list[Run]:
        """All runs of cells on data sets; seed after seed, so that an unfinished table is even.

        Args:
            cells: Names of cells or of sets of them.
            datasets: Names of the data sets; None: all.
            n_runs: Runs a cell; None: what each asks for.
        """
        if n_runs is not None:
            checks.at_least("runs", n_runs, 1)
        datasets = list(self.datasets if datasets is None else dict.fromkeys(datasets))
        for dataset in datasets:
            checks.one_of("a data set", dataset, self.datasets)
        chosen = self.select(cells)
        wanted = {cell.name: cell.n_runs if n_runs is None else n_runs for cell in chosen}
        return [
            Run(cell, dataset, seed)
            for seed in range(max(wanted.values(), default=0))
            for dataset in datasets
            for cell in chosen
            if seed < wanted[cell.name]
        ]

    def run(self, key: str) -> Run | None:
        """The run of that name; None if none has it."""
        dataset, _, rest = key.partition(".")
        cell, _, seed = rest.rpartition(".")
        if dataset not in self.datasets or cell not in self.cells or not seed.isdecimal():
            return None
        run = Run(self.cells[cell], dataset, int(seed))
        return run if run.key == key else None  # other spellings would count it twice


def _by_name(*cells: Cell) -> dict[str, Cell]:
    return {cell.name: cell for cell in cells}


_SIGMAS = (0.05, 0.1, 0.2, 0.4, 0.8)
_RATIO = 8  # of sigma2 to sigma1, in the 1-D experiments
_COMPONENTS = (1, 4, 16)


def _nce_1d(sigma: float, gustafsson: float, brando: float) -> Cell:
    published = {"gustafsson": gustafsson, "brando": brando}
    return Cell(f"nce-{sigma:g}", "NCE", "fixed-nce", sigmas=(sigma, _RATIO * sigma), published=published)


def _ours_1d(K: int, gustafsson: float, brando: float) -> Cell:
    published = {"gustafsson": gustafsson, "brando": brando}
    return Cell(f"ours-{K}", "Ours", "joint-nce", n_components=K, published=published)


def _mle_1d(sigma: float) -> Cell:
    return Cell(f"mle-{sigma:g}", "MLE", "fixed-mle", sigmas=(sigma, _RATIO * sigma), n_runs=5)


TABLE1 = Table(
    "table1",
    "Table 1",
    _by_name(
        # As published.
        _nce_1d(0.05, 0.042, 2.30),
        _nce_1d(0.1, 0.036, 1.98),
        _nce_1d(0.2, 0.040, 1.72),
        _nce_1d(0.4, 0.042, 1.67),
        _nce_1d(0.8, 0.042, 1.70),
        _ours_1d(1, 0.038, 1.69),
        _ours_1d(4, 0.032, 1.67),
        _ours_1d(16, 0.035, 1.65),
        # Alternatives that were never reported, and the mixture alone.
        *(Cell(f"joint-mle-{K}", "Joint MLE", "joint-mle", n_components=K, n_runs=5) for K in _COMPONENTS),
        *map(_mle_1d, _SIGMAS),
        *(Cell(f"mdn-{K}", "MDN", "mdn-nll", n_components=K, n_runs=5) for K in _COMPONENTS),
        *(
            Cell(f"mdn-teacher-{K}", "MDN + teacher", "mdn-teacher", n_components=K, n_runs=5)
            for K in _COMPONENTS
        ),
        # The library's own recipe.
        Cell("modern", "Modern", "joint-nce", recipe="modern", n_components=8),
    ),
    {
        "gustafsson": "KL divergence from the truth to the model",
        "brando": "NLL of the test points (the truth itself has 1.239)",
    },
    (Measure(PAPER_MEASURE, "on the paper's grid", 4), Measure("own", "own", 4)),
)


# The noise of NCE that the paper tries on each task, and its NLL; then that of the proposed method.
_NOISE: dict[str, dict[tuple[float, float], float]] = {
    "steering": {(0.1, 20): 1.59, (1, 20): 1.51, (2, 20): 1.56, (1, 10): 2.03, (1, 40): 1.39},
    "cells": {(0.1, 40): 2.71, (1, 40): 2.64, (2, 40): 2.65, (1, 20): 3.12, (1, 80): 2.70},
    "age": {(0.01, 20): 4.18, (0.1, 20): 3.81, (1, 20): 4.13, (0.1, 10): 3.97, (0.1, 40): 4.47},
    "head-pose": {(0.1, 20): 13.68, (1, 20): 10.99, (2, 20): 10.85, (1, 10): 10.73, (1, 40): 11.20},
}
_OURS = {"steering": 1.58, "cells": 2.66, "age": 4.30, "head-pose": 9.51}
# Mixtures by their log-likelihood and with a teacher, by K.
_MIXTURES: dict[str, dict[int, tuple[float, float]]] = {
    "steering": {4: (1.45, 1.00), 8: (1.25, 1.01)},
    "cells": {4: (2.80, 2.80), 8: (2.90, 2.75)},
    "age": {4: (4.88, 3.57), 8: (4.71, 3.65)},
    "head-pose": {4: (11.02, 8.69), 8: (10.68, 8.79), 16: (10.71, 8.77)},
}
_IMAGE_MEASURES = (
    Measure(PAPER_MEASURE, "NLL on the paper's grid"),
    Measure("own", "NLL"),
    Measure("own_error", "its error"),
    Measure("sampled", "NLL by draws of q"),
    Measure("sampled_error", "its error"),
    Measure("cell_nll", "NLL of the rounding cell"),
    Measure("crps", "CRPS"),
    Measure("mae", "MAE"),
)


def _mixtures(K: int) -> list[Cell]:
    by_column = [{task: values[K][i] for task, values in _MIXTURES.items() if K in values} for i in (0, 1)]
    return [
        Cell(f"mdn-{K}", "MDN", "mdn-nll", n_components=K, published=by_column[0]),
        Cell(f"mdn-teacher-{K}", "MDN + teacher", "mdn-teacher", n_components=K, published=by_column[1]),
        # Which the paper leaves for future work.
        Cell(
            f"mdn-shared-teacher-{K}",
            "MDN + shared teacher",
            "mdn-teacher",
            n_components=K,
            shares_backbone=True,
            n_runs=5,
        ),
    ]


def _image_table(number: int, task: str, title: str) -> Table:
    noise = [
        Cell("nce-{:g}-{:g}".format(*sigmas), "NCE", "fixed-nce", sigmas=sigmas, published={task: nll})
        for sigmas, nll in _NOISE[task].items()
    ]
    return Table(
        f"table{number}",
        f"Table {number}: {title}",
        _by_name(
            *noise,
            Cell("ours-4", "Ours", "joint-nce", published={task: _OURS[task]}),
            # So that all methods can be compared on one set.
            *(replace(cell, published={}, n_runs=5) for cell in _mixtures(4)),
        ),
        {task: "NLL of the test images"},
        _IMAGE_MEASURES,
    )


TABLE6 = Table(
    "table6",
    "Table 6: mixtures with and without an energy-based teacher",
    _by_name(*(cell for K in (4, 8, 16) for cell in _mixtures(K))),
    dict.fromkeys(_MIXTURES, "NLL of the test images"),
    _IMAGE_MEASURES,
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        TABLE1,
        _image_table(2, "steering", "steering angle"),
        _image_table(3, "cells", "cell count"),
        _image_table(4, "age", "age"),
        _image_table(5, "head-pose", "head pose"),
        TABLE6,
    )
}
