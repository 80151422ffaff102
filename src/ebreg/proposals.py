"""How draws are taken from a proposal: by its own ``from_uniform``, or from any torch Distribution."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, TransformedDistribution


def draw(proposal: Distribution, u: Tensor) -> Tensor:
    """Draws that depend on nothing but the proposal and the points u; not differentiated.

    A proposal with ``from_uniform`` turns the points into draws. From any other one the draws are
    independent, taken under a random state that is seeded by the points and leaves the global one as it was.

    Args:
        proposal: Batch shape (B,), event shape (D,).
        u: Points in the unit cube, shape (M, B, D).

    Returns:
        Shape (M, B, D).
    """
    if hasattr(proposal, "from_uniform"):
        return proposal.from_uniform(u)
    devices = [u.device] if u.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.random.manual_seed(int(u.flatten()[0].item() * 2**53))
        return proposal.sample(u.shape[:1])


class RowByRow:
    """A proposal whose draws for a row do not depend on the other rows.

    A torch Distribution samples a batch as a whole; here every row is built and sampled for itself.

    Args:
        head: Turns features (B, H) into a Distribution.
        h: Features, shape (B, H).
    """

    def __init__(self, head: Callable[[Tensor], Distribution], h: Tensor):
        self._head, self._h = head, h
        self._batch = head(h)

    def log_prob(self, y: Tensor) -> Tensor:
        """(M, B, D) -> (M, B)."""
        return self._batch.log_prob(y)

    def from_uniform(self, u: Tensor) -> Tensor:
        """(M, B, D) -> (M, B, D)."""
        u = u.to(self._h.device)
        rows = [draw(self._head(self._h[i : i + 1]), u[:, i : i + 1]) for i in range(len(self._h))]
        return torch.cat(rows, dim=1)

    def rescaled(self, shift: Tensor, scale: Tensor) -> Distribution:
        """The distribution of shift + scale * y, as a torch Distribution; both have shape (D,)."""
        return TransformedDistribution(
            self._batch, AffineTransform(shift, scale, event_dim=1), validate_args=False
        )
