"""ProposalRows: any Distribution of a head, with rows that can be selected and units, for predictions."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, TransformedDistribution

from ebreg.sampling.draws import draw
from ebreg.sampling.uniform_map import uniform_map

Head = Callable[[Tensor], Any]


class ProposalRows:
    """The distributions that a head gives for features, one a row.

    Args:
        head: Turns features (B, H) into a Distribution with batch shape (B,) and event shape (D,).
        h: Features, shape (B, H).
        shift: Of the units of y, shape (D,); None: 0.
        scale: Of the units of y, shape (D,); None: 1.
    """

    def __init__(self, head: Head, h: Tensor, shift: Tensor | None = None, scale: Tensor | None = None):
        self._head, self._h, self._shift, self._scale = head, h, shift, scale

    def __len__(self) -> int:
        return len(self._h)

    def __getitem__(self, rows: Any) -> Self:
        """The proposals of some of the rows: a slice, row numbers or a mask."""
        return type(self)(self._head, self._h[rows], self._shift, self._scale)

    def __reduce__(self) -> tuple[Any, ...]:
        # A Distribution may hold functions, which cannot be pickled: it is made again.
        return type(self), (self._head, self._h, self._shift, self._scale)

    def joined(self, others: Sequence["ProposalRows"]) -> Self:
        """These rows and, below them, those of others with the same head and units."""
        h = torch.cat([self._h, *(other._h for other in others)])
        return type(self)(self._head, h, self._shift, self._scale)

    def rescaled(self, shift: Tensor, scale: Tensor) -> Self:
        """The distribution of shift + scale * y, for y in the units of the head; both have shape (D,)."""
        return type(self)(self._head, self._h, shift, scale)

    @property
    def distribution(self) -> Distribution:
        """All rows as one torch Distribution."""
        return self._of(self._h) if torch.is_grad_enabled() else self._without_graph

    @cached_property
    def _without_graph(self) -> Distribution:
        return self._of(self._h)

    def log_prob(self, y: Tensor) -> Tensor:
        """(M, B, D) -> (M, B); minus infinity outside of the support."""
        q = self.distribution
        inside = _in_support(q, y)
        if inside is None or inside.all():
            return q.log_prob(y)
        # A torch Distribution refuses values outside of its support.
        values = torch.where(inside[..., None], y, draw(q, torch.full_like(y[:1], 0.5)))
        return q.log_prob(values).masked_fill(~inside, -torch.inf)

    def from_uniform(self, u: Tensor) -> Tensor:
        """Points of the unit cube -> draws: (M, B, D) -> (M, B, D)."""
        raise NotImplementedError  # abstract

    def _of(self, h: Tensor) -> Distribution:
        q = self._head(h)
        if self._shift is None or self._scale is None:
            return q
        units = AffineTransform(self._shift, self._scale, event_dim=1)
        return TransformedDistribution(q, units, validate_args=False)


def _in_support(q: Any, y: Tensor) -> Tensor | None:
    try:
        return q.support.check(y)
    except (NotImplementedError, AttributeError):
        return None  # it does not say


class AllAtOnce(ProposalRows):
    """Rows whose distributions have a :func:`uniform_map`: every row's points go through its own map."""

    def from_uniform(self, u: Tensor) -> Tensor:
        """(M, B, D) -> (M, B, D)."""
        return draw(self.distribution, u.to(self._h.device))


class RowByRow(ProposalRows):
    """Rows that are built and sampled one by one.

    A torch Distribution without a :func:`uniform_map` samples a batch as a whole: a row's draws would depend
    on the other rows. The price is one call of the head, and one of ``sample``, for each row: some 0.2
    milliseconds a row, which is most of the time of a prediction.
    """

    def from_uniform(self, u: Tensor) -> Tensor:
        """(M, B, D) -> (M, B, D)."""
        u = u.to(self._h.device)
        rows = [draw(self._of(self._h[i : i + 1]), u[:, i : i + 1]) for i in range(len(self))]
        return torch.cat(rows, dim=1) if rows else u.to(self._h)


def proposal_rows(head: Head, h: Tensor) -> Any:
    """The distributions of a head for features (B, H), as predictions need them.

    The library's own mixtures are that already; any other Distribution is wrapped.
    """
    q = head(h)
    if hasattr(q, "from_uniform"):
        return q
    return RowByRow(head, h) if uniform_map(q) is None else AllAtOnce(head, h)
