"""Proper scores of predictive distributions, one value for each row; lower is better.

They use the methods of :class:`ebreg.predictive.Predictive`, in float64 and without gradients.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.metrics.rows import (
    Values,
    as_float64,
    by_row,
    equal_tails,
    marginal_quantiles,
    without_single_target,
)

# Levels of the first nodes of the CRPS: the tails beyond add less than 1e-12 of the distribution's width.
_LEVELS = (1e-6, 1e-3, 0.03, 0.2, 0.4, 0.6, 0.8, 0.97, 1 - 1e-3, 1 - 1e-6)
_N_ROUNDS, _N_SPLITS = 20, 16
# A difference of cdfs below this share of them has lost more than half of its digits to rounding.
_LOST = 1e-8
# The smallest difference that a cdf estimated from draws resolves.
_SMALL = 0.05
# Nodes of Gauss-Legendre quadrature along each side of a rounding interval, by the number of targets.
_NODES = {1: 16, 2: 12, 3: 8}


def nll(dist: Any, y: Any) -> Values:
    r"""Negative log-likelihood, in nats and in the units of y.

    .. math:: -\log p(y)

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) for one target or (n, D).

    Returns:
        Shape (n,); infinite for a target where the density is zero.
    """
    return by_row("nll", lambda p, y: -p.log_prob(y), dist, y)


def crps(dist: Any, y: Any) -> Values:
    r"""Continuous ranked probability score of one target, in the units of y.

    .. math:: \int (F(z) - 1\{y \le z\})^2 dz = E|Y - y| - \tfrac{1}{2} E|Y - Y'|

    The integral is taken rather than the expectations: its integrand is positive, so no digits cancel, and it
    needs the distribution function alone.

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) or (n, 1).

    Returns:
        Shape (n,).
    """
    return by_row("crps", _crps, dist, y, several="energy_score is its form for several targets")


def energy_score(dist: Any, y: Any, n_draws: int = 512, seed: int = 0, scale: Any = None) -> Values:
    r"""Energy score: the CRPS for any number of targets, estimated from draws.

    .. math:: E\|Y - y\| - \tfrac{1}{2} E\|Y - Y'\|

    The second term averages over all pairs of different draws, so the estimate is unbiased; near zero it can
    be negative.

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) for one target or (n, D).
        n_draws: Draws per row, at least 2.
        seed: Seed of the draws; the same seed gives the same scores.
        scale: Divisor of each target, shape () or (D,), so that targets of different units have equal
            weight; for example their standard deviation in the training data. None does not divide.

    Returns:
        Shape (n,).
    """
    checks.at_least("n_draws", n_draws, 2)
    checks.at_least("seed", seed, 0)
    unit = None if scale is None else _scale(scale)
    generators: dict[torch.device, torch.Generator] = {}

    def score(p: Any, y: Tensor) -> Tensor:
        # One generator for all chunks: seeded again for each chunk, all of them would have the same errors,
        # which do not average out.
        if y.device not in generators:
            generators[y.device] = torch.Generator(y.device).manual_seed(seed)
        draws = p.sample(n_draws, generator=generators[y.device]).to(y)  # (M, B, D)
        if unit is not None:
            if unit.numel() not in (1, y.shape[1]):
                raise ValueError(
                    f"scale must be one number or one for each of the {y.shape[1]} targets, got {len(unit)}"
                )
            draws, y = draws / unit.to(y.device), y / unit.to(y.device)
        to_target = torch.linalg.vector_norm(draws - y, dim=-1).mean(dim=0)
        between = torch.stack([torch.pdist(row).mean() for row in draws.movedim(1, 0).contiguous()])
        return to_target - 0.5 * between

    return by_row("energy_score", score, dist, y)


def pinball(dist: Any, y: Any, q: Any) -> Values:
    r"""Pinball (quantile) loss, in the units of y, for each target separately.

    .. math:: \max\{q (y - y_q),\ (q - 1)(y - y_q)\}, \qquad F(y_q) = q

    Its integral over q from 0 to 1 is half the CRPS.

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) for one target or (n, D).
        q: One level in (0, 1), or several, shape (Q,).

    Returns:
        Shape (n,) for one level and (n, Q) for several; with D > 1 targets (n, D) and (n, Q, D).
    """
    q_levels = checks.levels("q", q)
    if q_levels.dim() > 1:
        raise ValueError(f"q must be one level or a list of levels, got shape {tuple(q_levels.shape)}")

    def score(p: Any, y: Tensor) -> Tensor:
        above = y - marginal_quantiles(p, y, q_levels.reshape(-1))  # (Q, B, D)
        at = q_levels.reshape(-1, 1, 1).to(y.device)
        loss = torch.maximum(at * above, (at - 1) * above)
        return without_single_target(loss.movedim(0, 1) if q_levels.dim() else loss[0])

    return by_row("pinball", score, dist, y)


def interval_score(dist: Any, y: Any, coverage: float = 0.9) -> Values:
    r"""Interval (Winkler) score of [l, u]: its width, plus a penalty for targets outside.

    .. math:: (u - l) + \tfrac{2}{\alpha} \max(l - y, 0) + \tfrac{2}{\alpha} \max(y - u, 0), \quad
        \alpha = 1 - \text{coverage}

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) for one target or (n, D).
        coverage: Probability of the interval, in (0, 1).

    Returns:
        Shape (n,); with D > 1 targets (n, D), one for each target's own interval.
    """
    alpha = 1 - checks.fraction("coverage", coverage)

    def score(p: Any, y: Tensor) -> Tensor:
        low, high = equal_tails(p, y, 1 - alpha)
        outside = (low - y).clamp_min(0) + (y - high).clamp_min(0)
        return without_single_target(high - low + 2 / alpha * outside)

    return by_row("interval_score", score, dist, y)


def rounded_nll(dist: Any, y: Any, resolution: Any) -> Values:
    r"""Negative log probability of the rounding interval of a rounded target.

    .. math:: -\log P(y - r/2 < Y \le y + r/2)

    With rounded targets, spikes at the rounded values make the density and so the likelihood as large as you
    like. The probability of the rounding interval is at most 1, so this score is at least 0. For small r it
    is close to nll - log r.

    The probability is a difference of cdfs. Where rounding errors dominate that difference, or, with several
    targets, where it is too small to be estimated from draws, the density is integrated instead.

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) or (n, D).
        resolution: The step r to which the targets were rounded, above 0; a number, or one for each target.

    Returns:
        Shape (n,); infinite only where the density is zero on the whole rounding interval.
    """
    r = as_float64("resolution", resolution)
    if not ((r > 0) & torch.isfinite(r)).all():
        raise ValueError(f"resolution must be a finite number above 0, got {resolution}")

    def score(p: Any, y: Tensor) -> Tensor:
        D = y.shape[1]
        if r.dim() > 1 or r.numel() not in (1, D):
            raise ValueError(
                f"resolution must be one number, or one for each of {D} targets; got {resolution}"
            )
        widths = r.expand(D).to(y.device)
        corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * D).reshape(-1, D).to(y)
        below = p.cdf(y + corners[:, None] * (widths / 2))  # (2^D, B)
        # Inclusion and exclusion: corners with an odd number of lower ends are subtracted.
        mass = (corners.prod(dim=1)[:, None] * below).sum(dim=0)
        # In the upper tail, or in a very narrow interval, the difference is rounding error.
        lost = mass <= (_LOST * below[-1] if D == 1 else _SMALL)
        log_mass = torch.where(lost, _log_integral(p, y, widths), torch.where(lost, 1.0, mass).log())
        return 0.0 - log_mass.clamp(max=0.0)  # 0.0 - 0 is 0, and -(0) would be -0

    return by_row("rounded_nll", score, dist, y)


def _log_integral(p: Any, y: Tensor, widths: Tensor) -> Tensor:
    # By several nodes: in a steep tail the density in the middle is not the average.
    D = len(widths)
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(_NODES.get(D, 4)))
    at = torch.cartesian_prod(*[nodes] * D).reshape(-1, D).to(y)
    log_weights = torch.cartesian_prod(*[(weights / 2).log()] * D).reshape(-1, D).sum(dim=1).to(y)
    log_p = p.log_prob(y + at[:, None] * (widths / 2))
    return (log_p + log_weights[:, None]).logsumexp(dim=0) + widths.log().sum()


def _crps(p: Any, y: Tensor) -> Tensor:
    # The integrand rises up to y and falls from there. So on an interval to one side of y the error of the
    # trapezoid rule is at most half of width times rise, and the intervals with the largest bound are halved:
    # modes, edges and gaps are found from the cdf alone. (E|Y - y| would have its kink between the nodes.)
    # Every row is halved equally often, so no row depends on the others.
    y = y[:, 0]
    quantiles = p.icdf(torch.tensor(_LEVELS, dtype=torch.float64, device=y.device))[..., 0].to(y)
    z = torch.cat([quantiles, y[None]]).sort(dim=0).values  # (N, B)

    def gap(z: Tensor, right: Tensor) -> Tensor:
        F = p.cdf(z[..., None]).to(y)
        return torch.where(right, 1 - F, F).square()

    a, b = z[:-1], z[1:]
    right = a >= y  # y is a node, so no interval has it inside
    g_a, g_b = gap(a, right), gap(b, right)
    for _ in range(_N_ROUNDS):
        worst = ((b - a) * (g_b - g_a).abs()).topk(min(_N_SPLITS, len(a)), dim=0).indices
        middle = 0.5 * (a.gather(0, worst) + b.gather(0, worst))
        side = right.gather(0, worst)
        g_middle = gap(middle, side)
        a, g_a = torch.cat([a, middle]), torch.cat([g_a, g_middle])
        b, g_b = (
            torch.cat([ends.scatter(0, worst, new), ends.gather(0, worst)])
            for ends, new in ((b, middle), (g_b, g_middle))
        )
        right = torch.cat([right, side])
    simpson = g_a + 4 * gap(0.5 * (a + b), right) + g_b
    return ((b - a) * simpson / 6).sum(dim=0)


def _scale(values: Any) -> Tensor:
    scale = as_float64("scale", values)
    if scale.dim() > 1 or not ((scale > 0) & (scale < torch.inf)).all():
        raise ValueError(
            f"scale must be one finite number above 0, or one for each target, got {scale.tolist()}; "
            "leave out a target that does not vary"
        )
    return scale.reshape(-1)
