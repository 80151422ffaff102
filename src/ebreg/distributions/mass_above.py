"""MassAbove: how much mass of a log-linear density lies above a level."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg.distributions import segments
from ebreg.distributions.log_linear_parts import Parts
from ebreg.distributions.quantiles import solve_quantile

# Below this level relative to the peak there is no mass that a float64 could hold.
_LOWEST_LEVEL = -1400.0
# Less mass than this is a rounding error; the mass of a region is as exact as that.
_MISSING, _EXACT = 1e-10, 1e-13
# Of the range of log densities, to find the level of a level stretch to the last digit.
_HALVINGS = 80


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

    def level_of(self, mass: float) -> Tensor:
        """The highest log density (before normalisation) that is exceeded with this probability, (B,)."""
        low = torch.full_like(self.top[:, 0], _LOWEST_LEVEL)
        high = torch.zeros_like(low)
        normal = torch.full_like(low, -0.5 * torch.special.ndtri(torch.tensor(0.5 + 0.5 * mass)).item() ** 2)
        level = solve_quantile(torch.full_like(low, -mass), self, low, high, normal, tolerance=_EXACT)
        # Where the density is level its mass comes all at once, and no level gives what was asked: the answer
        # is the highest that gives more. Newton's steps may have ended far from it.
        missing = self(level, torch.arange(len(level), device=level.device))[0] + mass
        rows = (missing.abs() > _MISSING).nonzero()[:, 0]
        if not len(rows):
            return level
        low, high = low[rows], high[rows]
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            is_enough = self(middle, rows)[0] <= -mass
            low, high = torch.where(is_enough, middle, low), torch.where(is_enough, high, middle)
        return level.index_copy(0, rows, low)
