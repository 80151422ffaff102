"""EnergyModel: an energy with its proposal, on one backbone."""

import copy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ebreg import networks
from ebreg.models import heads, members
from ebreg.models.evaluation_mode import evaluation_mode
from ebreg.models.heads import distribution_of, targets_of
from ebreg.models.model import Model
from ebreg.networks import Networks
from ebreg.predictive import Accuracy, Predictive, Unnormalized, normalize
from ebreg.sampling import proposal_rows
from ebreg.units import Bounds, Standardizer, Tail, Units


class EnergyModel(Model):
    """p(y | x) proportional to exp f(x, y), with the proposal q(y | x) that makes it usable.

    Args:
        backbone: Turns inputs into features (B, H).
        energy: f: features (B, H) and targets (M, B, D) or (B, D) -> (M, B) or (B,).
        proposal: Turns features into a torch Distribution with batch shape (B,) and event shape (D,). If it
            has a :func:`ebreg.sampling.uniform_map`, as flows have, all rows are sampled at once.
        n_targets: D; read off an EnergyHead.
        x_units: See :class:`Model`.
        y_units: See :class:`Model`.
        tail: Where the energy ends, in standard units; None leaves f to the network alone.
        bounds: See :class:`Model`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        energy: nn.Module,
        proposal: nn.Module,
        n_targets: int | None = None,
        x_units: nn.Module | None = None,
        y_units: Standardizer | None = None,
        tail: Tail | None = None,
        bounds: Bounds | None = None,
    ):
        super().__init__(backbone, targets_of(energy, n_targets), x_units, y_units, bounds)
        self.energy = energy
        self.proposal = proposal
        self.tail = tail
        self._have_members()

    @classmethod
    def of(cls, parts: Networks, units: Units | None = None) -> Self:
        """From networks and units that go together; None: the networks work in the user's units."""
        if units is None:
            return cls(parts.backbone, parts.energy, parts.mixture)
        return cls(
            parts.backbone,
            parts.energy,
            parts.mixture,
            n_targets=len(units.y.shift),
            x_units=units.x,
            y_units=units.y,
            tail=units.tail,
            bounds=units.bounds,
        )

    @property
    def standard_bounds(self) -> Bounds | None:
        """The bounds of the targets in standard units; None where there are none."""
        return None if self.tail is None or self.tail.bounds.are_open else self.tail.bounds

    def f(self, h: Tensor, y: Tensor) -> Tensor:
        """Energy in standard units: (B, H) and (M, B, D) or (B, D) -> (M, B) or (B,)."""
        if self.tail is None:
            return self._energy(h, y)
        inside, penalty = self.tail.split(y)
        return self._energy(h, inside) - penalty

    def f_grid(self, h: Tensor, y: Tensor) -> Tensor:
        """Energy at targets that all rows share, in standard units: (B, H) and (G, D) -> (G, B)."""
        grid = getattr(self.energy, "grid", None)
        if grid is None:  # an energy of the user's own
            return self.f(h, y[:, None].expand(-1, len(h), -1))
        if self.tail is None:
            return grid(h, y)
        inside, penalty = self.tail.split(y)
        return grid(h, inside) - penalty[:, None]

    def q(self, h: Tensor) -> Distribution:
        """The proposal in standard units, from features (B, H)."""
        return distribution_of("proposal", self.proposal, h, self.n_targets)

    def _energy(self, h: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.energy, networks.EnergyHead):
            return self.energy(h, y)
        shapes = f"features of shape {tuple(h.shape)} and targets of shape {tuple(y.shape)}"
        f = heads.call("energy", self.energy, shapes, h, y)
        if not isinstance(f, Tensor) or f.shape != y.shape[:-1]:
            got = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
            raise ValueError(
                f"energy must return one value for each target, shape {tuple(y.shape[:-1])} for targets of "
                f"shape {tuple(y.shape)}; it returned {got}"
            )
        return f

    def _predictive(self, target: Unnormalized, accuracy: Accuracy) -> Predictive:
        return normalize(target, accuracy)

    def _log_z(self, target: Unnormalized, accuracy: Accuracy) -> Tensor:
        log_partition = members.of_each(
            target, self.n_members, lambda p: normalize(p, accuracy).log_partition
        )
        return log_partition - target.log_scale

    def _unnormalized(self, h: Tensor) -> Unnormalized:
        proposal = proposal_rows(self._q_for_prediction, h)
        return Unnormalized(
            self._f_for_prediction,
            h,
            proposal,
            self.tail,
            self.y_units,
            self.bounds,
            grid=self._grid_for_prediction,
        )

    def _f_for_prediction(self, h: Tensor, y: Tensor) -> Tensor:
        with evaluation_mode(self):
            return self.f(h, y.to(h.dtype)) / self.temperature

    def _grid_for_prediction(self, h: Tensor, y: Tensor) -> Tensor:
        # In the precision of y; with members, features and values are in blocks.
        with evaluation_mode(self):
            head: Any = self.energy
            if not hasattr(head, "grid"):  # an energy of the user's own
                return self._f_for_prediction(h, y[:, None].expand(-1, len(h), -1))
            if y.dtype != self.reference.dtype:
                head = copy.deepcopy(head).to(y.dtype)
            inside, penalty = (y, y.new_zeros(len(y))) if self.tail is None else self.tail.split(y)
            f: Tensor = head.grid(h.to(y.dtype), inside) - penalty[:, None]
            return f / self.temperature

    def answers_by_draws(self, accuracy: Accuracy) -> bool:
        """See :meth:`Model.answers_by_draws`."""
        return self.n_targets > 1 or accuracy.engine == "importance"

    @property
    def _q_head(self) -> nn.Module:
        return self.proposal

    def _check_energy(self, h: Tensor, y: Tensor) -> None:
        if not torch.isfinite(self.f(h, y)).all():
            raise ValueError("energy must return finite values; it gave NaN or infinity for the first rows")
