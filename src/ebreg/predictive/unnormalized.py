"""Unnormalized: exp f(x, y) of a batch of inputs, with its proposal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ebreg.errors import UndefinedError
from ebreg.units import Bounds, Standardizer, Tail


@dataclass(frozen=True)
class Unnormalized:
    """What a predictive distribution is made from: f, q and the features of B inputs.

    Attributes:
        f: Features (B, H) and targets (M, B, D) -> f, (M, B).
        h: Features, shape (B, H).
        proposal: Of the rows, with ``from_uniform``, ``log_prob`` and rows that can be indexed.
        tail: Where the energy ends; None: the proposal's draws have to reach everything.
        y_units: From standard units to the user's.
        bounds: Of the targets, in the user's units.
        grid: Features (B, H) and targets that all rows share, (G, D) -> f, (G, B), in the precision of the
            targets; None: f itself is evaluated there.
        log_ratio_bound: Of each row, what f - log q exceeds nowhere, shape (B,); None: nothing is known.
    """

    f: Callable[[Tensor, Tensor], Tensor]
    h: Tensor
    proposal: Any
    tail: Tail | None
    y_units: Standardizer
    bounds: Bounds
    grid: Callable[[Tensor, Tensor], Tensor] | None = None
    log_ratio_bound: Tensor | None = None

    def __len__(self) -> int:
        return len(self.h)

    def __getitem__(self, rows: Any) -> "Unnormalized":
        """Some of the rows: a slice, row numbers or a mask."""
        bound = None if self.log_ratio_bound is None else self.log_ratio_bound[rows]
        return replace(self, h=self.h[rows], proposal=self.proposal[rows], log_ratio_bound=bound)

    def joined(self, others: Sequence["Unnormalized"]) -> "Unnormalized":
        """These rows and, below them, those of others."""
        return replace(
            self,
            h=torch.cat([self.h, *(other.h for other in others)]),
            log_ratio_bound=_together([self.log_ratio_bound, *(other.log_ratio_bound for other in others)]),
            proposal=self.proposal.joined([other.proposal for other in others]),
        )

    @property
    def n_targets(self) -> int:
        """D."""
        return len(self.y_units.scale)

    def energy(self, y: Tensor) -> Tensor:
        """F at targets (M, B, D) in standard units, shape (M, B), float64."""
        return _checked(self.f(self.h, y).double())

    def on_grid(self, y: Tensor) -> Tensor:
        """F at targets (G, D) in standard units that all rows share, in their precision, shape (G, B)."""
        if self.grid is None:
            return self.energy(y.double()[:, None].expand(-1, len(self), -1)).to(y.dtype)
        return _checked(self.grid(self.h, y))

    @property
    def may_hide_modes(self) -> bool:
        """Whether there may be mass in the box of the tail where the proposal has none."""
        return self.tail is not None and self.log_ratio_bound is None

    @property
    def proposal_in_units(self) -> Any:
        """In the user's units."""
        q = self.proposal.rescaled(self.y_units.shift, self.y_units.scale)
        # To standard units and back, the bounds may have moved by a rounding error.
        return q.between(self.bounds.low, self.bounds.high) if hasattr(q, "between") else q

    @property
    def log_scale(self) -> Tensor:
        """Log of the Jacobian from standard units to the user's, shape ()."""
        return self.y_units.scale.log().sum()

    def to_units(self, y: Tensor) -> Tensor:
        """From standard units to the user's: (..., D) -> (..., D); rounding does not leave the bounds."""
        return self.y_units.inverse(y).clamp(self.bounds.low, self.bounds.high)


def _together(bounds: Sequence[Tensor | None]) -> Tensor | None:
    known = [bound for bound in bounds if bound is not None]
    return torch.cat(known) if len(known) == len(bounds) else None


def _checked(f: Tensor) -> Tensor:
    if not (f < torch.inf).all():  # NaN included
        raise UndefinedError(
            "energy, or log density, is NaN or infinite for some targets: its weights are not finite, or it "
            "overflows; train again with a lower learning rate, or return finite values"
        )
    return f
