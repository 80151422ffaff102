"""Accuracy: how many nodes or draws the predictive distribution of an energy may take."""

from dataclasses import dataclass
from typing import Any

from ebreg._utils import checks

# Quadrature is for one target; with several, the default is adaptive importance sampling.
ENGINES = ("quadrature", "importance")
_FEWEST_NODES = 16
_FEWEST_DRAWS_A_REPLICATE = 16


@dataclass(frozen=True)
class Accuracy:
    """How a predictive distribution is computed, and how accurately.

    The stated errors hold from about 64 nodes or 512 draws on. With fewer, they can be too small, and rows
    are not refined: use fewer only to compare models quickly.

    Attributes:
        n_nodes: Nodes that every row starts with, tails apart. One target.
        max_nodes: Most nodes of a row that needs more; None: 16 times ``n_nodes``.
        n_draws: Draws that every row starts with, at least 16 for each replicate. Several targets, or the
            engine "importance".
        max_draws: Most draws of a row that needs more; None: 16 times ``n_draws``. A row that gets a fitted
            mixture also takes three rounds of at least 1,024 draws for the fit.
        tolerance: A row gets more nodes until the error of its log Z is at most this.
        n_replicates: Independently scrambled sets of draws, whose spread is the error of log Z.
        n_diagnostic_draws: Draws of the proposal for its effective sample size. One target.
        seed: Of the scrambling, or of the draws.
        search: Whether to look for modes that the proposal misses, where the energy may have some. Without it
            the stated errors do not include them.
        engine: "quadrature" for one target; with several, adaptive importance sampling takes its place.
            "importance" for the paper's estimator, with any number of targets: ``n_draws`` independent draws
            of the proposal, at least 16, and nothing else.
    """

    n_nodes: int = 128
    max_nodes: int | None = None
    n_draws: int = 2048
    max_draws: int | None = None
    tolerance: float = 0.005
    n_replicates: int = 8
    n_diagnostic_draws: int = 512
    seed: int = 0
    search: bool = True
    engine: str = "quadrature"

    def __post_init__(self) -> None:
        checks.one_of("engine", self.engine, ENGINES)
        checks.at_least("n_nodes", self.n_nodes, _FEWEST_NODES)
        checks.at_least("n_replicates", self.n_replicates, 2)
        replicates = 1 if self.engine == "importance" else self.n_replicates
        checks.at_least("n_draws", self.n_draws, _FEWEST_DRAWS_A_REPLICATE * replicates)
        checks.at_least("n_diagnostic_draws", self.n_diagnostic_draws, 1)
        checks.positive("tolerance", self.tolerance)
        checks.flag("search", self.search)
        checks.seed(self.seed, bits=31)
        if self.max_nodes is not None:
            checks.at_least("max_nodes", self.max_nodes, self.n_nodes)
        if self.max_draws is not None:
            checks.at_least("max_draws", self.max_draws, self.n_draws)

    @property
    def node_counts(self) -> list[int]:
        """Nodes to try, in this order."""
        return _growing(self.n_nodes, self.max_nodes)

    @property
    def draw_counts(self) -> list[int]:
        """Draws to try, in this order."""
        return [self.n_draws] if self.engine == "importance" else _growing(self.n_draws, self.max_draws)


DEFAULT = Accuracy()
# Enough to compare one epoch with another.
VALIDATION = Accuracy(n_nodes=64, max_nodes=64, n_draws=512, max_draws=512, search=False)


def accuracy_or_default(accuracy: Any) -> Accuracy:
    """The argument ``accuracy`` of predictions; None: the defaults."""
    if accuracy is None:
        return DEFAULT
    if not isinstance(accuracy, Accuracy):
        raise TypeError(f"accuracy must be an ebreg.predictive.Accuracy, got {type(accuracy).__name__}")
    return accuracy


def _growing(first: int, limit: int | None) -> list[int]:
    # Four times as many each time, until the limit.
    limit = 16 * first if limit is None else limit
    counts = [first]
    while counts[-1] < limit:
        counts.append(min(4 * counts[-1], limit))
    return counts
