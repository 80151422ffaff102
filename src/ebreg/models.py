"""Models: EnergyModel, an energy with its proposal on one backbone, and MixtureModel, a mixture alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ebreg import networks
from ebreg._utils import checks
from ebreg._utils.memory import is_out_of_memory
from ebreg.distributions import GaussianMixture, TruncatedMixture
from ebreg.errors import UndefinedError
from ebreg.networks import Networks
from ebreg.predictive import Predictive, Rescaled, Support, Unnormalized
from ebreg.sampling import RowByRow
from ebreg.units import Bounds, Standardizer, Tail, Units

# Inputs further out than this many standard deviations count as this far: networks overflow in the end.
_FARTHEST = 1e6


class Model(nn.Module):
    """What every model has: a backbone, and the units of x and y.

    Args:
        backbone: Turns inputs into features (B, H).
        n_targets: D.
        x_units: Applied to x before the backbone; None hands x to the backbone as it is.
        y_units: None keeps the user's units inside too.
        bounds: Ends of the targets, in the user's units; the heads know them in standard units.
    """

    def __init__(
        self,
        backbone: nn.Module,
        n_targets: int,
        x_units: nn.Module | None = None,
        y_units: Standardizer | None = None,
        bounds: Bounds | None = None,
    ):
        super().__init__()
        self.backbone = backbone
        self.n_targets = n_targets
        self.x_units = x_units
        self.y_units = y_units or Standardizer.identity(n_targets, "y")
        self.bounds = bounds or Bounds.none(n_targets)

    @classmethod
    def of(cls, parts: Networks, units: Units | None = None) -> Self:
        """From networks and units that go together."""
        raise NotImplementedError  # abstract

    @classmethod
    def for_table(
        cls, x: Any, y: Any, n_components: int = 8, width: int = 64, bounds: Bounds | None = None
    ) -> Self:
        """The default for a table x (n, C) with targets y (n, D), in their units."""
        x, y = checks.table("x", x), checks.table("y", y)
        units = Units.of(x, y, bounds)
        parts = networks.table(x.shape[1], y.shape[1], n_components, width, bounds=units.ends)
        return cls.of(parts, units)

    @property
    def quick(self) -> dict[str, int]:
        """Settings of :meth:`predictive` that suffice to compare one epoch with another."""
        return {}

    @torch.no_grad()
    def proposal_at(self, x: Any) -> Any:
        """The proposal for a batch of inputs, as a Distribution in the user's units."""
        return self.predictive(x).proposal

    def relevant(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Those of some settings that :meth:`predictive` takes."""
        return {}

    @property
    def like(self) -> Tensor:
        """A tensor with the dtype and device that the heads compute in."""
        heads = (p for part in self.children() if part is not self.backbone for p in part.parameters())
        return next(heads, next(self.backbone.parameters(), self.y_units.scale))

    def features(self, x: Tensor) -> Tensor:
        """Inputs in the user's units -> features (B, H)."""
        if self.x_units is not None:
            x = self.x_units(x).clamp(-_FARTHEST, _FARTHEST)
        own = next(self.backbone.parameters(), self.like)
        x = x.to(own.dtype) if x.is_floating_point() else x
        try:
            h = self.backbone(x)
        except (RuntimeError, IndexError, AssertionError) as error:
            if isinstance(self.backbone, networks.MLP) or is_out_of_memory(error):
                raise  # not the user's mistake
            shape = tuple(x.shape)
            raise ValueError(f"the backbone failed on inputs of shape {shape}, {x.dtype}: {error}") from error
        return h if h.dtype == self.like.dtype or torch.is_autocast_enabled() else h.to(self.like.dtype)

    def standardize(self, y: Tensor) -> Tensor:
        """Targets in the user's units, (..., D) -> standard units, in the networks' dtype."""
        return self.y_units(y).to(self.like.dtype)

    @torch.no_grad()
    def predictive(self, x: Any, **settings: Any) -> Predictive:
        """p(y | x) in the user's units for a batch of inputs, with the networks in evaluation mode.

        Args:
            x: A batch of inputs: a tensor, or what can be turned into one.
            **settings: For an EnergyModel, those of :class:`ebreg.predictive.Quadrature1D` for one target
                and of :class:`ebreg.predictive.ImportanceND` for several. Rows for which ``n_nodes`` or
                ``n_draws`` are too few get up to ``max_nodes`` or ``max_draws``, by default 16 times as many;
                draws then come from a mixture fitted to the row's first ones.
        """
        x = checks.numbers("x", x).to(self.like.device)
        checks.finite("x", x)
        with evaluating(self):
            return self._predictive(self.finite_features(x), **settings)

    def finite_features(self, x: Tensor) -> Tensor:
        """The same; features that are not finite are an UndefinedError, and no answer."""
        h = self.features(x)
        bad = ~torch.isfinite(h).flatten(1).all(dim=1)
        if bad.any():
            raise UndefinedError(
                "features are not finite: some inputs are too large for the precision of the backbone, or "
                "its weights are not finite"
            )
        return h

    def log_prob(self, x: Any, y: Any, **settings: Any) -> Tensor:
        """Log density of targets y, (B, D), in the user's units, shape (B,); see :meth:`predictive`."""
        return self.predictive(x, **settings).log_prob(checks.numbers("y", y).to(self.y_units.scale))

    def exact(self) -> Self:
        """Turn the library's own networks to float64, in place, and return the model.

        A row's answer then does not depend, to some 1e-12, on the rows computed beside it. A backbone of the
        user's own keeps its dtype: it may well cast its inputs itself.
        """
        for part in self.children():
            if part is not self.backbone or isinstance(part, networks.MLP):
                part.double()
        return self

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
        bounds: See :class:`Model`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        n_targets: int | None = None,
        x_units: nn.Module | None = None,
        y_units: Standardizer | None = None,
        bounds: Bounds | None = None,
    ):
        super().__init__(backbone, _targets_of(head, n_targets), x_units, y_units, bounds)
        self.head = head

    @classmethod
    def of(cls, parts: Networks, units: Units | None = None) -> Self:
        """From networks and units that go together; None: the networks work in the user's units."""
        if units is None:
            return cls(parts.backbone, parts.mixture)
        return cls(parts.backbone, parts.mixture, x_units=units.x, y_units=units.y, bounds=units.bounds)

    def q(self, h: Tensor) -> Distribution:
        """The distribution in standard units, from features (B, H)."""
        return self.head(h)

    @torch.no_grad()
    def log_prob(self, x: Any, y: Any, **settings: Any) -> Tensor:
        """Log density of targets y, (B, D), in the user's units, shape (B,); for any Distribution."""
        x, y = checks.numbers("x", x).to(self.like.device), checks.numbers("y", y).to(self.like.device)
        with evaluating(self):
            log_q = self.q(self.finite_features(x)).log_prob(self.standardize(y))
        return log_q - self.y_units.scale.log().sum()

    def _predictive(self, h: Tensor) -> Predictive:
        q = self.q(h)
        if not isinstance(q, GaussianMixture):
            raise TypeError(
                f"a predictive distribution needs a GaussianMixture, this head gives a {type(q).__name__}; "
                "use it as the proposal of an EnergyModel, or call q(features(x)) for the distribution itself"
            )
        q = q.rescaled(self.y_units.shift, self.y_units.scale)
        if not isinstance(q, TruncatedMixture):
            return q
        # The bounds as they were given: there and back to standard units they may move by a rounding error.
        return q.between(self.bounds.low, self.bounds.high)


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
        super().__init__(backbone, _targets_of(energy, n_targets), x_units, y_units, bounds)
        self.energy = energy
        self.proposal = proposal
        self.tail = tail

    @classmethod
    def of(cls, parts: Networks, units: Units | None = None) -> Self:
        """From networks and units that go together; None: the networks work in the user's units."""
        if units is None:
            return cls(parts.backbone, parts.energy, parts.mixture)
        return cls(
            parts.backbone,
            parts.energy,
            parts.mixture,
            x_units=units.x,
            y_units=units.y,
            tail=units.tail,
            bounds=units.bounds,
        )

    @property
    def limits(self) -> tuple[Tensor, Tensor] | tuple[()]:
        """The ends of the targets in standard units, two of shape (D,); none where there are none."""
        if self.tail is None or self.tail.bounds.are_open:
            return ()
        return self.tail.bounds.low, self.tail.bounds.high

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

    @property
    def quick(self) -> dict[str, int]:
        """See :attr:`Model.quick`."""
        if self.n_targets == 1:
            return {"n_nodes": 64, "max_nodes": 64}
        return {"n_draws": 512, "max_draws": 512}

    @torch.no_grad()
    def proposal_at(self, x: Any) -> Any:
        """See :meth:`Model.proposal_at`; nothing of the energy is evaluated."""
        x = checks.numbers("x", x).to(self.like.device)
        with evaluating(self):
            q = self._proposal_of(self.finite_features(x)).rescaled(self.y_units.shift, self.y_units.scale)
        return q.between(self.bounds.low, self.bounds.high) if hasattr(q, "between") else q

    def relevant(self, settings: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`Model.relevant`."""
        one, several = (
            ("n_nodes", "max_nodes", "n_draws"),
            ("n_draws", "max_draws", "n_replicates", "seed"),
        )
        known = one if self.n_targets == 1 else several
        return {name: value for name, value in settings.items() if name in known}

    def _predictive(self, h: Tensor, **settings: Any) -> Predictive:
        rows = Unnormalized(
            len(h),
            self.n_targets,
            lambda rows: self._energy_of(h[rows]),
            lambda rows: self._proposal_of(h[rows]),
            self._support,
        )
        limits = None if self.bounds.are_open else (self.bounds.low, self.bounds.high)
        return Rescaled(rows.normalized(**settings), self.y_units.shift, self.y_units.scale, limits)

    def _energy_of(self, h: Tensor) -> Callable[[Tensor], Tensor]:
        def energy(y: Tensor) -> Tensor:
            with evaluating(self):
                return self.f(h, y.to(h.dtype))

        return energy

    def _proposal_of(self, h: Tensor) -> Any:
        q = self.q(h)
        return q if hasattr(q, "from_uniform") else RowByRow(self.proposal, h)

    @property
    def _support(self) -> Support | None:
        if self.tail is None:
            return None
        tail, ends = self.tail, self.tail.bounds
        return Support(tail.low, tail.high, tail.width, torch.isfinite(ends.low), torch.isfinite(ends.high))


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
