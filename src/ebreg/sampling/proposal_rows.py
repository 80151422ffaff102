"""ProposalRows: any Distribution of a head, with rows that can be selected and units, for predictions."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ebreg._utils.row_index import row_index
from ebreg.sampling.draws import draw, log_prob
from ebreg.sampling.uniform_map import uniform_map

Head = Callable[[Tensor], Any]


class ProposalRows:
    """The distributions that a head gives for features, one a row.

    Args:
        head: Turns features (B, H) into a Distribution with batch shape (B,) and event shape (D,).
        h: Features, shape (B, H).
        shift: Of the units of y, shape (D,); None: 0.
        scale: Of the units of y, shape (D,); None: 1.
        q: What the head gives for h without a graph, where it is known.
    """

    def __init__(
        self,
        head: Head,
        h: Tensor,
        shift: Tensor | None = None,
        scale: Tensor | None = None,
        q: Any = None,
    ):
        self._head, self._h, self._shift, self._scale = head, h, shift, scale
        self._q = q

    def __len__(self) -> int:
        return len(self._h)

    def __getitem__(self, rows: Any) -> Self:
        """The proposals of some of the rows: a number, a slice, row numbers or a mask."""
        return type(self)(self._head, self._h[row_index(rows)], self._shift, self._scale)

    def __reduce__(self) -> tuple[Any, ...]:
        # A Distribution may hold functions, which cannot be pickled: it is made again.
        return type(self), (self._head, self._h, self._shift, self._scale)

    def joined(self, others: Sequence["ProposalRows"]) -> Self:
        """These rows and, below them, those of others with the same head and units."""
        h = torch.cat([self._h, *(other._h for other in others)])
        return type(self)(self._head, h, self._shift, self._scale)

    def rescaled(self, shift: Tensor, scale: Tensor) -> Self:
        """The distribution of shift + scale * y, for y in the units of the head; both have shape (D,)."""
        return type(self)(self._head, self._h, shift, scale, self._q)

    @property
    def distribution(self) -> Any:
        """All rows as the Distribution that the head gives, in its units."""
        if torch.is_grad_enabled():
            return self._head(self._h)  # with a graph
        if self._q is None:
            self._q = self._head(self._h)
        return self._q

    def log_prob(self, y: Tensor) -> Tensor:
        """(M, B, D) -> (M, B); minus infinity outside of the support."""
        if self._shift is None or self._scale is None:
            return log_prob(self.distribution, y.to(self._h.dtype))
        z = ((y - self._shift) / self._scale).to(self._h.dtype)
        return log_prob(self.distribution, z) - self._scale.log().sum()

    def from_uniform(self, u: Tensor) -> Tensor:
        """Points of the unit cube -> draws: (M, B, D) -> (M, B, D)."""
        z = self._draws(u.to(self._h.device))
        return z if self._shift is None or self._scale is None else self._shift + self._scale * z

    def _draws(self, u: Tensor) -> Tensor:
        # In the units of the head.
        raise NotImplementedError  # abstract


class AllAtOnce(ProposalRows):
    """Rows whose distributions have a :func:`uniform_map`: every row's points go through its own map."""

    def _draws(self, u: Tensor) -> Tensor:
        return draw(self.distribution, u)


class RowByRow(ProposalRows):
    """Rows that are built and sampled one by one.

    A torch Distribution without a :func:`uniform_map` samples a batch as a whole: a row's draws would depend
    on the other rows. The price is one call of the head, and one of ``sample``, for each row: 0.3 to 0.5
    milliseconds a row, which is most of the time of a prediction.
    """

    def _draws(self, u: Tensor) -> Tensor:
        rows = [draw(self._head(self._h[i : i + 1]), u[:, i : i + 1]) for i in range(len(self))]
        return torch.cat(rows, dim=1) if rows else u.to(self._h)


def proposal_rows(head: Head, h: Tensor) -> Any:
    """The distributions of a head for features (B, H), as predictions need them.

    The library's own mixtures are that already; any other Distribution is wrapped.
    """
    q = head(h)
    has_map = hasattr(q, "from_uniform")
    if has_map and hasattr(q, "rescaled"):
        return q
    kind = AllAtOnce if has_map or uniform_map(q) is not None else RowByRow
    return kind(head, h, q=None if torch.is_grad_enabled() else q)
