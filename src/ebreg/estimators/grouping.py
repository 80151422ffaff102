"""Grouping: which rows belong together, and splits of rows that respect it."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.estimators import row_labels

# Two parts of the rows: numbers of those to train on, and of the others; both sorted.
Split = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Grouping:
    """Rows that belong together: by a label, by their time, or every row by itself.

    Attributes:
        n_rows: n.
        labels: Number of the group of each row, (n,), by the order in which the groups appear; or None.
        time: Rank of the time of each row, (n,), the same for equal times; or None.
    """

    n_rows: int
    labels: Tensor | None = None
    time: Tensor | None = None

    @classmethod
    def of(cls, groups: Any, time: Any, n_rows: int) -> "Grouping":
        """The grouping of ``n_rows`` rows, from what the user gave.

        Args:
            groups: A label for each row, (n,), of any hashable kind; or None.
            time: A number or a date for each row, (n,); or None.
            n_rows: n.
        """
        if groups is not None and time is not None:
            raise ValueError(
                "groups and time cannot be combined: give groups if new groups will be predicted, time if "
                "later rows will be"
            )
        labels = None if groups is None else row_labels.codes(groups, n_rows)
        return cls(n_rows, labels, None if time is None else row_labels.ranks(time, n_rows))

    def __bool__(self) -> bool:
        """Whether rows belong together."""
        return self.labels is not None or self.time is not None

    def take(self, rows: Tensor) -> "Grouping":
        """The grouping of some rows, at an index or a mask."""
        labels = None if self.labels is None else self.labels[rows]
        time = None if self.time is None else self.time[rows]
        n_rows = int(rows.sum()) if rows.dtype == torch.bool else len(rows)
        return Grouping(n_rows, labels, time)

    def split(self, n_validation: int, seed: int) -> Split:
        """Rows to train on and about ``n_validation`` others: at random, whole groups, or the latest."""
        return self.splits(n_validation, 1, seed)[0]

    def splits(self, n_validation: int, n_splits: int, seed: int) -> list[Split]:
        """Several such splits, whose validation rows are as different as the number of groups allows.

        The latest rows are the same in all splits.
        """
        checks.at_least("n_validation", n_validation, 1)
        if n_validation >= self.n_rows:
            raise ValueError(f"n_validation must be below the number of rows, {self.n_rows}")
        if self.time is not None:
            return [_latest(self.time, n_validation)] * n_splits
        if self.labels is None:
            return _random_rows(self.n_rows, n_validation, n_splits, seed)
        return _whole_groups(self.labels, n_validation, n_splits, seed)

    def folds(self, n_folds: int, seed: int) -> list[Split]:
        """Rows to train on and rows to test on, of each fold.

        Rows at random, or whole groups, in folds of about equal size: each row is tested once. By time the
        rows are cut into ``n_folds + 1`` consecutive blocks, and each but the first is tested by those before
        it.
        """
        checks.at_least("n_folds", n_folds, 2)
        if self.time is not None:
            return _forward(self.time, n_folds)
        if self.labels is None:
            if self.n_rows < n_folds:
                raise ValueError(f"{self.n_rows} rows are too few for {n_folds} folds")
            fold_of_row = torch.empty(self.n_rows, dtype=torch.long)
            fold_of_row[_order(self.n_rows, seed)] = torch.arange(self.n_rows) % n_folds
        else:
            fold_of_row = _folds_of_groups(self.labels, n_folds, seed)
        return [_by_mask(fold_of_row == fold) for fold in range(n_folds)]


def _by_mask(held_out: Tensor) -> Split:
    return (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]


def _order(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def _random_rows(n_rows: int, n_validation: int, n_splits: int, seed: int) -> list[Split]:
    # Consecutive parts of one random order, from its start again where it ends.
    held_out = torch.zeros(n_splits, n_rows, dtype=torch.bool)
    index = torch.arange(n_splits * n_validation).view(n_splits, -1) % n_rows
    held_out.scatter_(1, _order(n_rows, seed)[index], True)
    return [_by_mask(mask) for mask in held_out]


def _whole_groups(labels: Tensor, n_validation: int, n_splits: int, seed: int) -> list[Split]:
    _, labels, sizes = labels.unique(return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise ValueError(
            "groups must have at least 2 different labels, one to train on and one to hold out; all rows "
            "have the same"
        )
    order = _order(len(sizes), seed).tolist()
    n_uses = dict.fromkeys(order, 0)
    splits = []
    for _ in range(n_splits):
        # The sort is stable: groups that were held out equally often stay in their random order.
        chosen = _choose(sorted(order, key=n_uses.__getitem__), sizes.tolist(), n_validation)
        for group in chosen:
            n_uses[group] += 1
        is_chosen = torch.zeros(len(sizes), dtype=torch.bool)
        is_chosen[chosen] = True
        splits.append(_by_mask(is_chosen[labels]))
    return splits


def _choose(order: list[int], sizes: list[int], n_validation: int) -> list[int]:
    # Groups in this order, without those that would lead further away from n_validation rows.
    chosen: list[int] = []
    missing = n_validation
    for group in order:
        if missing <= 0 or len(chosen) == len(order) - 1:
            break
        if abs(missing - sizes[group]) < missing:
            chosen.append(group)
            missing -= sizes[group]
    if chosen:
        return chosen
    # All are large; the largest are needed more in the training.
    return [next(group for group in order if sizes[group] <= 2 * min(sizes))]


def _latest(time: Tensor, n_validation: int) -> Split:
    times, counts = time.unique(return_counts=True)
    if len(times) < 2:
        raise ValueError(
            "time must have at least 2 different values, to hold out the later one; all rows have the same"
        )
    # Number of rows from each time on, without the first time, which is always trained on.
    n_later = counts.flip(0).cumsum(0).flip(0)[1:]
    return _by_mask(time >= times[1:][(n_later - n_validation).abs().argmin()])


def _folds_of_groups(labels: Tensor, n_folds: int, seed: int) -> Tensor:
    # The number of each row's fold: large groups first, each to the fold with the fewest rows.
    _, labels, sizes = labels.unique(return_inverse=True, return_counts=True)
    if len(sizes) < n_folds:
        raise ValueError(
            f"groups must have at least as many different labels as there are folds, got {len(sizes)} for "
            f"{n_folds} folds"
        )
    order = _order(len(sizes), seed)
    order = order[sizes[order].argsort(descending=True, stable=True)]
    n_rows = [0] * n_folds
    fold_of_group = torch.empty(len(sizes), dtype=torch.long)
    for group in order.tolist():
        fold = n_rows.index(min(n_rows))
        fold_of_group[group] = fold
        n_rows[fold] += int(sizes[group])
    return fold_of_group[labels]


def _forward(time: Tensor, n_folds: int) -> list[Split]:
    times, counts = time.unique(return_counts=True)
    n_blocks = n_folds + 1
    if len(times) < n_blocks:
        raise ValueError(
            f"time must have at least {n_blocks} different values for {n_folds} folds, each later than the "
            f"rows it is trained on; got {len(times)}"
        )
    n_before = counts.cumsum(0) - counts
    starts = [0]
    for block in range(1, n_blocks):
        nearest = int((n_before - block * len(time) / n_blocks).abs().argmin())
        # Each block has a time, and leaves one for each that follows.
        starts.append(min(max(nearest, starts[-1] + 1), len(times) - n_blocks + block))
    ends = [*times[starts[1:]].tolist(), int(times[-1]) + 1]
    return [
        ((time < start).nonzero()[:, 0], ((time >= start) & (time < end)).nonzero()[:, 0])
        for start, end in pairwise(ends)
    ]
