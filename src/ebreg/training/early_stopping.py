"""Selection: which epoch's weights are kept, judged by the validation NLL of every row."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Selection:
    """What is known of the epochs validated so far.

    Without an anchor the epoch with the lowest mean is kept. A mean over few rows is noisy, though, and the
    lowest of many noisy ones may be far off in either direction. With an anchor that epoch is kept, unless
    another is better by more than the standard error of the mean difference, row by row.

    Attributes:
        anchor: Number of the epoch to prefer, counted from 0; None: none.
        kept: Number of the epoch that is kept.
        kept_rows: Its NLL of each row, shape (n,).
        lowest: Number of the epoch with the lowest mean, for early stopping.
        lowest_nll: That mean.
        last: Number of the epoch considered last.
    """

    anchor: int | None = None
    kept: int | None = None
    kept_rows: Tensor | None = None
    lowest: int | None = None
    lowest_nll: float = float("inf")
    last: int = -1

    def consider(self, epoch: int, rows: Tensor, weights: Tensor) -> bool:
        """Take in an epoch; whether it is the one to keep now.

        Args:
            epoch: Its number.
            rows: NLL of each row, shape (n,).
            weights: How much each row counts, shape (n,).
        """
        nll = ((weights * rows).sum() / weights.sum()).item()
        if nll < self.lowest_nll:
            self.lowest, self.lowest_nll = epoch, nll
        preferred = self.kept_rows is None or self._is_preferred(epoch, rows, weights)
        self.last = epoch
        if preferred:
            self.kept, self.kept_rows = epoch, rows
        return preferred

    def _is_preferred(self, epoch: int, rows: Tensor, weights: Tensor) -> bool:
        assert self.kept_rows is not None
        gain, error = _mean_and_error(self.kept_rows - rows, weights)
        if self.anchor is None or epoch < self.anchor:
            return gain > 0
        if self.last < self.anchor:  # this is the first that reaches it
            return gain > -error
        return gain > error


def _mean_and_error(values: Tensor, weights: Tensor) -> tuple[float, float]:
    share = weights / weights.sum()
    mean = (share * values).sum()
    error = (share.square() * (values - mean).square()).sum().sqrt()
    # An infinite NLL makes the difference undefined: then any finite one is better.
    return torch.nan_to_num(mean, nan=0.0).item(), torch.nan_to_num(error, nan=0.0).item()
