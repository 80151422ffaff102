"""The columns in which inputs are compared with those of the training."""

import torch
from torch import Tensor

from ebreg.models import Model, evaluation_mode, members
from ebreg.training import Deadline

# Examples whose features are computed at once.
_CHUNK = 256


@torch.no_grad()
def compared_columns(model: Model, x: Tensor, deadline: Deadline | None = None) -> Tensor:
    """The inputs themselves for a table, and the features of a backbone of the user's own.

    Features of members lie side by side.

    Args:
        model: Trained.
        x: Inputs, (n, ...).
        deadline: When it has passed, the features of the rows so far are returned.

    Returns:
        Shape (n, C), or fewer rows; float64, on the CPU.
    """
    if model.x_units is not None:
        return x.double().cpu()
    parts = []
    with evaluation_mode(model):
        for rows in x.split(_CHUNK):
            parts.append(_features(model, rows))
            if deadline is not None and deadline.has_passed:
                break
    return torch.cat(parts)


def _features(model: Model, x: Tensor) -> Tensor:
    x, n = x.to(model.reference.device), len(x)
    if model.shares_backbone or model.n_members == 1:
        return model.finite_features(x)[:n].double().cpu()
    h = model.finite_features(members.repeated(x, model.n_members))
    return h.unflatten(0, (model.n_members, n)).transpose(0, 1).flatten(1).double().cpu()
