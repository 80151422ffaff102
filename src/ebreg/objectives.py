r"""The paper's training objectives as pure functions of tensors, one value per example.

Symbols: M draws :math:`y^{(m)}` of a proposal or noise distribution q for each of B examples;
``f`` is the unnormalised log density (p is proportional to exp(+f)), ``log_q`` the log density of q.
A ``_y`` marks a value at the observed target. Nothing is detached here: which loss trains which
parameters is decided in :mod:`ebreg.methods`.
"""

import math

import torch
from torch import Tensor

from ebreg._utils import checks


def log_partition(f: Tensor, log_q: Tensor) -> Tensor:
    r"""Importance-sampling estimate of the log normaliser (Eq. 5, one term of the sum).

    .. math:: \log \hat Z(x) = \log \tfrac1M \textstyle\sum_m \exp\{f(x, y^{(m)}) - \log q(y^{(m)} \mid x)\}

    The estimate of Z is unbiased, so its logarithm is low on average (Jensen). As a loss of the
    proposal's parameters, with draws that are not differentiated, its gradient estimates that of
    KL(p || q): Result 1 of the paper.

    Args:
        f: Unnormalised log density of the draws, shape (M, B).
        log_q: Proposal log density of the same draws, shape (M, B).

    Returns:
        Shape (B,).
    """
    _check_draws(f, log_q)
    return torch.logsumexp(f - log_q, dim=0) - math.log(f.shape[0])


def mle(f_y: Tensor, f: Tensor, log_q: Tensor) -> Tensor:
    r"""Negative log-likelihood with an importance-sampled normaliser (Eq. 2).

    .. math:: J = \log \hat Z(x) - f(x, y)

    Args:
        f_y: Unnormalised log density of the targets, shape (B,).
        f: The same of the draws, shape (M, B).
        log_q: Proposal log density of the draws, shape (M, B).

    Returns:
        Shape (B,).
    """
    _check_targets("f_y", f_y, f)
    return log_partition(f, log_q) - f_y


def nce(f_y: Tensor, log_q_y: Tensor, f: Tensor, log_q: Tensor) -> Tensor:
    r"""Noise contrastive estimation: tell the target from M draws of the noise (Eq. 6).

    .. math::
        J = -\log \frac{\exp\{f(x, y^{(0)}) - \log q(y^{(0)})\}}
                       {\sum_{m=0}^{M} \exp\{f(x, y^{(m)}) - \log q(y^{(m)})\}},
        \qquad y^{(0)} = y

    A draw whose ``f`` is -inf is left out of the sum. Stratified noise uses this to leave out the draw that
    the target replaces.

    Args:
        f_y: Unnormalised log density of the targets, shape (B,).
        log_q_y: Noise log density of the targets, shape (B,).
        f: Unnormalised log density of the draws, shape (M, B).
        log_q: Noise log density of the draws, shape (M, B).

    Returns:
        Shape (B,); log(M + 1) if f and log q differ by a constant.
    """
    _check_draws(f, log_q)
    _check_targets("f_y", f_y, f)
    _check_targets("log_q_y", log_q_y, f)
    logit_y = f_y - log_q_y
    # One sum that includes the target: with every draw left out, the gradient of an empty sum would be NaN.
    return torch.cat([logit_y[None], f - log_q]).logsumexp(dim=0) - logit_y


def mdn(log_q_y: Tensor, f: Tensor, log_q: Tensor) -> Tensor:
    r"""Mixture density network with an energy-based teacher (Eq. 8).

    .. math:: J = \tfrac12 \log \hat Z(x) - \tfrac12 \log q(y \mid x)

    Args:
        log_q_y: Log density of the targets under the network being trained, shape (B,).
        f: The teacher's unnormalised log density of draws from q, shape (M, B).
        log_q: Log density of those draws, shape (M, B).

    Returns:
        Shape (B,).
    """
    _check_targets("log_q_y", log_q_y, f)
    return 0.5 * log_partition(f, log_q) + 0.5 * nll(log_q_y)


def nll(log_q_y: Tensor) -> Tensor:
    """Negative log-likelihood of a normalised model, the usual loss of a mixture density network.

    Args:
        log_q_y: Log density of the targets, shape (B,).

    Returns:
        Shape (B,).
    """
    checks.shape("log_q_y", log_q_y, ("B",))
    return -log_q_y


def _check_draws(f: Tensor, log_q: Tensor) -> None:
    # Broadcasting would turn a wrong shape into a wrong number, so it is refused.
    checks.shape("f", f, ("M", "B"))
    checks.shape("log_q", log_q, tuple(f.shape))
    checks.at_least("M, the number of draws (first dimension of f),", f.shape[0], 1)


def _check_targets(name: str, values: Tensor, f: Tensor) -> None:
    checks.shape("f", f, ("M", "B"))
    checks.shape(name, values, (f.shape[1],))
