"""Small groups of neighbouring rows."""

import torch
from torch import Tensor

_N_NEIGHBOURS = 16


def nearest_rows(values: Tensor) -> Tensor:
    """The numbers of the rows nearest to each row, itself included: (n, C) -> (n, k), the nearest first."""
    # Squared distances but for a constant of each row; single precision orders neighbours well enough.
    x = values.float()
    distances = torch.addmm(x.square().sum(dim=1), x, x.T, alpha=-2)
    return distances.topk(min(len(x), _N_NEIGHBOURS), largest=False, sorted=True).indices


def taken_rows(nearest: Tensor, rows: Tensor) -> Tensor:
    """The nearest rows of some rows among those rows, by their new numbers; -1 for rows left out."""
    number = nearest.new_full((len(nearest),), -1)
    number[rows] = torch.arange(len(rows))
    return number[nearest[rows]]


def groups_of_neighbours(nearest: Tensor, order: Tensor, size: int) -> Tensor:
    """The number of each row's group: disjoint groups of at least so many rows.

    Greedy: each row with the nearest rows that have no group yet. A row whose neighbours all have one joins
    that of the nearest.

    Args:
        nearest: Numbers of neighbours of each row, the nearest first, (n, k); -1 for none.
        order: In which order the rows choose, (n,).
        size: Rows of a group; with fewer neighbours than that groups are smaller.

    Returns:
        Shape (n,), numbers from 0.
    """
    neighbours = nearest.tolist()
    group_of_row = [-1] * len(neighbours)
    n_groups = 0
    for row in order.tolist():
        if group_of_row[row] >= 0:
            continue
        others = [other for other in neighbours[row] if other >= 0 and other != row]
        free = [other for other in others if group_of_row[other] < 0]
        taken = [other for other in others if group_of_row[other] >= 0]
        if len(free) < size - 1 and taken:
            group_of_row[row] = group_of_row[taken[0]]
            continue
        for member in (row, *free[: size - 1]):
            group_of_row[member] = n_groups
        n_groups += 1
    return torch.tensor(group_of_row)
