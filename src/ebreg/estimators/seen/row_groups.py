"""Small groups of neighbouring rows."""

import torch
from torch import Tensor

# Neighbours of a row that are looked at first.
_N_NEIGHBOURS = 16


def groups_of_neighbours(values: Tensor, size: int) -> Tensor:
    """The number of each row's group: disjoint groups of at least so many rows.

    Greedy: rows far from the middle first, each with the nearest rows that have no group yet. A row whose
    neighbours all have one joins that of the nearest.

    Args:
        values: Shape (n, C).
        size: Rows of a group; with fewer rows than that there is one group.

    Returns:
        Shape (n,), numbers from 0.
    """
    n = len(values)
    # Squared distances but for a constant of each row; single precision orders neighbours well enough.
    x = values.float()
    distances = torch.addmm(x.square().sum(dim=1), x, x.T, alpha=-2)
    nearest = distances.topk(min(n, _N_NEIGHBOURS), largest=False, sorted=True).indices.tolist()
    group_of_row = [-1] * n
    n_groups = 0
    for row in values.norm(dim=1).argsort(descending=True, stable=True).tolist():
        if group_of_row[row] >= 0:
            continue
        others = [other for other in nearest[row] if other != row]
        free = [other for other in others if group_of_row[other] < 0]
        taken = [other for other in others if group_of_row[other] >= 0]
        if len(free) < size - 1 and taken:
            group_of_row[row] = group_of_row[taken[0]]
            continue
        for member in (row, *free[: size - 1]):
            group_of_row[member] = n_groups
        n_groups += 1
    return torch.tensor(group_of_row)
