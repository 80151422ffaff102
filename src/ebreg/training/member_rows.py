"""MemberRows: which rows each member of a model is trained and validated on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.models import Model
from ebreg.training.batches import Data

# Its multiples are spread evenly over [0, 1).
_GOLDEN = 0.5 * (5**0.5 - 1)


@dataclass(frozen=True)
class HeldOut:
    """Validation rows of each member among the training data.

    Attributes:
        index: Row numbers, shape (E, n).
        train: Numbers of the rows that each member is trained on, shape (E, m); None: all others.
    """

    index: Tensor
    train: Tensor | None = None

    @classmethod
    def of_splits(cls, splits: Sequence[tuple[Tensor, Tensor]]) -> "HeldOut":
        """Training rows and validation rows of each member.

        All members have as many of them as the one with the fewest: where others have more, some are left
        out, evenly over the rows.
        """
        train, index = (_as_many(rows) for rows in zip(*splits, strict=True))
        return cls(index, train)

    @classmethod
    def at_random(
        cls, n_members: int, n_rows: int, n_validation: int, seed: int, n_equal: int = 1
    ) -> "HeldOut":
        """Rows for each member: as different from those of the others as their numbers allow.

        Consecutive parts of one random order, from its start again where it ends.

        Args:
            n_members: E.
            n_rows: Rows of the data.
            n_validation: Rows of a member.
            seed: Of the order.
            n_equal: Members, one after the other, that have the same rows, so that they can be compared.
        """
        checks.at_least("n_validation", n_validation, 1)
        order = torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed))
        starts = (torch.arange(n_members) // n_equal)[:, None] * n_validation
        return cls(order[(starts + torch.arange(n_validation)) % n_rows])


@dataclass(frozen=True)
class MemberRows:
    """Rows of the blocks of a batch: one block for each member, or one for all.

    Attributes:
        train: Row numbers in the training data, shape (G, n).
        validation: Row numbers in the validation data, shape (G, n); None without.
        held_out: Whether the validation data are the training data.
    """

    train: Tensor
    validation: Tensor | None
    held_out: bool

    @classmethod
    def of(cls, model: Model, data: Data, validation: Data | HeldOut | None) -> "MemberRows":
        """The rows of a model's blocks: where members share a backbone, they share the rows too."""
        n_blocks = 1 if model.shares_backbone else model.n_members
        if isinstance(validation, HeldOut):
            return cls._held_out(validation, n_blocks, len(data))
        train = torch.arange(len(data)).expand(n_blocks, -1)
        rows = None if validation is None else torch.arange(len(validation)).expand(n_blocks, -1)
        return cls(train, rows, held_out=False)

    @classmethod
    def _held_out(cls, held_out: HeldOut, n_blocks: int, n_rows: int) -> "MemberRows":
        index = held_out.index
        if len(index) != n_blocks:
            raise ValueError(
                f"validation holds out rows for {len(index)} members, and the model has {n_blocks} that are "
                "trained on rows of their own"
            )
        if index.numel() and (index.min() < 0 or index.max() >= n_rows):
            raise ValueError(f"validation must hold row numbers in 0 ... {n_rows - 1}")
        trains = torch.ones(n_blocks, n_rows, dtype=torch.bool).scatter_(1, index, False)
        if not trains.sum(dim=1).eq(n_rows - index.shape[1]).all() or index.shape[1] >= n_rows:
            raise ValueError("validation must hold out different rows, and leave some to train on")
        train = trains.nonzero()[:, 1].view(n_blocks, -1) if held_out.train is None else held_out.train
        if not trains.gather(1, train).all():
            raise ValueError("validation must hold out rows that the same member is not trained on")
        return cls(train, index, held_out=True)

    def take(self, blocks: Tensor) -> "MemberRows":
        """Some of the blocks, at an index (g,)."""
        validation = None if self.validation is None else self.validation[blocks]
        return MemberRows(self.train[blocks], validation, self.held_out)

    def order(self, seed: int, blocks: Tensor) -> Tensor:
        """The rows of all blocks in random orders, shape (G, n); ``blocks`` are their numbers, (G,).

        An order depends on the number of its block, and not on which others there are. It is that of the
        first block, moved along the rows: a permutation takes longer than all else for a large table.
        """
        n = self.train.shape[1]
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed % 2**63))
        shifts = (blocks * _GOLDEN % 1 * n).long()
        return torch.stack(
            [rows[(order + shift) % n] for rows, shift in zip(self.train, shifts.tolist(), strict=True)]
        )


def _as_many(rows: Sequence[Tensor]) -> Tensor:
    # The same number of each, (E, n).
    n = min(map(len, rows))
    return torch.stack([some[torch.arange(n) * len(some) // n] for some in rows])
