"""Models: EnergyModel, an energy with its proposal on one backbone, and MixtureModel, a mixture alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ebreg import checks, networks
from ebreg.distributions import GaussianMixture
from ebreg.predictive import ImportanceND, Predictive, Quadrature1D, Rescaled
from ebreg.proposals import RowByRow
from ebreg.scaling import Standardizer, Tail


class Model(nn.Module):
    """What every model has: a backbone, and the units of x and y.

    Args:
        backbone: Turns inputs into features (B, H).
        n_targets: D.
        x_units: Applied to x before the backbone; None hands x to the backbone as it is.
        y_units: None keeps the user's units inside too.
    """

    def __init__(
        self,
        backbone: nn.Module,
        n_targets: int,
        x_units: Standardizer | None = None,
        y_units: Standardizer | None = None,
    ):
        super().__init__()
        self.backbone = backbone
        self.n_targets = n_targets
        self.x_units = x_units
        self.y_units = y_units or Standardizer.identity(n_targets, "y")

    @property
    def like(self) -> Tensor:
        """A tensor with the dtype and device that the networks compute in."""
        return next(self.parameters())

    def features(self, x: Tensor) -> Tensor:
        """Inputs in the user's units -> features (B, H)."""
        x = x if self.x_units is None else self.x_units(x)
        return self.backbone(x.to(self.like.dtype) if x.is_floating_point() else x)

    def standardize(self, y: Tensor) -> Tensor:
        """Targets in the user's units, (..., D) -> standard units, in the networks' dtype."""
        return self.y_units(y).to(self.like.dtype)

    @torch.no_grad()
    def predictive(self, x: Any, **settings: Any) -> Predictive:
        """p(y | x) in the user's units for a batch of inputs, with the networks in evaluation mode.

        Args:
            x: A batch of inputs: a tensor, or what can be turned into one.
            **settings: For an EnergyModel, those of :class:`ebreg.predictive.Quadrature1D` for one target
                and of :class:`ebreg.predictive.ImportanceND` for several.
        """
        x = checks.numbers("x", x).to(self.like.device)
        checks.finite("x", x)
        with evaluating(self):
            return self._predictive(self.features(x), **settings)

    def log_prob(self, x: Any, y: Any) -> Tensor:
        """Log density of targets y, (B, D), in the user's units, shape (B,)."""
        return self.predictive(x).log_prob(checks.numbers("y", y).to(self.y_units.scale))

    def _predictive(self, h: Tensor) -> Predictive:
        raise NotImplementedError  # abstract


class MixtureModel(Model):
    """A mixture density network q(y | x): features, then a head that gives a Distribution.

    Args:
        backbone: Turns inputs into features (B, H).
        head: Turns features into a GaussianMixture, or any torch Distribution with event shape (D,).
        n_targets: D; read off a MixtureHead.
        x_units: See :class:`Model`.
        y_units: See :class:`Model`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        n_targets: int | None = None,
        x_units: Standardizer | None = None,
        y_units: Standardizer | None = None,
    ):
        super().__init__(backbone, _targets_of(head, n_targets), x_units, y_units)
        self.head = head

    @classmethod
    def for_table(cls, x: Any, y: Any, n_components: int = 8, width: int = 64) -> "MixtureModel":
        """The default for a table x (n, C) with targets y (n, D), in their units."""
        x, y = _same_rows(x, y)
        parts = networks.table(x.shape[1], y.shape[1], n_components, width)
        return cls(
            parts.backbone,
            parts.mixture,
            x_units=Standardizer.of("x", x),
            y_units=Standardizer.robust("y", y),
        )

    def q(self, h: Tensor) -> Distribution:
        """The distribution in standard units, from features (B, H)."""
        return self.head(h)

    @torch.no_grad()
    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Log density of targets y, (B, D), in the user's units, shape (B,); for any Distribution."""
        with evaluating(self):
            log_q = self.q(self.features(x)).log_prob(self.standardize(y))
        return log_q - self.y_units.scale.log().sum()

    def _predictive(self, h: Tensor) -> Predictive:
        q = self.q(h)
        if not isinstance(q, GaussianMixture):
            raise TypeError(
                f"a predictive distribution needs a GaussianMixture, this head gives a {type(q).__name__}; "
                "use it as the proposal of an EnergyModel, or call q(features(x)) for the distribution itself"
            )
        return q.rescaled(self.y_units.shift, self.y_units.scale)


class EnergyModel(Model):
    """p(y | x) proportional to exp f(x, y), with the proposal q(y | x) that makes it usable.

    Args:
        backbone: Turns inputs into features (B, H).
        energy: f: features (B, H) and targets (M, B, D) -> (M, B).
        proposal: Turns features into a torch Distribution with event shape (D,).
        n_targets: D; read off an EnergyHead.
        x_units: See :class:`Model`.
        y_units: See :class:`Model`.
        tail: Where the energy ends, in standard units; None leaves f to the network alone.
    """

    def __init__(
        self,
        backbone: nn.Module,
        energy: nn.Module,
        proposal: nn.Module,
        n_targets: int | None = None,
        x_units: Standardizer | None = None,
        y_units: Standardizer | None = None,
        tail: Tail | None = None,
    ):
        super().__init__(backbone, _targets_of(energy, n_targets), x_units, y_units)
        self.energy = energy
        self.proposal = proposal
        self.tail = tail

    @classmethod
    def for_table(cls, x: Any, y: Any, n_components: int = 8, width: int = 64) -> "EnergyModel":
        """The default for a table x (n, C) with targets y (n, D), in their units."""
        x, y = _same_rows(x, y)
        parts = networks.table(x.shape[1], y.shape[1], n_components, width)
        y_units = Standardizer.robust("y", y)
        return cls(
            parts.backbone,
            parts.energy,
            parts.mixture,
            x_units=Standardizer.of("x", x),
            y_units=y_units,
            tail=Tail.of(y_units(y)),
        )

    def f(self, h: Tensor, y: Tensor) -> Tensor:
        """Energy in standard units: (B, H) and (M, B, D) or (B, D) -> (M, B) or (B,)."""
        if self.tail is None:
            return self.energy(h, y)
        inside, penalty = self.tail.split(y)
        return self.energy(h, inside) - penalty

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
        return self.proposal(h)

    def _predictive(self, h: Tensor, **settings: Any) -> Predictive:
        q: Any = self.q(h)
        if not hasattr(q, "from_uniform"):
            q = RowByRow(self.proposal, h)
        support = None if self.tail is None else (self.tail.low, self.tail.high, self.tail.width)

        def energy(y: Tensor) -> Tensor:
            with evaluating(self):
                return self.f(h, y.to(h.dtype))

        base: Predictive
        if self.n_targets == 1:
            base = Quadrature1D(energy, q, len(h), support=support, **settings)
        else:
            base = ImportanceND(energy, q, len(h), self.n_targets, support=support, **settings)
        return Rescaled(base, self.y_units.shift, self.y_units.scale)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while: dropout is off, batch-norm keeps its statistics, rows are independent."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _targets_of(head: nn.Module, n_targets: int | None) -> int:
    known = getattr(head, "n_targets", None) if n_targets is None else n_targets
    if known is None:
        raise ValueError(
            f"n_targets must be given: a {type(head).__name__} does not say how many targets it has"
        )
    return known


def _same_rows(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    x, y = checks.table("x", x), checks.table("y", y)
    if len(x) != len(y):
        raise ValueError(f"x and y must have as many rows as each other, got {len(x)} and {len(y)}")
    return x, y
