"""Mixtures with full covariances, fitted to the weighted draws of each row."""

import math

import torch
from torch import Tensor

from ebreg.distributions import FullMixture

_COMPONENTS = 8
_STEPS = 5
# Weights are flattened until their effective number is this share of the draws, and this many a target.
_WORTH, _WORTH_EACH = 0.1, 20
# Variances of a component's two copies, in units of the fit's, and the share of the second. Draws say nothing
# about tails that they have not reached: without the wide copies every fit would lose more of the tails, and
# the weights would not show it.
_INNER, _OUTER, _OUTER_SHARE = 1.2, 3.0, 0.3
# Variance that no direction falls below, in units of the row's own.
_LEAST = 1e-6
# Bits of a scale that are kept.
_BITS = 10


@torch.no_grad()
def fit_mixture(draws: Tensor, log_weights: Tensor) -> FullMixture:
    """Fit a mixture with full covariances to the weighted draws of each row.

    A few steps of expectation maximisation, which start at draws that divide the row's mass evenly. Where a
    few draws have all the weight, the fit is to flattened weights, w to a power below one: the mixture then
    covers a distribution on the way from the proposal to p, and its own draws lead further.

    Args:
        draws: Shape (M, B, D).
        log_weights: Logarithms of the normalised importance weights, shape (M, B).

    Returns:
        In float64.
    """
    y, weights = draws.double().transpose(0, 1), _flattened(log_weights.double(), draws.shape[-1]).T
    worth = 1 / weights.square().sum(dim=1)
    centre = (weights[..., None] * y).sum(dim=1, keepdim=True)
    covariance = _overall(y - centre, weights, worth)
    factor = _cholesky(covariance)  # (B, D, D)
    # Where the row's covariance is one, components are compared, and shrunk, in the row's own shape.
    z = torch.linalg.solve_triangular(factor, (y - centre).mT, upper=False).mT
    shares, means, covariances = _expectation_maximisation(z, weights, worth)
    logits, cholesky = shares.clamp_min(1e-12).log(), factor[:, None] @ _cholesky(covariances)
    return _rounded(
        torch.cat([logits + math.log1p(-_OUTER_SHARE), logits + math.log(_OUTER_SHARE)], dim=1),
        (centre + means @ factor.mT).repeat(1, 2, 1),
        torch.cat([math.sqrt(_INNER) * cholesky, math.sqrt(_OUTER) * cholesky], dim=1),
    )


def _rounded(logits: Tensor, means: Tensor, cholesky: Tensor) -> FullMixture:
    # To a thousandth of a scale. Rounding errors depend on the other rows of a batch: draws of an unrounded
    # fit would have them, the next fit would enlarge them, and a row's answer would depend on its neighbours.
    _, exponent = torch.frexp(cholesky.diagonal(dim1=-2, dim2=-1))
    grid = torch.ldexp(torch.ones_like(means), exponent - _BITS)
    return FullMixture(
        torch.round(logits, decimals=3),
        (means / grid).round() * grid,
        (cholesky / grid[..., None]).round() * grid[..., None],
    )


def _flattened(log_weights: Tensor, D: int) -> Tensor:
    # Weights to the largest of some powers at which they are worth enough, normalised: (M, B) -> (M, B).
    M = len(log_weights)
    enough = min(M / 2, max(_WORTH * M, _WORTH_EACH * D))
    # A row with NaN gets even weights.
    log_weights = log_weights.masked_fill(log_weights.isnan().any(dim=0), 0.0)
    log_weights = log_weights - log_weights.amax(dim=0)
    power = torch.ones_like(log_weights[0])
    for _ in range(24):  # the last power is 1 / 4096
        # e^-80 adds nothing to 1, and exp is ten times slower where it underflows.
        weights = (power * log_weights).clamp_min(-80).exp()
        weights = weights / weights.sum(dim=0)
        poor = 1 / weights.square().sum(dim=0) < enough
        if not poor.any():
            break
        power = torch.where(poor, power * 0.5**0.5, power)
    return weights


