"""Draws from any proposal, which depend on nothing but the proposal and points of the unit cube."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ebreg._utils.random_state import seeded
from ebreg.sampling.uniform_map import uniform_map


def draw(proposal: Distribution, u: Tensor) -> Tensor:
    """Draws that depend on nothing but the proposal and the points u; not differentiated.

    A proposal with ``from_uniform``, or with a :func:`uniform_map`, turns the points into draws. From any
    other one the draws are independent, taken under a random state that is seeded by the points and leaves
    the global one as it was.

    Args:
        proposal: Batch shape (B,), event shape (D,).
        u: Points in the unit cube, shape (M, B, D).

    Returns:
        Shape (M, B, D).
    """
    with torch.no_grad():
        if hasattr(proposal, "from_uniform"):
            return proposal.from_uniform(u)
        to_draws = uniform_map(proposal)
        return _seeded_sample(proposal, u) if to_draws is None else to_draws(u)


def place(proposal: Any, y: Tensor, u: Tensor) -> Tensor | None:
    """The first coordinate of a point that :func:`draw` sends to y; None where that is not known.

    Targets that are drawn from the proposal get uniform places.

    Args:
        proposal: Batch shape (B,), event shape (D,).
        y: Targets, shape (B, D).
        u: Uniform numbers, for a proposal that sends several points to y, shape (B,).

    Returns:
        Shape (B,), in [0, 1].
    """
    if hasattr(proposal, "place"):
        return proposal.place(y, u)
    if hasattr(proposal, "from_uniform"):
        return None
    with torch.no_grad():
        to_draws = uniform_map(proposal)
        return None if to_draws is None else to_draws.inverse(y)[:, 0].nan_to_num(0.5).clamp(0, 1)


def levels(q: Any, y: Tensor) -> Tensor:
    """Where targets lie in a proposal, as numbers in [0, 1]: (..., B, D) -> (..., B, D).

    The distribution function of each target by itself, or the point that :func:`draw` sends to y. For a
    proposal that has neither, the distribution function of a standard normal distribution.
    """
    if hasattr(q, "levels"):
        return q.levels(y)
    to_draws = uniform_map(q)
    return torch.special.ndtr(y) if to_draws is None else to_draws.inverse(y).nan_to_num(0.5).clamp(0, 1)


def log_prob(q: Any, y: Tensor) -> Tensor:
    """Log density of any Distribution: (..., B, D) -> (..., B); minus infinity outside of its support.

    A torch Distribution refuses values outside of its support.
    """
    if hasattr(q, "from_uniform"):
        return q.log_prob(y)
    inside = in_support(q, y)
    if inside is None or inside.all():
        return q.log_prob(y)
    some_inside = draw(q, torch.full_like(y.reshape(-1, *y.shape[-2:])[:1], 0.5))[0]
    values = torch.where(inside[..., None], y, some_inside)
    return q.log_prob(values).masked_fill(~inside, -torch.inf)


def in_support(q: Any, y: Tensor) -> Tensor | None:
    """Whether targets lie in the support of q: (..., B, D) -> (..., B); None where q does not say."""
    try:
        return q.support.check(y)
    except (NotImplementedError, AttributeError):
        return None


def check_proposal(name: str, q: Any, B: int, D: int) -> None:
    """Require a Distribution with batch shape (B,) and event shape (D,).

    Args:
        name: Of the argument, for messages.
        q: What the head gave.
        B: Number of rows.
        D: Number of targets.
    """
    if not hasattr(q, "log_prob") or not (hasattr(q, "sample") or hasattr(q, "from_uniform")):
        raise TypeError(
            f"{name} must return a torch Distribution with log_prob and sample, got {type(q).__name__}"
        )
    batch, event = tuple(getattr(q, "batch_shape", (B,))), tuple(getattr(q, "event_shape", (D,)))
    if (batch, event) != ((B,), (D,)):
        advice = "; wrap it in torch.distributions.Independent(..., 1)" if (*batch, *event) == (B, D) else ""
        raise ValueError(
            f"{name} must return a Distribution with batch shape ({B},), the rows, and event shape ({D},), "
            f"the targets; got batch shape {batch} and event shape {event}{advice}"
        )


def _seeded_sample(proposal: Distribution, u: Tensor) -> Tensor:
    with seeded(int(u.flatten()[0].item() * 2**53), u.device):
        try:
            return proposal.sample(u.shape[:1])
        except NotImplementedError as error:
            raise TypeError(
                f"the proposal must be a distribution that can be sampled, and {type(proposal).__name__} "
                "cannot: it has no sample(); use another proposal"
            ) from error
