"""Sharpness: how much narrower a proposal is on the rows that it was trained on than on others."""

from typing import Any

import torch
from torch import Tensor

from ebreg.corrections import narrowed
from ebreg.models import Model
from ebreg.training.batches import Data, weights_of

_FACTORS = tuple(2 ** (-k / 8) for k in range(17))
_MOST_ROWS, _ROWS_AT_ONCE = 512, 256  # of a member


def sharpness(own: Tensor, others: Tensor) -> Tensor:
    """A factor on the deviations of q for each member: 1 where q fits other rows as well as its own.

    Args:
        own: :func:`log_likelihoods` of the rows that each member was trained on.
        others: Those of validation rows.

    Returns:
        Shape (E,), from 1/4 to 1: the factor with which a member's own rows are most likely, divided by that
        of the validation rows of all members.
    """
    factors = torch.tensor(_FACTORS)
    return (factors[own.argmax(dim=0)] / factors[others.mean(dim=1).argmax()]).clamp(1 / 4, 1)


@torch.no_grad()
def log_likelihoods(model: Model, data: Data, rows: Tensor) -> Tensor:
    """Mean log-likelihood of rows by narrower and narrower proposals, for each member.

    Args:
        model: In evaluation mode. A proposal without ``with_components`` stays as wide as it is.
        data: Data that hold the rows.
        rows: Row numbers for each block, shape (G, n); if there are many, some of them are used.

    Returns:
        Shape (F, E), for factors from 1 to 1/4.
    """
    order = torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(0))
    index = rows[:, order[:_MOST_ROWS]]
    all_weights = weights_of(data).double()
    sums = torch.zeros(len(_FACTORS), model.n_members, dtype=torch.float64)
    for some in index.split(_ROWS_AT_ONCE, dim=1):
        x, y = (values.to(model.reference.device) for values in data.__getitems__(some.flatten()))
        h, y = model.features(x), model.standardize(y)
        n_repeats = len(h) // len(y)  # members that share a backbone share the rows
        y, weights = y.repeat(n_repeats, 1), all_weights[some.flatten()].repeat(n_repeats)
        q: Any = model.q(h)
        for factor, row in zip(_FACTORS, sums, strict=True):
            log_q = narrowed(q, torch.full((len(h),), factor)).log_prob(y).cpu().double()
            row += (weights * log_q).view(model.n_members, -1).sum(dim=1)
    return sums / all_weights[index].sum(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