def _overall(centred: Tensor, weights: Tensor, worth: Tensor) -> Tensor:
    # Covariance of the weighted draws, (B, M, D) -> (B, D, D), drawn towards its diagonal as if by a few
    # draws without correlation, and never quite zero.
    covariance = (weights[..., None] * centred).mT @ centred
    spread = centred.square().mean(dim=1).clamp_min(1e-200)
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    prior = _prior_share(worth, centred.shape[-1])
    floor = torch.diag_embed(prior * diagonal + 1e-9 * spread)
    return (1 - prior)[..., None] * covariance + floor


def _expectation_maximisation(z: Tensor, weights: Tensor, worth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Expectation maximisation on draws z, (B, M, D), that have weights (B, M) and are worth (B,).

    Both steps are products of matrices: a log density of a Gaussian is linear in 1, z and the products of
    two coordinates, and so are the moments.

    Returns:
        Shares (B, K), means (B, K, D) and covariances (B, K, D, D).
    """
    B, _, D = z.shape
    i, j = torch.tril_indices(D, D, device=z.device)
    features = torch.cat([torch.ones_like(z[..., :1]), z, z[..., i] * z[..., j]], dim=-1)
    shares = z.new_full((B, _COMPONENTS), 1 / _COMPONENTS)
    means = _starts(z, weights)
    eye = torch.eye(D, dtype=z.dtype, device=z.device)
    covariances = 0.25 * eye.expand(B, _COMPONENTS, D, D)
    for _ in range(_STEPS):
        log_joint = features @ _coefficients(shares, means, covariances).mT  # (B, M, K), up to a constant
        members = weights[..., None] * log_joint.softmax(dim=-1)
        moments = members.mT @ features  # (B, K, 1 + D + D (D + 1) / 2)
        shares = moments[..., 0].clamp_min(1e-300)
        moments = moments / shares[..., None]
        means = moments[..., 1 : 1 + D]
        covariances = means.new_empty(B, _COMPONENTS, D, D)
        covariances[..., i, j] = moments[..., 1 + D :]
        covariances[..., j, i] = moments[..., 1 + D :]
        covariances = covariances - means[..., None] * means[..., None, :]
        # Drawn towards what the components have in common, the more the fewer draws a component has.
        common = (shares[..., None, None] * covariances).sum(dim=1, keepdim=True)
        prior = _prior_share(worth[:, None] * shares, D)[..., None]
        covariances = (1 - prior) * covariances + prior * common + _LEAST * eye
    return shares, means, covariances


def _starts(z: Tensor, weights: Tensor) -> Tensor:
    # Draws that divide the mass evenly along the first coordinate: (B, M, D) -> (B, K, D).
    order = z[..., 0].argsort(dim=1)
    cumulative = weights.gather(1, order).cumsum(dim=1)
    levels = (torch.arange(_COMPONENTS, dtype=z.dtype, device=z.device) + 0.5) / _COMPONENTS
    places = torch.searchsorted(cumulative, levels * cumulative[:, -1:])
    chosen = order.gather(1, places.clamp_max(z.shape[1] - 1))
    return z.gather(1, chosen[..., None].expand(-1, -1, z.shape[-1]))


def _coefficients(shares: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    # Of the log density of each component times its share, as a function of the features: (B, K, features).
    i, j = torch.tril_indices(*covariances.shape[-2:], device=means.device)
    factor = _cholesky(covariances)
    precision = torch.cholesky_inverse(factor)
    slope = (precision @ means[..., None])[..., 0]
    log_scale = factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    level = shares.log() - log_scale - 0.5 * (slope * means).sum(dim=-1)
    curvature = precision[..., i, j] * torch.where(i == j, -0.5, -1.0)
    return torch.cat([level[..., None], slope, curvature], dim=-1)


def _prior_share(worth: Tensor, D: int) -> Tensor:
    # The weight of D + 2 imagined draws beside the real ones: (...) -> (..., 1).
    return ((D + 2) / (worth + D + 2))[..., None]


def _cholesky(covariance: Tensor) -> Tensor:
    # Where rounding has left no positive definite matrix, or numbers are missing, the diagonal alone.
    factor, failed = torch.linalg.cholesky_ex(covariance)
    alone = torch.diag_embed(covariance.diagonal(dim1=-2, dim2=-1).clamp_min(1e-200).sqrt())
    return torch.where((failed > 0)[..., None, None], alone, factor)
