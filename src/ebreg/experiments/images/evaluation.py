"""Metrics of a model on images: the paper's, and those of the predictive distribution."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ebreg import importance, metrics, objectives, sampling
from ebreg.datasets.images import ImageTask
from ebreg.metrics.rows import marginal_quantiles
from ebreg.models import EnergyModel, Model
from ebreg.training.batches import Data
from ebreg.training.frozen_features import FrozenFeatures
from ebreg.units import Tail

_ROWS = 128  # evaluated at once
_SHARE_OF_TIES = 0.5
_ALIKE, _COMMON = 0.01, 0.1  # relative difference of equal distances; share of a common distance
_LEVELS = 100
_DRAWS = 1024  # of the proposal, for each image
_GRID_POINTS = 1024  # evaluated at once


@torch.no_grad()
def evaluate(task: ImageTask, data: Data, model: Model, y_train: Tensor) -> dict[str, float]:
    """Metrics of a model, each the mean over the test images, or over their features if it takes those.

    The targets of the training images (n, D) show the rounding, and where an energy without a tail gets one.

    Returns:
        ``on_grid``, the NLL normalised on the paper's grid; ``predictive``, that of the predictive
        distribution, and ``predictive_error``, the error of its log Z; ``sampled``, with log Z from 1,024
        independent draws of the proposal, and ``sampled_error``, its standard error; ``log_ratio``, the
        absolute value of log p - log q at the targets; ``crps``, averaged over the targets; ``mae``, the
        error of the median; ``rounded_nll``, the NLL of the rounding interval.
    """
    model = copy.deepcopy(model).eval()
    resolution = resolution_of(y_train) if task.spacing is None else torch.tensor([task.spacing])
    parts: list[dict[str, Tensor]] = []
    with _features_as_inputs(model, data) as features:
        in_use = limit_energy(copy.deepcopy(model), y_train).to_float64()
        for index in torch.arange(len(features)).split(_ROWS):
            h, y = features.__getitems__(index.tolist())
            p = in_use.predictive(h)
            parts.append({"on_grid": _on_grid(task, model, p, h, y), **_predictive(in_use, p, y, resolution)})
    return {name: torch.cat([part[name] for part in parts]).double().mean().item() for name in parts[0]}


@contextmanager
def _features_as_inputs(model: Model, data: Data) -> Iterator[Data]:
    # A backbone that all members share is evaluated once; layers of their own take the data as they are.
    if model.n_members > 1 and not model.shares_backbone:
        yield data
        return
    frozen = FrozenFeatures(model, _ROWS)
    features = frozen.of(data)
    with frozen.as_inputs(model):
        yield features


def limit_energy(model: Model, y_train: Tensor) -> Model:
    """Give an energy without a tail one beyond the training targets (n, D), in place."""
    if isinstance(model, EnergyModel) and model.tail is None:
        model.tail = Tail.of(model.y_units(y_train))
    return model


def resolution_of(y: Tensor) -> Tensor | None:
    """The step to which targets, shape (n, D), were rounded, shape (D,).

    That is the smallest distance of neighbouring values that is common among them. None where more than half
    of the values of some target are different: they were not rounded.
    """
    steps = [_step(column.unique(), len(y)) for column in y.double().T]
    return None if None in steps else torch.tensor(steps, dtype=torch.float64)


def _step(values: Tensor, n: int) -> float | None:
    gaps = values.diff().sort().values
    if not len(gaps) or len(values) > _SHARE_OF_TIES * n:
        return None
    ends = [torch.searchsorted(gaps, gaps * (1 + sign * _ALIKE), right=sign > 0) for sign in (-1, 1)]
    common = gaps[(ends[1] - ends[0]) >= _COMMON * len(gaps)]
    return common[0].item() if len(common) else None


def _predictive(model: Model, p: Any, y: Tensor, resolution: Tensor | None) -> dict[str, Any]:
    median = marginal_quantiles(p, y, torch.tensor(0.5, dtype=torch.float64))
    found: dict[str, Any] = {
        "predictive": metrics.nll(p, y),
        "crps": metrics.crps(p, y) if y.shape[1] == 1 else _marginal_crps(p, y),
        "mae": (median.reshape(y.shape) - y).abs().mean(dim=1),
    }
    if isinstance(model, EnergyModel):
        found |= {"predictive_error": p.log_partition_error, **_beside_proposal(p, y, found["predictive"])}
    if resolution is not None:
        found["rounded_nll"] = metrics.rounded_nll(p, y, resolution)
    return found


def _beside_proposal(p: Any, y: Tensor, nll: Tensor) -> dict[str, Tensor]:
    q = p.proposal
    u = sampling.independent(_DRAWS, len(y), y.shape[1], torch.Generator().manual_seed(0))
    draws = q.from_uniform(u.to(y))
    log_p, log_q = p.log_prob(draws).double(), q.log_prob(draws).double()
    # Log p is f minus log Z: what draws of q make of the integral of p is what they make of Z, over Z.
    return {
        "sampled": nll + objectives.log_partition(log_p, log_q),
        "sampled_error": importance.log_partition_error(log_p, log_q),
        "log_ratio": (nll + q.log_prob(y).double()).abs(),
    }


def _marginal_crps(p: Any, y: Tensor) -> Tensor:
    # Twice the pinball loss, averaged over levels. An energy score would need many draws of a poor proposal.
    levels = (torch.arange(_LEVELS, dtype=torch.float64) + 0.5) / _LEVELS
    return 2 * torch.as_tensor(metrics.pinball(p, y, levels)).reshape(len(y), _LEVELS, -1).mean(dim=(1, 2))


def _on_grid(task: ImageTask, model: Any, p: Any, h: Tensor, y: Tensor) -> Tensor:
    if not isinstance(model, EnergyModel):
        return torch.as_tensor(metrics.nll(p, y))  # a mixture is normalised, in the paper too
    D = y.shape[1]
    axis = torch.linspace(task.low, task.high, task.n_grid, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * D).reshape(-1, D)
    volume = ((task.high - task.low) / (task.n_grid - 1)) ** D
    if model.n_members > 1:  # each member has its own normaliser
        parts = [p.log_prob(part[:, None].expand(-1, len(y), -1)) for part in grid.split(_GRID_POINTS)]
        return metrics.nll_on_grid(p.log_prob(y), torch.cat(parts), volume)
    f_grid = model.f_grid(model.features(h), model.standardize(grid)).double()
    f_y = model.f(model.features(h), model.standardize(y)).double()
    return metrics.nll_on_grid(f_y, f_grid, volume)
