r"""Self-normalised importance sampling: weights, expectations and diagnostics (Section 3.2.2).

Everything here is a function of f(x, y_m) and log q(y_m | x) at M draws for each of B inputs, draws first:
shape (M, B). A draw outside the model's support may have f = -inf. Values of +inf or NaN, or an infinite
``log_q``, are not allowed and not checked.

A row in which *every* draw has f = -inf holds no information about p. Its weights are uniform, which is the
proposal's own answer and keeps every result defined. The diagnostics say that such a row is unreliable: the
effective sample size is 0, the error of log Z and the Pareto k are +inf.
"""

import math

import torch
from torch import Tensor


def log_weights(f: Tensor, log_q: Tensor) -> Tensor:
    r"""Logarithm of the normalised importance weights (Eq. 7).

    .. math:: \log w_m = f_m - \log q_m - \log \textstyle\sum_l \exp\{f_l - \log q_l\}

    Args:
        f: Unnormalised log density of the draws, shape (M, B).
        log_q: Proposal log density of the same draws, shape (M, B).

    Returns:
        Shape (M, B); -log M throughout a row in which every f is -inf.
    """
    log_r, _ = _log_ratios(f, log_q)
    return torch.log_softmax(log_r, dim=0)


def normalized_weights(f: Tensor, log_q: Tensor) -> Tensor:
    r"""Importance weights that sum to one over the draws (Eq. 7).

    .. math:: w_m = \frac{\exp\{f_m\} / q_m}{\sum_l \exp\{f_l\} / q_l}

    Args:
        f: Unnormalised log density of the draws, shape (M, B).
        log_q: Proposal log density of the same draws, shape (M, B).

    Returns:
        Shape (M, B); 1/M throughout a row in which every f is -inf.
    """
    log_r, _ = _log_ratios(f, log_q)
    return torch.softmax(log_r, dim=0)


def effective_sample_size(f: Tensor, log_q: Tensor) -> Tensor:
    r"""Number of independent draws from p that the weighted draws are worth (Kish).

    .. math:: \mathrm{ESS} = 1 / \textstyle\sum_m w_m^2

    It depends on the draws alone: a mode of p that q never visits leaves it high.

    Args:
        f: Unnormalised log density of the draws, shape (M, B).
        log_q: Proposal log density of the same draws, shape (M, B).

    Returns:
        Shape (B,), between 1 and M; 0 for a row in which every f is -inf.
    """
    log_r, dead = _log_ratios(f, log_q)
    r = log_r.exp()  # the largest is 1, so neither sum can overflow or vanish
    ess = r.sum(dim=0).square() / r.square().sum(dim=0)
    return ess.masked_fill(dead, 0.0)


def expectation(values: Tensor, weights: Tensor) -> Tensor:
    r"""Expectation of a function of y under p (Eq. 7).

    .. math:: \mathbb{E}_p[\xi(y)] \approx \textstyle\sum_m w_m \, \xi(y_m)

    A draw of weight zero is left out whatever its value, infinite and NaN included.

    Args:
        values: The function at the draws, shape (M, B, ...). Booleans give probabilities.
        weights: Normalised weights, shape (M, B).

    Returns:
        Shape (B, ...).
    """
    _check_draws("weights", weights)
    _check_match("values", values, "weights", weights)
    w = weights.reshape(weights.shape + (1,) * (values.dim() - 2))
    return (w * values.masked_fill(w == 0, 0)).sum(dim=0)


def quantile(values: Tensor, weights: Tensor, q: float | Tensor) -> Tensor:
    r"""Weighted quantiles: the left-continuous inverse of the weighted empirical cdf, per dimension.

    .. math:: \hat F^{-1}(q) = \min \{ y_m : \textstyle\sum_{l : y_l \le y_m} w_l \ge q \}

    The answer is always one of the values and never one of weight zero; q = 0 is the smallest value that has
    weight. The comparison allows for the rounding of weights and sums, so that four equal weights and q = 0.5
    give the second value and not, by chance of the last bit, the third.

    Args:
        values: Shape (M, B), or (M, B, D) for the quantiles of each dimension by itself.
        weights: Normalised weights, shape (M, B).
        q: Probability in [0, 1], or a tensor of them of shape (Q,).

    Returns:
        Shape (B,) or (B, D) for one probability, (Q, B) or (Q, B, D) for several; NaN where the weights are
        NaN or all zero. Gradients reach ``values``.
    """
    _check_draws("weights", weights)
    _check_match("values", values, "weights", weights)
    _check_floating("values", values, "(M, B) or (M, B, D)")
    if values.dim() > 3:
        raise ValueError(f"values must have shape (M, B) or (M, B, D), got {tuple(values.shape)}")
    probs = _check_probabilities(q, weights.device)

    ordered, order = values.movedim(0, -1).sort(dim=-1)  # (B, M) or (B, D, M)
    w = weights.detach().T
    w = (w if values.dim() == 2 else w[:, None]).expand_as(ordered).gather(-1, order)
    # Sums in double precision: the error is then that of each weight, plus M roundings of a double. Both are
    # relative errors of a sum of positive terms, hence a relative tolerance.
    cum = w.double().cumsum(dim=-1)
    coarse = [t.dtype for t in (weights, q) if isinstance(t, Tensor) and t.is_floating_point()]
    tolerance = 2 * max(torch.finfo(dtype).eps for dtype in coarse)
    tolerance += weights.shape[0] * torch.finfo(torch.float64).eps
    target = probs.reshape(-1) * (1 - tolerance) * cum[..., -1:]
    # A positive floor skips the leading values without weight when q = 0.
    index = torch.searchsorted(cum, target.clamp(min=torch.finfo(torch.float64).tiny))
    result = ordered.gather(-1, index.clamp(max=weights.shape[0] - 1))
    result = result.masked_fill(~(cum[..., -1:] > 0), math.nan).movedim(-1, 0)
    return result if probs.dim() else result[0]


