"""Proper scores of predictive distributions, one value for each row; lower is better.

They only ask the questions of :class:`ebreg.predictive.Predictive`, in float64. They judge and do not train:
nothing here is differentiated.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.metrics.rows import (
    Values,
    by_row,
    equal_tails,
    levels,
    marginal_quantiles,
    numbers,
    share,
    without_single_target,
)

# First nodes of the CRPS: what lies beyond the outermost adds less than 1e-12 of the distribution's width.
_LEVELS = (1e-6, 1e-3, 0.03, 0.2, 0.4, 0.6, 0.8, 0.97, 1 - 1e-3, 1 - 1e-6)
_N_ROUNDS, _N_SPLITS = 20, 16
# Where a difference of cdfs keeps a smaller share of them, rounding has taken more than half of its digits.
_LOST = 1e-8
# A distribution function that comes from draws does not resolve less.
_SMALL = 0.05
# Nodes of Gauss's rule on each side of a cell, by the number of targets.
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
        n_draws: Draws a row, at least 2.
        seed: Of the draws; the same seed gives the same scores.
        scale: What each target is divided by, shape () or (D,), so that targets of different units
            count alike; for example their standard deviation in the training data. None: as they are.

    Returns:
        Shape (n,).
    """
    checks.at_least("n_draws", n_draws, 2)
    checks.at_least("seed", seed, 0)
    unit = None if scale is None else _scale(scale)
    generators: dict[torch.device, torch.Generator] = {}

    def score(p: Any, y: Tensor) -> Tensor:
        # One stream through all chunks: begun anew for each, it would give all of them the same errors, and
        # those do not average out.
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
    r"""Quantile loss, in the units of y; for several targets that of each target's own quantiles.

    .. math:: \max\{q (y - y_q),\ (q - 1)(y - y_q)\}, \qquad F(y_q) = q

    Its integral over q from 0 to 1 is half the CRPS.

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) for one target or (n, D).
        q: One level in (0, 1), or several, shape (Q,).

    Returns:
        Shape (n,) for one level and (n, Q) for several; with D > 1 targets (n, D) and (n, Q, D).
    """
    q_levels = levels("q", q)

    def score(p: Any, y: Tensor) -> Tensor:
        above = y - marginal_quantiles(p, y, q_levels.reshape(-1))  # (Q, B, D)
        at = q_levels.reshape(-1, 1, 1).to(y.device)
        loss = torch.maximum(at * above, (at - 1) * above)
        return without_single_target(loss.movedim(0, 1) if q_levels.dim() else loss[0])

    return by_row("pinball", score, dist, y)


def interval_score(dist: Any, y: Any, coverage: float = 0.9) -> Values:
    r"""Winkler's score of the equal-tailed interval [l, u]: its width, and a fine for targets outside.

    .. math:: (u - l) + \tfrac{2}{\alpha} \max(l - y, 0) + \tfrac{2}{\alpha} \max(y - u, 0), \quad
        \alpha = 1 - \text{coverage}

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) for one target or (n, D).
        coverage: Probability of the interval, in (0, 1).

    Returns:
        Shape (n,); with D > 1 targets (n, D), one for each target's own interval.
    """
    alpha = 1 - share("coverage", coverage)

    def score(p: Any, y: Tensor) -> Tensor:
        low, high = equal_tails(p, y, 1 - alpha)
        outside = (low - y).clamp_min(0) + (y - high).clamp_min(0)
        return without_single_target(high - low + 2 / alpha * outside)

    return by_row("interval_score", score, dist, y)


def rounded_nll(dist: Any, y: Any, resolution: Any) -> Values:
    r"""Negative log probability of the cell that a rounded target stands for.

    .. math:: -\log P(y - r/2 < Y \le y + r/2)

    Rounded targets reward a density for spikes on the grid of rounding, without bound. The probability of the
    cell does not: it is at most 1, so this is at least 0. For small r it is close to nll - log r.

    The probability is a difference of the distribution function. Where that is lost in rounding, or, with
    several targets, small beside what draws resolve, it is the density's integral by Gauss's rule.

    Args:
        dist: The predictive distributions of n rows.
        y: Targets, shape (n,) or (n, D).
        resolution: The step r to which the targets were rounded, above 0; a number, or one for each target.

    Returns:
        Shape (n,); infinite only where the density is zero throughout the cell.
    """
    r = numbers("resolution", resolution).double()
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
        # By inclusion and exclusion: of the corners, those with an odd number of lower ends are taken away.
        mass = (corners.prod(dim=1)[:, None] * below).sum(dim=0)
        # Far out on the right, or in a very narrow cell, it is rounding; there the density speaks.
        lost = mass <= (_LOST * below[-1] if D == 1 else _SMALL)
        log_mass = torch.where(lost, _log_mass_of_cell(p, y, widths), torch.where(lost, 1.0, mass).log())
        return 0.0 - log_mass.clamp(max=0.0)  # rather than -0

    return by_row("rounded_nll", score, dist, y)


def _log_mass_of_cell(p: Any, y: Tensor, widths: Tensor) -> Tensor:
    # From the density's average over the cell: in a steep tail its middle is not typical.
    D = len(widths)
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(_NODES.get(D, 4)))
    at = torch.cartesian_prod(*[nodes] * D).reshape(-1, D).to(y)
    log_weights = torch.cartesian_prod(*[(weights / 2).log()] * D).reshape(-1, D).sum(dim=1).to(y)
    log_p = p.log_prob(y + at[:, None] * (widths / 2))
    return (log_p + log_weights[:, None]).logsumexp(dim=0) + widths.log().sum()


def _crps(p: Any, y: Tensor) -> Tensor:
    # The integrand rises up to y and falls from there. So on an interval to one side of y the trapezoid errs
    # by at most half of width times rise, and the intervals between quantiles are halved where that is most:
    # modes, edges and gaps are found by the distribution function alone. (Expectations would not do: E|Y - y|
    # has its kink between the nodes.) All rows are halved equally often, so none depends on its neighbours.
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
    scale = numbers("scale", values)
    if scale.dim() > 1 or not ((scale > 0) & (scale < torch.inf)).all():
        raise ValueError(
            f"scale must be one finite number above 0, or one for each target, got {scale.tolist()}; "
            "leave out a target that does not vary"
        )
    return scale.reshape(-1)
