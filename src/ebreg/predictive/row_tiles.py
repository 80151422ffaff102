"""Tiles: some rows at a time, as many in each."""

import torch
from torch import Tensor


def row_tiles(n_rows: int, size: int) -> Tensor:
    """Numbers of rows, (n, size).

    All tiles have one size, filled up by the last row: the order of a sum, and with it the last bits of a
    row, would otherwise depend on how many others there are.
    """
    size = max(1, size)
    return torch.arange(size * max(1, -(-n_rows // size))).clamp(max=max(0, n_rows - 1)).view(-1, size)
