"""Metrics of a conditional density on a grid of targets, in log space."""

import math

import torch
from torch import Tensor

from ebreg._utils import checks


def log_normalize_on_grid(log_f: Tensor, spacing: float, dim: int = 0) -> Tensor:
    r"""Log density from unnormalised log values on an equally spaced grid.

    .. math:: \log p(y_g) = f(y_g) - \log \textstyle\sum_h \exp\{f(y_h)\} - \log \Delta

    Args:
        log_f: Unnormalised log density, shape (G, B), or any shape whose dimension ``dim`` is the grid.
        spacing: Step of the grid, :math:`\Delta`; with several targets the volume of one grid cell.
        dim: The dimension that runs over the grid.

    Returns:
        Log density whose exponentials times ``spacing`` sum to 1 over ``dim``; the shape of ``log_f``.
    """
    spacing = checks.positive("spacing", spacing)
    _check_grid("log_f", log_f, dim)
    # log_softmax takes the largest value off first; f - logsumexp(f) would lose digits to a large offset.
    return torch.log_softmax(log_f, dim=dim) - math.log(spacing)


def kl_on_grid(log_p: Tensor, log_f: Tensor, dim: int = 0, floor: float = 0.0) -> Tensor:
    r"""KL divergence from the truth p to a model f, both normalised on one common grid.

    .. math:: \mathrm{KL} = \textstyle\sum_g p_g (\log p_g - \log f_g), \qquad \sum_g p_g = \sum_g f_g = 1

    The step of an equally spaced grid cancels, so it is not asked for. Points where the truth is zero
    add nothing; where only the model is zero the divergence is infinite.

    Args:
        log_p: Log density of the truth up to a constant per column, shape (G, B).
        log_f: Unnormalised log density of the model at the same points, shape (G, B).
        dim: The dimension that runs over the grid.
        floor: Probability added to each normalised :math:`p_g`, without normalising again. The authors add
            1e-30, which keeps their linear-space logarithm finite; here 0 is safe.

    Returns:
        Shape (B,): that of ``log_p`` without ``dim``.
    """
    _check_grid("log_p", log_p, dim)
    checks.shape("log_f", log_f, tuple(log_p.shape))
    if not 0 <= floor < 1:
        raise ValueError(f"floor must be a probability from 0 to below 1, got {floor}")
    log_p = log_normalize_on_grid(log_p, 1.0, dim)
    log_f = log_normalize_on_grid(log_f, 1.0, dim)
    if floor > 0:
        log_p = torch.logaddexp(log_p, torch.full_like(log_p, math.log(floor)))
    # Where p is 0 the difference of logs may be -inf, +inf or NaN; it must not meet the factor 0.
    log_ratio = torch.where(log_p == -torch.inf, 0.0, log_p - log_f)
    return (log_p.exp() * log_ratio).sum(dim)


def nll_on_grid(f_y: Tensor, f_grid: Tensor, spacing: float) -> Tensor:
    r"""Negative log-likelihood with the normaliser summed over a grid: the paper's evaluation.

    .. math:: -\log p(y \mid x) \approx \log \textstyle\sum_g \exp\{f(x, y_g)\} + \log \Delta - f(x, y)

    A model with structure finer than the grid, or with mass outside it, scores better than it is.

    Args:
        f_y: Unnormalised log density of the targets, shape (B,).
        f_grid: The same on the grid, shape (G, B).
        spacing: Step of the grid, :math:`\Delta`; with several targets the volume of one grid cell.

    Returns:
        Shape (B,).
    """
    spacing = checks.positive("spacing", spacing)
    checks.shape("f_grid", f_grid, ("G", "B"))
    _check_grid("f_grid", f_grid, 0)
    checks.shape("f_y", f_y, (f_grid.shape[1],))
    # A common offset goes before the sums, or float32 would lose the answer's digits to it.
    offset = f_grid.detach().amax(dim=0)
    return torch.logsumexp(f_grid - offset, dim=0) + math.log(spacing) - (f_y - offset)


def _check_grid(name: str, values: Tensor, dim: int) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(values).__name__}")
    if not -values.dim() <= dim < values.dim():
        raise ValueError(
            f"dim must be a dimension of {name}, which has shape {tuple(values.shape)}; got {dim}"
        )
    if values.shape[dim] == 0:
        raise ValueError(f"{name} must have at least 1 grid point, got shape {tuple(values.shape)}")
