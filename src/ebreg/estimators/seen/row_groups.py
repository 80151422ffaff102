"""Small groups of neighbouring rows."""

import torch
from torch import Tensor

# Neighbours of a row that are looked at first.
_N_NEIGHBOURS = 16


def groups_of_neighbours(values: Tensor, size: int) -> Tensor:
    """The number of each row's group: disjoint groups of so many rows, the last one of up to twice as many.

    Greedy: rows far from the middle first, each with the nearest rows that have no group yet.

    Args:
        values: Shape (n, C).
        size: Rows of a group; with fewer rows than that there is one group.

    Returns:
        Shape (n,), numbers from 0.
    """
    n = len(values)
    # Squared distances but for a constant of each row, in single precision, which orders neighbours well enough.
    x = values.float()
    distances = torch.addmm(x.square().sum(dim=1), x, x.T, alpha=-2)
    nearest = distances.topk(min(n, _N_NEIGHBOURS), largest=False, sorted=True).indices.tolist()
    order = values.norm(dim=1).argsort(descending=True, stable=True).tolist()
    group_of_row = [-1] * n
    n_groups, n_free = 0, n
    for row in order:
        if group_of_row[row] >= 0:
            continue
        if n_groups and n_free < size:
            group_of_row[row] = n_groups - 1
            continue
        group_of_row[row] = n_groups
        mates = _free(nearest[row], group_of_row, size - 1)
        if len(mates) < size - 1 and n_free > size:
            mates = _free(distances[row].argsort().tolist(), group_of_row, size - 1)
        elif len(mates) < size - 1:
            mates = _free(order, group_of_row, size - 1)
        for mate in mates:
            group_of_row[mate] = n_groups
        n_groups, n_free = n_groups + 1, n_free - 1 - len(mates)
    return torch.tensor(group_of_row)


def _free(rows: list[int], group_of_row: list[int], most: int) -> list[int]:
    # The first rows without a group.
    found: list[int] = []
    for row in rows:
        if len(found) == most:
            break
        if group_of_row[row] < 0:
            found.append(row)
    return found
