"""Sharpness: how much narrower a proposal is on the rows that it was trained on than on others."""

from typing import Any

import torch
from torch import Tensor

from ebreg.models import Model
from ebreg.training.batches import TensorData
from ebreg.training.member_rows import HeldOut, MemberRows

_FACTORS = tuple(2 ** (-k / 8) for k in range(17))
_MOST_ROWS, _ROWS_AT_ONCE = 2048, 256  # of a member


@torch.no_grad()
def sharpness(model: Model, data: TensorData, validation: TensorData | HeldOut | None) -> Tensor:
    """A factor on the deviations of q for each member: 1 where q fits other rows as well as its own.

    It is the factor with which the rows of the training are most likely, beside that of the validation rows.

    Args:
        model: In evaluation mode; a proposal that is not a mixture has the factor 1.
        data: Training data.
        validation: Validation data, or rows.

    Returns:
        Shape (E,), from 1/4 to 1.
    """
    rows = MemberRows.of(model, data, validation)
    own = _log_likelihoods(model, data, rows.train)
    if own is None:
        return torch.ones(model.n_members)
    factors = torch.tensor(_FACTORS)
    trained = factors[own.argmax(dim=0)]
    if rows.validation is None:
        return trained
    others = _log_likelihoods(model, data if rows.held_out else validation, rows.validation)
    assert others is not None
    return (trained / factors[others.mean(dim=1).argmax()]).clamp(1 / 4, 1)


def _log_likelihoods(model: Model, data: Any, rows: Tensor) -> Tensor | None:
    # Mean over the rows of each block, (G, n), for each factor and member: (F, E).
    index = rows[:, :: -(-rows.shape[1] // _MOST_ROWS)]
    sums: Any = 0
    for some in index.split(_ROWS_AT_ONCE, dim=1):
        x, y = (values.to(model.reference.device) for values in data.__getitems__(some.flatten()))
        h, y = model.features(x), model.standardize(y)
        y = y.repeat(len(h) // len(y), 1)  # members that share a backbone share the rows
        q: Any = model.q(h)
        if not hasattr(q, "with_components"):
            return None
        narrower = (q.with_components(q.logits, q.means, factor * q.scales) for factor in _FACTORS)
        sums += torch.stack([each.log_prob(y).view(model.n_members, -1).sum(dim=1) for each in narrower])
    return sums.cpu() / index.shape[1]
