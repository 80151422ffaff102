"""Metrics of a model on the 1-D data sets: on the paper's grid, and by the predictive distribution."""

import copy
from typing import Any

import torch
from torch import Tensor

from ebreg import metrics
from ebreg.datasets import ToyTask
from ebreg.models import EnergyModel, Model

_ROWS = 256  # evaluated at once
_FLOOR = 1e-30  # which the authors add to the true probabilities


@torch.no_grad()
def evaluate(task: ToyTask, model: Model) -> dict[str, float]:
    """Metrics of a trained model: KL divergence on the first set, NLL of the second's test points.

    Returns:
        ``on_grid``, the paper's, with the density normalised on its grid; ``predictive``, by the library's
        predictive distribution, without a grid.
    """
    model = copy.deepcopy(model).to_float64().eval()
    if task.x_test is None or task.y_test is None:
        parts = [_kl(task, model, x) for x in task.x_grid().split(_ROWS)]
    else:
        rows = zip(task.x_test.split(_ROWS), task.y_test.split(_ROWS), strict=True)
        parts = [_nll(task, model, x, y) for x, y in rows]
    on_grid, predictive = (torch.cat(column).mean().item() for column in zip(*parts, strict=True))
    return {"on_grid": on_grid, "predictive": predictive}


def _kl(task: ToyTask, model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = task.y_grid()
    log_p = task.log_density(x.T, y)
    on_grid = metrics.kl_on_grid(log_p, _log_f(model, x, y), floor=_FLOOR)
    log_model = model.predictive(x).log_prob(y[:, None].expand(-1, len(x), -1))
    log_ratio = torch.where(log_p == -torch.inf, 0.0, log_p - log_model)
    return on_grid, (log_p.exp() * log_ratio).sum(dim=0) * task.y_spacing


def _nll(task: ToyTask, model: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    on_grid = metrics.nll_on_grid(_log_f_at(model, x, y), _log_f(model, x, task.y_grid()), task.y_spacing)
    return on_grid, -model.log_prob(x, y)


def _log_f(model: Any, x: Tensor, y: Tensor) -> Tensor:
    # Unnormalised, (G, B), at targets (G, 1) that all rows share.
    if model.n_members > 1:
        return model.predictive(x).log_prob(y[:, None].expand(-1, len(x), -1))
    h, y = model.features(x), model.standardize(y)
    if isinstance(model, EnergyModel):
        return model.f_grid(h, y).double()
    return model.q(h).log_prob(y[:, None].expand(-1, len(x), -1)).double()


def _log_f_at(model: Any, x: Tensor, y: Tensor) -> Tensor:
    # The same at one target for each row, (B, 1) -> (B,).
    if model.n_members > 1:
        return model.log_prob(x, y)
    h, y = model.features(x), model.standardize(y)
    return (model.f(h, y) if isinstance(model, EnergyModel) else model.q(h).log_prob(y)).double()
