"""Early stopping: which epoch's weights are kept, and when training stops.

Both are decided by the negative log-likelihood (NLL) of the validation rows.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Selection:
    """The best epoch among those validated so far.

    Without an anchor the epoch with the lowest mean NLL is kept. But the mean over few rows is noisy, and so
    is the place of its minimum. With an anchor that epoch is kept, unless another one is better by more than
    the standard error of the mean difference, row by row. Training stops when the lowest mean NLL is more
    than ``patience`` epochs old, with or without an anchor.

    Attributes:
        anchor: Number of the preferred epoch, counted from 0; None for no preference.
        best_epoch: Number of the epoch whose weights are kept; None before the first validation.
        best_rows: NLL of each validation row in that epoch, shape (n,).
        lowest_epoch: Number of the epoch with the lowest mean NLL.
        lowest_nll: That mean.
        last_epoch: Number of the epoch validated last; -1 before the first.
    """

    anchor: int | None = None
    best_epoch: int | None = None
    best_rows: Tensor | None = None
    lowest_epoch: int | None = None
    lowest_nll: float = float("inf")
    last_epoch: int = -1

    def consider(self, epoch: int, rows: Tensor, weights: Tensor) -> bool:
        """Add a validated epoch; whether it is now the best one.

        Args:
            epoch: Its number.
            rows: NLL of each validation row, shape (n,).
            weights: Weight of each row, shape (n,).
        """
        nll = ((weights * rows).sum() / weights.sum()).item()
        if self.lowest_epoch is None or nll < self.lowest_nll:
            # A first NLL that is not finite counts, for patience, and any other one is lower.
            self.lowest_epoch, self.lowest_nll = epoch, nll if math.isfinite(nll) else math.inf
        is_better = self.best_rows is None or self._is_better(epoch, rows, weights)
        self.last_epoch = epoch
        if is_better:
            self.best_epoch, self.best_rows = epoch, rows
        return is_better

    def should_stop(self, n_epochs: int, patience: int | None, growth: float = 0.0) -> bool:
        """Whether more than ``patience`` epochs have passed since the lowest mean NLL.

        Args:
            n_epochs: Epochs finished.
            patience: None never stops.
            growth: Patience is at least this many times the number of the epoch with the lowest mean NLL.
        """
        if patience is None or self.lowest_epoch is None:
            return False
        return n_epochs - self.lowest_epoch > max(patience, growth * self.lowest_epoch)

    def _is_better(self, epoch: int, rows: Tensor, weights: Tensor) -> bool:
        assert self.best_rows is not None
        gain, error = mean_and_error(difference(self.best_rows, rows), weights)
        if self.anchor is None or epoch < self.anchor:
            return gain > 0
        if self.last_epoch < self.anchor:  # the first validated epoch from the anchor on
            return gain > -error
        return gain > error


def difference(before: Tensor, after: Tensor) -> Tensor:
    """By how much NLLs have fallen, of any shape; 0 for one that is infinite before and after."""
    # NaN is as bad as infinity.
    before, after = (torch.nan_to_num(rows, nan=torch.inf, posinf=torch.inf) for rows in (before, after))
    return torch.where(torch.isinf(before) & torch.isinf(after), 0.0, before - after)


def mean_and_error(values: Tensor, weights: Tensor) -> tuple[float, float]:
    """Weighted mean of values and its standard error; both have shape (n,)."""
    share = weights / weights.sum()
    mean = (share * values).sum()
    error = (share.square() * (values - mean).square()).sum().sqrt()
    # A row that became finite, or infinite, decides alone.
    return torch.nan_to_num(mean, nan=0.0).item(), torch.nan_to_num(error, nan=0.0).item()
