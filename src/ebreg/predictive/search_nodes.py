"""SearchNodes: nodes over the box of one target that see modes which the proposal misses."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.distributions import GaussianMixture
from ebreg.predictive.accuracy import DEFAULT, Accuracy
from ebreg.predictive.places import Places
from ebreg.predictive.unnormalized import Unnormalized
from ebreg.units import Tail

# Distance of the nodes over the box, in standard units, and the scales of the narrowest component of the
# proposal that it may be. There are at most so many for each of the first nodes.
_SPACING, _IN_SCALES, _MOST_EVEN = 0.04, 4.0, 8
# How much closer they may be in rows that need it; its lightest components do not count.
_CLOSER, _MOST_EVEN_CLOSER = torch.tensor([1.0, 4.0, 16.0], dtype=torch.float64), 32
_LEAST_WEIGHT = 1e-3
_PLACES = Places.without_jump()


@dataclass(frozen=True)
class SearchNodes:
    """Nodes over the box that rows share, closer in rows whose proposal has narrow components.

    A mode is seen where its standard deviation is at least a quarter of the distance of the nodes. The
    proposal learns from the energy: where it has narrower modes than that, the energy may have others.

    Attributes:
        tail: Its box; None: there is none.
        spacing: Distance of the nodes where most targets lie.
        fewest: Nodes where nothing has to be searched for; 0 where something has.
        most: Most nodes over the box, of all rows and of those that need closer ones.
    """

    tail: Tail | None
    spacing: float
    fewest: int
    most: tuple[int, int]

    @classmethod
    def of(cls, target: Unnormalized, accuracy: Accuracy) -> "SearchNodes":
        """For rows with some accuracy."""
        n_nodes = accuracy.n_nodes
        spacing = _SPACING * DEFAULT.n_nodes / n_nodes
        fewest = 0 if target.may_hide_modes and accuracy.search else n_nodes // 4
        return cls(target.tail, spacing, fewest, (_MOST_EVEN * n_nodes, _MOST_EVEN_CLOSER * n_nodes))

    @torch.no_grad()
    def kinds(self, target: Unnormalized) -> tuple[Tensor, Tensor]:
        """Which kind of nodes each row needs, (B,), and whether even the closest are too far apart, (B,)."""
        nothing = torch.zeros(len(target), dtype=torch.long, device=target.h.device)
        q = target.proposal
        if self.tail is None or self.fewest or not isinstance(q, GaussianMixture):
            return nothing, nothing.bool()
        means, scales = q.means[..., 0].double(), q.scales[..., 0].double()  # (B, K)
        means = means.clamp(self.tail.low, self.tail.high)
        suits = (_IN_SCALES * scales / _PLACES.growth(means)).masked_fill(
            q.logits.softmax(dim=1) < _LEAST_WEIGHT, torch.inf
        )
        available = torch.tensor([self._distance(k) for k in range(len(_CLOSER))], dtype=torch.float64)
        needed = suits.amin(dim=1)
        kind = (available.to(needed) > needed[:, None]).sum(dim=1)
        return kind.clamp(max=len(_CLOSER) - 1), kind == len(_CLOSER)

    def nodes(self, kind: int) -> Tensor:
        """Of one kind, (G,)."""
        if self.tail is None:
            return torch.empty(0, dtype=torch.float64)
        if self.fewest:
            return _nodes_over(self.tail, 0.0, self.fewest)
        most = self.most[0] if kind == 0 else self.most[1]
        return _nodes_over(self.tail, self.spacing / _CLOSER[kind].item(), most)

    def _distance(self, kind: int) -> float:
        nodes = self.nodes(kind)
        return (nodes.diff() / _PLACES.growth(nodes[1:])).amax().item()


def _nodes_over(tail: Tail, spacing: float, most: int) -> Tensor:
    # Over the box of a tail of one target, both ends included, (n,); all are further apart where the distance
    # that is asked for takes more than are allowed.
    low, high = _PLACES.of(tail.low), _PLACES.of(tail.high)
    n = 2 + int(((high - low) / max(spacing, 1e-9)).clamp(max=most - 2).item())
    t = torch.linspace(0, 1, n, dtype=torch.float64, device=low.device)
    nodes = _PLACES.targets(low + t * (high - low))
    nodes[0], nodes[-1] = tail.low[0], tail.high[0]  # rounding must not move the ends
    return nodes
