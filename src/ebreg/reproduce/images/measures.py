"""How well a model does on images: on the paper's grid, by its own answers, and by what no tie flatters."""

import copy
from typing import Any

import torch
from torch import Tensor

from ebreg import metrics
from ebreg.batches import Data
from ebreg.datasets.images import ImageTask
from ebreg.embedding import Embedding
from ebreg.metrics.rows import marginal_quantiles
from ebreg.models import EnergyModel, Model

_ROWS = 128  # evaluated at once
_SHARE_OF_TIES = 0.5
_LEVELS = 100


@torch.no_grad()
def measure(task: ImageTask, data: Data, model: Model, resolution: Tensor | None = None) -> dict[str, float]:
    """Judge a model by test images; the mean over them of each measure.

    Args:
        task: Whose grid is used.
        data: The test images, or their features where the model takes those.
        model: The model.
        resolution: To which the targets were rounded, shape (D,); None: they were not.

    Returns:
        ``on_grid``, the NLL normalised on the paper's grid; ``own``, that of the predictive distribution, and
        ``own_error``, the error of its log Z; ``crps``, the CRPS, averaged over the targets;
        ``mae``, the error of the median; and ``cell_nll``, the NLL of the cell of rounding.
    """
    model = copy.deepcopy(model).eval()
    embedding = Embedding(model, _ROWS)
    features = embedding.of(data)
    parts: list[dict[str, Tensor]] = []
    with embedding.as_inputs(model):
        exact = copy.deepcopy(model).exact()
        for index in torch.arange(len(features)).split(_ROWS):
            h, y = features.__getitems__(index)
            answers = _own(exact, h, y, resolution)
            parts.append({"on_grid": _on_grid(task, model, h, y, answers["own"]), **answers})
    return {name: torch.cat([part[name] for part in parts]).double().mean().item() for name in parts[0]}


def resolution_of(y: Tensor) -> Tensor | None:
    """To what targets, shape (n, D), were rounded: the typical distance of neighbouring values, shape (D,).

    None where at least half of the values of some target are different: they were not rounded.
    """
    distinct = [column.unique() for column in y.double().T]
    if any(len(values) < 2 or len(values) > _SHARE_OF_TIES * len(y) for values in distinct):
        return None
    return torch.stack([values.diff().median() for values in distinct])


def _own(model: Any, h: Tensor, y: Tensor, resolution: Tensor | None) -> dict[str, Any]:
    p = model.predictive(h)
    median = marginal_quantiles(p, y, torch.tensor(0.5, dtype=torch.float64))
    answers: dict[str, Any] = {
        "own": metrics.nll(p, y),
        "crps": metrics.crps(p, y) if y.shape[1] == 1 else _marginal_crps(p, y),
        "mae": (median.reshape(y.shape) - y).abs().mean(dim=1),
    }
    if isinstance(model, EnergyModel):
        answers["own_error"] = p.log_partition_error
    if resolution is not None:
        answers["cell_nll"] = metrics.cell_nll(p, y, resolution)
    return answers


def _marginal_crps(p: Any, y: Tensor) -> Tensor:
    # Twice the pinball loss, averaged over levels. An energy score would need draws, and where a proposal is
    # poor many of them.
    levels = (torch.arange(_LEVELS, dtype=torch.float64) + 0.5) / _LEVELS
    return 2 * torch.as_tensor(metrics.pinball(p, y, levels)).reshape(len(y), _LEVELS, -1).mean(dim=(1, 2))


def _on_grid(task: ImageTask, model: Any, h: Tensor, y: Tensor, own: Tensor) -> Tensor:
    if not isinstance(model, EnergyModel):
        return own  # a mixture is normalised as it is, in the paper too
    D = y.shape[1]
    axis = torch.linspace(task.low, task.high, task.n_grid, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * D).reshape(-1, D)
    f_grid = model.f_grid(model.features(h), model.standardize(grid)).double()
    f_y = model.f(model.features(h), model.standardize(y)).double()
    cell = (task.high - task.low) / (task.n_grid - 1)
    return metrics.nll_on_grid(f_y, f_grid, cell**D)