def resample(draws: Tensor, weights: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Sampling-importance-resampling: approximate samples from p (Rubin 1987, Section 3.2.2).

    Takes ``n`` of the M draws of every row, independently and with replacement, draw m with probability w_m.
    The samples repeat draws, so they stand in for independent ones only while ``n`` is well below the
    effective sample size.

    Args:
        draws: Draws from the proposal, shape (M, B, D).
        weights: Normalised weights, shape (M, B).
        n: Number of samples per row.
        generator: Source of randomness, on the device of ``weights``. Without one, torch's default generator
            is used; nothing is seeded here.

    Returns:
        Shape (n, B, D). Gradients reach ``draws``, not ``weights``.
    """
    _check_draws("weights", weights)
    _check_match("draws", draws, "weights", weights)
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"n must be an int, got {type(n).__name__}")
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    index = torch.multinomial(weights.detach().T, n, replacement=True, generator=generator).T  # (n, B)
    return draws[index, torch.arange(weights.shape[1], device=draws.device)]


@torch.no_grad()
def pareto_k(f: Tensor, log_q: Tensor) -> Tensor:
    r"""Shape k of the generalised Pareto tail of the ratios exp(f) / q: how far to trust the draws.

    The ratios have finite moments up to order 1/k. Below 0.5 the error of log Z is finite and falls as it
    should, up to about 0.7 the estimates are still of use, beyond 1 not even the mean of the ratios exists.
    As in Pareto-smoothed importance sampling (Vehtari et al. 2024), the fit is Zhang & Stephens' (2009) to
    the largest min(M / 5, 3 sqrt(M)) ratios, rounded down, drawn towards 0.5 with the weight of ten draws.
    It works with logarithms throughout, so k stays finite where one ratio dwarfs the others. No gradient.

    Args:
        f: Unnormalised log density of the draws, shape (M, B).
        log_q: Proposal log density of the same draws, shape (M, B).

    Returns:
        Shape (B,). +inf where the tail cannot be fitted: M < 25, which leaves fewer than five ratios, or so
        many draws with f = -inf that no positive ratio is left below the tail. -inf where the tail is
        flat, its ratios equal to each other and to the next below, as all are when f = log q + c.
    """
    log_r, dead = _log_ratios(f, log_q)
    M = log_r.shape[0]
    n = int(min(M / 5, 3 * math.sqrt(M)))
    if n < 5:
        return torch.full_like(log_r[0], math.inf)

    top = log_r.topk(n + 1, dim=0).values
    tail, cutoff = top[:n].flip(0), top[n]  # ascending
    # log(exp(tail) - exp(cutoff)), where a tie with the cutoff counts as a difference of one rounding error.
    log_x = tail + torch.log(-torch.expm1(cutoff - tail))
    log_x = torch.maximum(log_x, cutoff + math.log(torch.finfo(log_r.dtype).eps))
    u = log_x - log_x[int(n / 4 + 0.5) - 1]  # in units of the lower quartile x*

    def shape(c: Tensor) -> Tensor:
        """Maximum-likelihood k given c = b x*, the mean of log(1 - b x); always of the sign of -c."""
        # exp(u) may overflow, but c > 0 only occurs when x_max / x* is below a few thousand.
        bounded = torch.log1p(-c * u.exp())
        unbounded = torch.logaddexp(torch.zeros_like(u), torch.log(-c) + u)
        return torch.where(c < 0, unbounded, bounded).mean(dim=0)

    m = 30 + int(math.sqrt(n))
    j = torch.arange(1, m + 1, dtype=u.dtype, device=u.device) - 0.5
    c = torch.exp(-u[-1]) + (1 - torch.sqrt(m / j))[:, None] / 3  # grid of Zhang & Stephens, (m, B)
    c = torch.where(c == 0, torch.finfo(c.dtype).eps, c)  # the profile likelihood has a removable 0 / 0 there
    k = torch.stack([shape(c_j) for c_j in c])  # one grid point at a time keeps the memory at (n, B)
    posterior = torch.softmax(n * (torch.log(-c / k) - k - 1), dim=0)
    k_hat = (n * shape((posterior * c).sum(dim=0)) + 10 * 0.5) / (n + 10)

    k_hat = k_hat.masked_fill(top[0] == cutoff, -math.inf)
    return k_hat.masked_fill(dead | (cutoff == -math.inf), math.inf)


def log_partition_error(f: Tensor, log_q: Tensor) -> Tensor:
    r"""Standard error of the estimate of log Z from independent draws, by the delta method.

    .. math:: \mathrm{se}(\log \hat Z) \approx \mathrm{se}(\hat Z) / \hat Z = s_r / (\sqrt{M} \, \bar r),
       \qquad r_m = \exp\{f_m - \log q_m\}

    with s_r the sample standard deviation. The errors of quasi-random draws cancel, so this overstates them;
    use :func:`replicate_error`. Like the effective sample size, it cannot see what q misses.

    Args:
        f: Unnormalised log density of the draws, shape (M, B).
        log_q: Proposal log density of the same draws, shape (M, B).

    Returns:
        Shape (B,); +inf for M = 1 and for a row in which every f is -inf.
    """
    log_r, dead = _log_ratios(f, log_q)
    return _relative_error(log_r).masked_fill(dead, math.inf)


def replicate_error(log_partitions: Tensor) -> Tensor:
    r"""Standard error of log Z combined from independent replicates, such as scrambled quasi-random sets.

    .. math:: \mathrm{se}(\log \tfrac{1}{R} \textstyle\sum_r \hat Z_r) \approx s_Z / (\sqrt{R} \, \bar Z)

    The draws of a quasi-random set depend on each other so that their errors cancel; the formula for
    independent draws (:func:`log_partition_error`) therefore overstates the error. This one only needs the
    sets to be scrambled independently. From R replicates it is itself known to about one part in sqrt(2R).

    Args:
        log_partitions: One estimate of log Z per replicate and input, shape (R, B), R at least 2.

    Returns:
        Shape (B,); +inf where every estimate is -inf.
    """
    _check_draws("log_partitions", log_partitions, takes="(R, B)")
    if log_partitions.shape[0] < 2:
        raise ValueError("log_partitions must have shape (R, B) with R >= 2 replicates, got R = 1")
    log_r, dead = _shift(log_partitions)
    return _relative_error(log_r).masked_fill(dead, math.inf)


def _log_ratios(f: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """Checked f - log q, shifted as in `_shift`."""
    _check_draws("f", f)
    _check_draws("log_q", log_q)
    _check_match("log_q", log_q, "f", f)
    return _shift(f - log_q)


def _shift(log_r: Tensor) -> tuple[Tensor, Tensor]:
    """Shift each row (dim 1) to a maximum of 0, and mark the rows that are -inf throughout, which become 0.

    The shift comes before any logsumexp: added to 1e30, the logarithm of a sum would be lost in rounding.
    """
    top = log_r.detach().amax(dim=0)
    dead = top == -math.inf
    return (log_r - top.masked_fill(dead, 0.0)).masked_fill(dead, 0.0), dead


def _relative_error(log_r: Tensor) -> Tensor:
    """Standard error of the mean of exp(log_r) over dim 0, relative to that mean."""
    M = log_r.shape[0]
    if M == 1:
        return torch.full_like(log_r[0], math.inf)
    r = log_r.exp()
    mean = r.mean(dim=0)
    # As Tensor.std, which warns about a batch without rows.
    return torch.linalg.vector_norm(r - mean, dim=0) / (math.sqrt(M * (M - 1)) * mean)


def _check_floating(name: str, x: Tensor, takes: str) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{name} must be a floating-point tensor of shape {takes}, got {got}")


def _check_draws(name: str, x: Tensor, takes: str = "(M, B)") -> None:
    _check_floating(name, x, takes)
    if x.dim() != 2 or x.shape[0] == 0:
        raise ValueError(
            f"{name} must have shape {takes} with at least one entry in dim 0, got {tuple(x.shape)}"
        )


def _check_match(name: str, x: Tensor, other_name: str, other: Tensor) -> None:
    """The first two dimensions, draws and rows, must agree."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor of shape (M, B, ...), got {type(x).__name__}")
    if x.shape[:2] != other.shape:
        takes = f"(M, B, ...) with the (M, B) = {tuple(other.shape)} of {other_name}"
        raise ValueError(f"{name} must have shape {takes}, got {tuple(x.shape)}")


def _check_probabilities(q: float | Tensor, device: torch.device) -> Tensor:
    if not isinstance(q, (int, float, Tensor)):
        raise TypeError(f"q must be a float or a tensor of shape (Q,), got {type(q).__name__}")
    probs = torch.as_tensor(q, dtype=torch.float64, device=device)
    if probs.dim() > 1:
        raise ValueError(f"q must be a float or a tensor of shape (Q,), got shape {tuple(probs.shape)}")
    if not ((probs >= 0) & (probs <= 1)).all():
        raise ValueError(f"q must lie in [0, 1], got {q}")
    return probs
