"""MassAbove: how much mass of a log-linear density lies above a level."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.distributions import segments
from ebreg.distributions.log_linear_parts import Parts


@dataclass(frozen=True)
class MassAbove:
    """The mass where a log-linear density exceeds a level, in closed form.

    Attributes:
        top: The largest log density in each segment and tail, shape (B, N + 1).
        drop: How far it falls from there, shape (B, N + 1).
        per_loss: Mass for each unit of what a segment has lost at its lower end, relative to its top.
    """

    top: Tensor
    drop: Tensor
    per_loss: Tensor

    @classmethod
    def of(cls, parts: Parts) -> "MassAbove":
        """Of the parts of a density."""
        log_f = parts.log_f
        # Segments and tails alike fall exponentially from their top.
        top = torch.cat([log_f[:, :1], torch.maximum(log_f[:, 1:], log_f[:, :-1]), log_f[:, -1:]], dim=1)
        endless = log_f.new_full((len(log_f), 1), torch.inf)
        drop = torch.cat([endless, parts.rise.abs(), endless], dim=1).clamp_min(segments.LEVEL)
        return cls(top, drop, parts.mass / segments.loss(drop))

    def __call__(self, level: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Minus the mass above levels, and its derivative.

        Args:
            level: Log density before normalisation, shape (n,).
            rows: Whose levels these are, shape (n,).

        Returns:
            Shape (n,) each.
        """
        some = slice(None) if len(rows) == len(self.top) else rows
        drop, per_loss = self.drop[some], self.per_loss[some]
        depth = (self.top[some] - level[:, None]).clamp_min(0).minimum(drop)
        loss = segments.loss(depth)
        is_cut = (depth > 0) & (depth < drop)
        slope = torch.where(is_cut, 1 - loss, 0.0)
        return -(per_loss * loss).sum(dim=1), (per_loss * slope).sum(dim=1)
