"""Refinement: rows for which few nodes or draws are not enough get more; the others do not wait for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions import FullMixture
from ebreg.predictive.grouped import Grouped
from ebreg.predictive.importance import ImportanceND
from ebreg.predictive.protocol import Predictive
from ebreg.predictive.quadrature import Quadrature1D
from ebreg.predictive.support import Support

# A row gets more nodes until the error of its log Z is as good.
_GOOD_ERROR = 0.005
# It gets other draws until they are worth as many, and this share of them: those of the proposal must nearly
# be draws of p, since what they do not reach does not show in their weights; those of a source that was
# fitted to the row have been where the mass is.
_GOOD_SIZE = 200
_GOOD_SHARE, _GOOD_SHARE_FITTED = 0.5, 0.2
# Rounds of draws that only teach where the next are to come from, and how many draws: what is learned from
# few misses some of the tails, and log Z comes out low.
_ROUNDS, _FEWEST_TO_LEARN = 3, 1024


@dataclass(frozen=True)
class Unnormalized:
    """exp f(x, y) for a batch of x, with its proposal: what a predictive distribution is made from.

    Attributes:
        n_rows: B.
        n_targets: D.
        energy: Row numbers (n,) -> their f: (M, n, D) -> (M, n).
        proposal: Row numbers -> their proposal.
        support: Where the mass can be; None: anywhere.
    """

    n_rows: int
    n_targets: int
    energy: Callable[[Tensor], Callable[[Tensor], Tensor]]
    proposal: Callable[[Tensor], Any]
    support: Support | None

    def normalized(self, **settings: Any) -> Predictive:
        """p(y | x) of all rows; the settings are those of :meth:`by_quadrature` or :meth:`by_importance`."""
        return self.by_quadrature(**settings) if self.n_targets == 1 else self.by_importance(**settings)

    def by_quadrature(self, n_nodes: int = 128, max_nodes: int | None = None, **settings: Any) -> Predictive:
        """For one target: up to ``max_nodes``, 16 times ``n_nodes`` unless told, where the error is large.

        Args:
            n_nodes: For every row.
            max_nodes: For a row that needs them.
            **settings: Of :class:`Quadrature1D`.
        """

        def build(rows: Tensor, size: int) -> Predictive:
            energy, proposal = self.energy(rows), self.proposal(rows)
            return Quadrature1D(energy, proposal, len(rows), self.support, size, **settings)

        sizes = _sizes("n_nodes", n_nodes, max_nodes)
        return refined(
            build, self.n_rows, sizes, lambda p: p.log_partition_error <= _GOOD_ERROR, self.proposal
        )

    def by_importance(self, n_draws: int = 2048, max_draws: int | None = None, **settings: Any) -> Predictive:
        """For several targets: other draws, then up to ``max_draws``, where few of them count.

        Args:
            n_draws: For every row.
            max_draws: For a row that needs them; 16 times ``n_draws`` unless told.
            **settings: Of :class:`ImportanceND`.
        """

        def build(rows: Tensor, size: int, source: FullMixture | None = None) -> ImportanceND:
            energy, proposal = self.energy(rows), self.proposal(rows)
            return ImportanceND(
                energy, proposal, len(rows), self.n_targets, self.support, size, source=source, **settings
            )

        def learn(part: ImportanceND, poor: Tensor, rows: Tensor) -> FullMixture:
            source = part.adapted(poor)
            if part.is_fitted:
                return source
            # A source from few good draws is a poor one, but its own draws are better. How many rounds there
            # are is settled before: the first to look good would be the first to have overlooked something.
            for _ in range(_ROUNDS):
                source = build(rows, max(n_draws, _FEWEST_TO_LEARN), source).adapted()
            return source

        def good(part: ImportanceND) -> Tensor:
            share = _GOOD_SHARE_FITTED if part.is_fitted else _GOOD_SHARE
            return part.effective_sample_size >= max(_GOOD_SIZE, share * part.n_draws)

        # As many draws once more, from a source that was fitted to the first, before there are more of them.
        sizes = _sizes("n_draws", n_draws, max_draws)
        return refined(build, self.n_rows, [sizes[0], *sizes], good, self.proposal, learn)


def refined(
    build: Callable[..., Predictive],
    n_rows: int,
    sizes: Sequence[int],
    good: Callable[[Any], Tensor],
    proposal: Callable[[Tensor], Any],
    learn: Callable[[Any, Tensor, Tensor], Any] | None = None,
) -> Predictive:
    """Answer each row at the first size that is good enough for it, or at the last.

    A row decides for itself, so its answer does not depend on its neighbours.

    Args:
        build: Row numbers and a size (nodes or draws) -> the distribution of those rows. After the first
            size it is also handed what was learned about the rows, if anything is.
        n_rows: B.
        sizes: In the order they are tried.
        good: Of a distribution, which of its rows are good enough, shape (rows,).
        proposal: Row numbers -> their proposal.
        learn: A distribution, the mask of its rows that are tried again, and their numbers -> what is known
            about them then: anything that a mask of rows can index.
    """
    rows = torch.arange(n_rows)
    learned: tuple[Any, ...] = ()
    part = build(rows, sizes[0])
    groups: list[tuple[Tensor, Predictive]] = []
    for before, size in pairwise(sizes):
        poor = ~good(part).cpu()
        if not poor.any():
            break
        if not poor.all():
            # What is kept is built again without the poor rows: simpler than to cut it out, and cheap beside
            # what the poor rows cost.
            groups.append((rows[~poor], build(rows[~poor], before, *(known[~poor] for known in learned))))
        rows = rows[poor]
        learned = () if learn is None else (learn(part, poor, rows),)
        part = build(rows, size, *learned)
    return Grouped([*groups, (rows, part)], proposal(torch.arange(n_rows))) if groups else part


def _sizes(name: str, first: int, limit: int | None) -> list[int]:
    # Four times as many each time, until the limit.
    first = checks.at_least(name, first, 1)
    limit = 16 * first if limit is None else checks.at_least(f"the limit of {name}", limit, first)
    sizes = [first]
    while sizes[-1] < limit:
        sizes.append(min(4 * sizes[-1], limit))
    return sizes
