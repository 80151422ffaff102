"""Sorting many short rows."""

from torch import Tensor


def sorted_rows(values: Tensor) -> Tensor:
    """Rows (B, N) without a graph, each in ascending order; the values are overwritten.

    On a CPU numpy sorts short rows some ten times as fast as torch.
    """
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    values.numpy().sort(axis=1)
    return values
