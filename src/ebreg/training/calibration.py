"""Calibration from validation rows: weights of the members, a temperature and a background, by likelihood."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ebreg.models import Calibration, Model
from ebreg.predictive import VALIDATION
from ebreg.training.batches import TensorData, weights_of
from ebreg.training.member_rows import HeldOut
from ebreg.units import Standardizer

# As if every setting had this many rows more that it explains alone: weights from few rows stay near equal.
_PSEUDO_ROWS = 8.0
# A temperature must gain this many standard errors of its mean gain, or it is 1.
_WORTH = 2.0
_WARMER = tuple(2 ** (k / 8) for k in range(1, 9))
_COOLER = tuple(2 ** (-k / 8) for k in range(1, 5))
_N_ROWS = 4096  # evaluated at once, in all blocks together
# Validation rows of a member that are used: for a few numbers there is nothing to gain from more.
_MOST_ROWS = 1000


@torch.no_grad()
def calibrate(model: Model, data: TensorData, held_out: HeldOut, n_settings: int = 1) -> None:
    """Set the calibration of a trained model.

    Members with the same validation rows differ in their settings; members of the same setting have the same
    weight.

    Args:
        model: Its members have rows of their own.
        data: Training data.
        held_out: The validation rows of each member, the same for ``n_settings`` members one after the other.
        n_settings: G, a divisor of the number of members.
    """
    E = model.n_members
    held_out = replace(held_out, index=held_out.index[:, :_MOST_ROWS])
    equal = torch.full((E,), 1 / E)
    y = model.y_units(data.y.to(model.y_units.scale))
    normal = Standardizer.of("y", y)
    normal = Standardizer(normal.shift, normal.scale.clamp(min=model.min_scale))
    index = held_out.index[::n_settings].flatten()
    row_weights = weights_of(data).double()[index]

    def log_densities(temperature: float) -> Tensor:
        model.calibration = Calibration(equal, normal.shift, normal.scale, temperature=temperature)
        return _log_densities(model, data, held_out, n_settings)

    log_p = log_densities(1.0)
    weights = stacking_weights(log_p, row_weights)
    temperature, mean = _best_temperature(log_densities, _log_mean(log_p, weights), weights, row_weights)
    log_background = -normal.normal_nll(y[index.to(y.device)]).cpu() - model.y_units.scale.log().sum().cpu()
    model.calibration = Calibration(
        weights.repeat(E // n_settings) * n_settings / E,
        normal.shift,
        normal.scale,
        background_share(mean, log_background, row_weights),
        temperature,
    )
    model.calibration.to(model.reference.device)


def stacking_weights(log_p: Tensor, row_weights: Tensor) -> Tensor:
    """Weights of settings that maximise the likelihood of their weighted mean density, drawn to equal ones.

    Args:
        log_p: Log densities of rows by each setting, shape (G, n).
        row_weights: Weights of the rows, shape (n,).

    Returns:
        Shape (G,), float64, summing to 1.
    """
    weights = torch.full((len(log_p),), 1 / len(log_p), dtype=torch.float64)
    for _ in range(200):
        shares = torch.softmax(log_p + weights.log()[:, None], dim=0)
        weights = shares @ row_weights + _PSEUDO_ROWS
        weights = weights / weights.sum()
    return weights


def background_share(log_p: Tensor, log_background: Tensor, row_weights: Tensor) -> float:
    """The share of a background that maximises the likelihood of rows; all of shape (n,).

    Exactly 0 where the likelihood falls with the first bit of background.
    """
    ratio = log_background - log_p
    total = row_weights.sum()
    if torch.logsumexp(ratio + row_weights.log(), dim=0) <= total.log():
        return 0.0
    share = 0.01
    for _ in range(500):
        shares = torch.sigmoid(math.log(share) - math.log1p(-share) + ratio)
        share = ((row_weights * shares).sum() / total).clamp(1e-12, 0.5).item()
    return share


def _best_temperature(
    log_densities: Callable[[float], Tensor], before: Tensor, weights: Tensor, row_weights: Tensor
) -> tuple[float, Tensor]:
    # The temperature, and the log of the mean density with it, (n,): up or down in small steps while the
    # likelihood rises.
    best, log_p = 1.0, before
    for temperatures in (_WARMER, _COOLER):
        for temperature in temperatures:
            tried = _log_mean(log_densities(temperature), weights)
            if (row_weights * (tried - log_p)).sum() <= 0:
                break
            best, log_p = temperature, tried
        if best != 1:
            break
    return (best, log_p) if _is_worth_it(log_p - before) else (1.0, before)


def _is_worth_it(gain: Tensor) -> bool:
    return bool(gain.mean() > _WORTH * gain.std() / math.sqrt(len(gain)))


def _log_mean(log_p: Tensor, weights: Tensor) -> Tensor:
    return torch.logsumexp(log_p + weights.log()[:, None], dim=0)


def _log_densities(model: Model, data: TensorData, held_out: HeldOut, n_settings: int) -> Tensor:
    # Of the validation rows by each setting, (G, n).
    E, n = held_out.index.shape
    parts = []
    for index in held_out.index.split(max(1, _N_ROWS // E), dim=1):
        x, y = (values.to(model.reference.device) for values in data.__getitems__(index.flatten()))
        parts.append(model.member_log_prob(x, y, VALIDATION).cpu().double().view(E, -1))
    by_set = torch.cat(parts, dim=1).view(E // n_settings, n_settings, n)
    return by_set.transpose(0, 1).reshape(n_settings, -1)
