"""Calls of networks, which may be the user's own: what is wrong with them is said in a sentence."""

from torch import Tensor, nn
from torch.distributions import Distribution

from ebreg import networks
from ebreg._utils.memory import is_out_of_memory
from ebreg.sampling import check_proposal

# What a network raises for inputs that it was not built for.
FAILURES = (RuntimeError, IndexError, AssertionError)


def distribution_of(name: str, head: nn.Module, h: Tensor, n_targets: int) -> Distribution:
    """The Distribution that a head gives for features (B, H); ``name`` is the head's in messages."""
    if isinstance(head, networks.MixtureHead):
        return head(h)
    try:
        q = head(h)
    except FAILURES as error:
        raise explained(name, f"features of shape {tuple(h.shape)}", error) from error
    check_proposal(name, q, len(h), n_targets)
    return q


def explained(name: str, inputs: str, error: Exception) -> Exception:
    """The error to raise for one inside of a network of the user's own; too little memory is no mistake."""
    if is_out_of_memory(error):
        return error
    return ValueError(f"{name} failed on {inputs}: {error}")


def targets_of(head: nn.Module, n_targets: int | None) -> int:
    """D, as given or as a head of the library says."""
    known = getattr(head, "n_targets", None) if n_targets is None else n_targets
    if known is None:
        raise ValueError(
            f"n_targets must be given: a {type(head).__name__} does not say how many targets it has"
        )
    return known
