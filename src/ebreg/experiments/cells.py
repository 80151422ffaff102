"""Cells and runs: each setting of a table is one row of data, trained several times on each data set."""

from dataclasses import dataclass, field

# What every run that can be judged is judged by, in every table: the first of its measures.
PAPER_MEASURE = "on_grid"


@dataclass(frozen=True)
class Cell:
    """One setting of a table.

    Attributes:
        name: How it is called on the command line and in records.
        group: The rows or columns it belongs to.
        method: A name in ``ebreg.methods.METHODS``.
        recipe: Name of the recipe it is trained by.
        n_components: K, of the mixture.
        sigmas: Of the hand-set noise, for the fixed methods.
        shares_backbone: Whether a teacher and its student have one backbone, which both losses reach.
        n_runs: How often it is trained.
        published: The paper's values by data set.
    """

    name: str
    group: str
    method: str
    recipe: str = "paper"
    n_components: int = 4
    sigmas: tuple[float, float] | None = None
    shares_backbone: bool = False
    n_runs: int = 20
    published: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What sets it apart in its group."""
        if self.sigmas is None:
            return f"K = {self.n_components}"
        return "sigma = {:g}, {:g}".format(*self.sigmas)

    @property
    def setting(self) -> float:
        """What is varied in its group, as a number: sigma1, or K."""
        return self.n_components if self.sigmas is None else self.sigmas[0]


@dataclass(frozen=True)
class Run:
    """One training: a cell on a data set with a seed.

    Attributes:
        cell: The setting.
        dataset: Name of the data set.
        seed: Of the weights, the order of the data and the draws.
    """

    cell: Cell
    dataset: str
    seed: int

    @property
    def key(self) -> str:
        """Its name among all runs, fit for a file."""
        return f"{self.dataset}.{self.cell.name}.{self.seed:02d}"
