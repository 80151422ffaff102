"""Units: all that a model must know about the scales of a data set, learned from it or loaded later."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ebreg._utils import checks
from ebreg.units.bounds import Bounds
from ebreg.units.standardizer import Standardizer
from ebreg.units.tail import Tail


@dataclass(frozen=True)
class Units:
    """The units of a model.

    Attributes:
        x: Of the inputs, such as those of a table or of pixels; None: a backbone takes them as they are.
        y: Of the targets.
        bounds: Of the targets, in the user's units.
        tail: Where the energy ends, in standard units; None leaves that to the network.
    """

    x: nn.Module | None
    y: Standardizer
    bounds: Bounds
    tail: Tail | None

    @classmethod
    def of(cls, x: Any, y: Any, bounds: Bounds | None = None) -> "Units":
        """Learn them from a table x (n, C), or None, and targets y (n, D)."""
        y = checks.table("y", y)
        if x is not None:
            x = checks.table("x", x)
            if len(x) != len(y):
                raise ValueError(f"x and y must have as many rows as each other, got {len(x)} and {len(y)}")
        bounds = bounds or Bounds.none(y.shape[1])
        y_units = Standardizer.robust("y", y)
        return cls(
            None if x is None else Standardizer.of("x", x),
            y_units,
            bounds,
            Tail.of(y_units(y), bounds.standardized(y_units).near(y_units(y))),
        )

    @property
    def standard_bounds(self) -> Bounds:
        """The bounds of the targets, in standard units."""
        return self.bounds.standardized(self.y) if self.tail is None else self.tail.bounds

    @classmethod
    def raw(cls, x: nn.Module | None, n_targets: int) -> "Units":
        """Targets are learned as they are, and nothing is known of their range."""
        return cls(x, Standardizer.identity(n_targets, "y"), Bounds.none(n_targets), None)

    @classmethod
    def blank(cls, n_inputs: int | None, n_targets: int, bounded: bool) -> "Units":
        """Of the same structure, for a state dict to fill."""
        D = n_targets
        # The bounds in the user's units and those in standard units are two modules to fill.
        bounds = [Bounds(torch.zeros(D), torch.ones(D)) if bounded else Bounds.none(D) for _ in range(2)]
        return cls(
            None if n_inputs is None else Standardizer.identity(n_inputs, "x"),
            Standardizer.identity(D, "y"),
            bounds[0],
            Tail(torch.zeros(D), torch.ones(D), torch.ones(D), bounds[1]),
        )
