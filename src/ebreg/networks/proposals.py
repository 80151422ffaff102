"""Proposals: the networks that give q(y | x), by name or of the user's own."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from ebreg._utils import checks
from ebreg.errors import NetworkError
from ebreg.networks.full_mixture_head import FullMixtureHead
from ebreg.networks.presets import Networks

# The mixture with diagonal covariances, which the presets of networks have.
DEFAULT_PROPOSAL = "mixture"


def full_mixture(
    n_features: int, n_targets: int, n_components: int = 8, min_scale: float = 1e-3
) -> nn.Module:
    """A mixture with full covariances, for targets that depend on each other."""
    return FullMixtureHead(n_features, n_targets, n_components, min_scale=min_scale)


def flow(n_features: int, n_targets: int, n_components: int = 8, min_scale: float = 1e-3) -> nn.Module:
    """A neural spline flow of zuko with ``n_components`` bins.

    One transform suffices for one target: it can have any monotone shape.
    """
    try:
        import zuko
    except ImportError as missing:
        raise ImportError('a flow needs zuko: pip install "ebreg[flows]"') from missing
    return zuko.flows.NSF(
        features=n_targets,
        context=n_features,
        transforms=1 if n_targets == 1 else 3,
        bins=max(2, n_components),
        hidden_features=(n_features, n_features),
    )


# Heads by name, from H, D, K and the smallest scale of a component.
PROPOSALS: dict[str, Callable[..., nn.Module]] = {"full-mixture": full_mixture, "flow": flow}


def build_head(name: str, head: Any, n_features: int, n_targets: int) -> nn.Module:
    """A head of the user's own: a copy of a module, or what a factory makes.

    Args:
        name: Of the argument, for messages.
        head: A module, or a function of H and D that returns one.
        n_features: H.
        n_targets: D.
    """
    if isinstance(head, nn.Module):
        return copy.deepcopy(head)
    if not callable(head):
        raise NetworkError(
            f"{name} must be a torch module, or a function of n_features and n_targets that returns one; "
            f"got {head!r}"
        )
    try:
        made = head(n_features, n_targets)
    except TypeError as error:
        raise NetworkError(f"{name} must be a function of n_features and n_targets: {error}") from error
    if not isinstance(made, nn.Module):
        raise NetworkError(f"{name} must return a torch module, it returned {type(made).__name__}")
    return made


def with_heads(
    parts: Networks,
    proposal: Any,
    energy: Any,
    n_features: int,
    n_targets: int,
    n_components: int = 8,
    min_scale: float = 1e-3,
) -> Networks:
    """Networks with other heads in place of the mixture and of the energy.

    Args:
        parts: Networks with the mixture of the presets.
        proposal: "mixture" keeps it; a name in ``PROPOSALS``; or a head of the user's own.
        energy: None keeps the energy; or a head of the user's own.
        n_features: H.
        n_targets: D.
        n_components: K, of a proposal by name.
        min_scale: Smallest scale of its components.
    """
    if isinstance(proposal, str):
        checks.one_of("proposal", proposal, [DEFAULT_PROPOSAL, *PROPOSALS])
        if proposal != DEFAULT_PROPOSAL:
            made = PROPOSALS[proposal](n_features, n_targets, n_components, min_scale)
            parts = replace(parts, mixture=made)
    else:
        parts = replace(parts, mixture=build_head("proposal", proposal, n_features, n_targets))
    if energy is not None:
        parts = replace(parts, energy=build_head("energy", energy, n_features, n_targets))
    return parts
