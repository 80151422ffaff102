"""Layers of members for predictions, a tile of rows at a time."""

from collections.abc import Callable

import torch
from torch import Tensor

_ROWS = 128


def in_tiles(network: Callable[[Tensor], Tensor], values: Tensor, n_blocks: int, n_members: int) -> Tensor:
    """What a network of members gives, to the bit the same for a row whatever the other rows are.

    The last bits of a product depend on the shapes of its factors. So all products have one shape here.

    Args:
        network: Rows in n blocks, (n * b, C) -> rows of E members in blocks, (E * b, H).
        values: Its rows, in n blocks, (n * B, C).
        n_blocks: n.
        n_members: E.

    Returns:
        Shape (E * B, H).
    """
    blocks = values.reshape(n_blocks, len(values) // n_blocks, values.shape[1])
    B = blocks.shape[1]
    parts = []
    for start in range(0, max(1, B), _ROWS):
        tile = blocks[:, start : start + _ROWS]
        n_missing = _ROWS - tile.shape[1]
        if n_missing:
            tile = torch.cat([tile, tile.new_zeros(n_blocks, n_missing, tile.shape[2])], dim=1)
        parts.append(network(tile.reshape(n_blocks * _ROWS, -1)).view(n_members, _ROWS, -1))
    return torch.cat(parts, dim=1)[:, :B].flatten(0, 1)
