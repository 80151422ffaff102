"""Calls of networks, which may be the user's own: what is wrong with them is said in a sentence."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ebreg import networks, sampling
from ebreg._utils.memory import is_out_of_memory
from ebreg.units import Bounds

# What a network raises for inputs that it was not built for, or a Distribution for bad parameters.
_FAILURES = (RuntimeError, IndexError, AssertionError, ValueError, TypeError)
_N_DRAWS = 16  # of a first call
_BEYOND = 1e-3  # a bound, in standard units; of a bound further out than 1, as a share of it


def call(name: str, network: nn.Module, what: str, *inputs: Tensor) -> Any:
    """Call a network of the user's own; its name and ``what`` its inputs are are for messages."""
    try:
        return network(*inputs)
    except _FAILURES as error:
        if is_out_of_memory(error):
            raise
        first_line = str(error).split("\n")[0]  # torch prints tensors in the others
        raise ValueError(f"{name} failed on {what}: {first_line}") from error


def distribution_of(name: str, head: nn.Module, h: Tensor, n_targets: int) -> Distribution:
    """The Distribution that a head gives for features (B, H); ``name`` is the head's in messages."""
    if isinstance(head, networks.MixtureHead):
        return head(h)
    q = call(name, head, f"features of shape {tuple(h.shape)}", h)
    sampling.check_proposal(name, q, len(h), n_targets)
    return q


def targets_of(head: nn.Module, n_targets: int | None) -> int:
    """D, as given or as a head of the library says."""
    known = getattr(head, "n_targets", None) if n_targets is None else n_targets
    if known is None:
        raise ValueError(
            f"n_targets must be given: a {type(head).__name__} does not say how many targets it has"
        )
    return known


def first_draws(name: str, q: Any, y: Tensor, bounds: Bounds) -> Tensor:
    """Draws of a proposal, (M, B, D), after it was checked.

    Args:
        name: Of the argument, for messages.
        q: Batch shape (B,), event shape (D,).
        y: Targets of the rows in standard units, shape (B, D).
        bounds: Of the targets, in standard units.
    """
    u = sampling.sobol(_N_DRAWS, y.shape[1])[:, None].expand(-1, len(y), -1)
    draws = sampling.draw(q, u.to(y)).to(y.dtype)
    n_finite = int(torch.isfinite(draws).sum())
    if draws.shape != u.shape or n_finite < draws.numel():
        raise ValueError(
            f"{name} must have finite draws of shape {tuple(u.shape)}; got {tuple(draws.shape)}, "
            f"{n_finite} of {draws.numel()} numbers finite"
        )
    if not torch.isfinite(q.log_prob(draws)).all():
        raise ValueError(f"{name} must have a finite log_prob at its own draws")
    _check_support(name, q, y, bounds)
    return draws


def _check_support(name: str, q: Any, y: Tensor, bounds: Bounds) -> None:
    if _is_discrete(q):
        raise ValueError(f"{name} must have a density, and {type(q).__name__} is discrete; use another one")
    inside = sampling.in_support(q, y)
    if inside is not None and not inside.all():
        raise ValueError(
            f"{name} must have a support that holds all targets, which are standardised to mean 0 and "
            "standard deviation 1; use a distribution of all real numbers"
        )
    if hasattr(q, "between") or bounds.are_open:
        return
    for bound, sign in ((bounds.low, -1), (bounds.high, 1)):
        for d in torch.isfinite(bound).nonzero()[:, 0].tolist():
            beyond = y.clone()
            beyond[:, d] = bound[d] + sign * _BEYOND * bound[d].abs().clamp_min(1)
            reaches = sampling.in_support(q, beyond)
            if reaches is None or reaches.any():
                raise ValueError(
                    f"{name} must stay within bounds, and this one has mass beyond them; leave out bounds, "
                    "or use the proposal 'mixture', whose components are truncated there"
                )


def _is_discrete(q: Any) -> bool:
    try:
        return bool(q.support.is_discrete)
    except (NotImplementedError, AttributeError):
        return False
