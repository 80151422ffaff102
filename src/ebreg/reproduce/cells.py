"""Cells: each setting of the paper's 1-D table, and of what goes beyond it, is one row of data."""

from dataclasses import dataclass, field

from ebreg import checks
from ebreg.datasets import TASKS


@dataclass(frozen=True)
class Cell:
    """One setting of a table, trained several times on each data set.

    Attributes:
        name: How it is called on the command line and in records.
        group: The rows or columns it belongs to.
        method: A name in ``ebreg.methods.METHODS``.
        recipe: A name in ``ebreg.reproduce.recipes.RECIPES``.
        n_components: K, of the mixture.
        sigma: sigma1 of the hand-set noise, for the fixed methods; sigma2 is eight times as much.
        n_runs: How often it is trained.
        published: The paper's values by data set.
    """

    name: str
    group: str
    method: str
    recipe: str = "paper"
    n_components: int = 4
    sigma: float | None = None
    n_runs: int = 20
    published: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What sets it apart in its group."""
        return f"K = {self.n_components}" if self.sigma is None else f"sigma1 = {self.sigma:g}"


SIGMAS = (0.05, 0.1, 0.2, 0.4, 0.8)
COMPONENTS = (1, 4, 16)


def _published(gustafsson: float, brando: float) -> dict[str, float]:
    return {"gustafsson": gustafsson, "brando": brando}


_TABLE1 = [
    # The paper's Table 1.
    Cell("nce-0.05", "NCE", "fixed-nce", sigma=0.05, published=_published(0.042, 2.30)),
    Cell("nce-0.1", "NCE", "fixed-nce", sigma=0.1, published=_published(0.036, 1.98)),
    Cell("nce-0.2", "NCE", "fixed-nce", sigma=0.2, published=_published(0.040, 1.72)),
    Cell("nce-0.4", "NCE", "fixed-nce", sigma=0.4, published=_published(0.042, 1.67)),
    Cell("nce-0.8", "NCE", "fixed-nce", sigma=0.8, published=_published(0.042, 1.70)),
    Cell("ours-1", "Ours", "joint-nce", n_components=1, published=_published(0.038, 1.69)),
    Cell("ours-4", "Ours", "joint-nce", n_components=4, published=_published(0.032, 1.67)),
    Cell("ours-16", "Ours", "joint-nce", n_components=16, published=_published(0.035, 1.65)),
    # Its alternatives that were never reported, and the mixture alone.
    *(Cell(f"joint-mle-{K}", "Joint MLE", "joint-mle", n_components=K, n_runs=5) for K in COMPONENTS),
    *(Cell(f"mle-{sigma:g}", "MLE", "fixed-mle", sigma=sigma, n_runs=5) for sigma in SIGMAS),
    *(Cell(f"mdn-{K}", "MDN", "mdn-nll", n_components=K, n_runs=5) for K in COMPONENTS),
    *(Cell(f"mdn-teacher-{K}", "MDN + teacher", "mdn-teacher", n_components=K, n_runs=5) for K in COMPONENTS),
    # The library's own recipe.
    Cell("modern", "Modern", "joint-nce", recipe="modern", n_components=8),
]
TABLE1: dict[str, Cell] = {cell.name: cell for cell in _TABLE1}
# Names that stand for several cells.
SETS: dict[str, tuple[str, ...]] = {
    "all": tuple(TABLE1),
    "paper": tuple(name for name, cell in TABLE1.items() if cell.published),
    "beyond": tuple(name for name, cell in TABLE1.items() if not cell.published),
}


def select(names: list[str]) -> list[Cell]:
    """Cells by their names or those of sets, each once, in the order of the table."""
    for name in names:
        checks.one_of("a cell", name, [*SETS, *TABLE1])
    wanted = {each for name in names for each in SETS.get(name, (name,))}
    return [cell for name, cell in TABLE1.items() if name in wanted]


@dataclass(frozen=True)
class Run:
    """One training: a cell on a data set with a seed.

    Attributes:
        cell: The setting.
        dataset: A name in ``ebreg.datasets.TASKS``.
        seed: Of the weights, the order of the data and the draws.
    """

    cell: Cell
    dataset: str
    seed: int

    @property
    def key(self) -> str:
        """Its name among all runs, fit for a file."""
        return f"{self.dataset}.{self.cell.name}.{self.seed:02d}"

    @classmethod
    def of(cls, key: str) -> "Run | None":
        """The run of that name; None if no run has it."""
        dataset, _, rest = key.partition(".")
        cell, _, seed = rest.rpartition(".")
        if dataset not in TASKS or cell not in TABLE1 or not seed.isdecimal():
            return None
        return cls(TABLE1[cell], dataset, int(seed))


def runs_of(cells: list[Cell], datasets: list[str], n_runs: int | None = None) -> list[Run]:
    """All runs of cells on data sets; seed after seed, so that an unfinished table is even.

    Args:
        cells: The settings.
        datasets: Names of the data sets.
        n_runs: Runs a cell; None: what each asks for.
    """
    if n_runs is not None:
        checks.at_least("runs", n_runs, 1)
    for dataset in datasets:
        checks.one_of("a data set", dataset, TASKS)
    wanted = {cell.name: cell.n_runs if n_runs is None else n_runs for cell in cells}
    return [
        Run(cell, dataset, seed)
        for seed in range(max(wanted.values(), default=0))
        for dataset in dict.fromkeys(datasets)
        for cell in cells
        if seed < wanted[cell.name]
    ]
