"""Models: EnergyModel, an energy with its proposal on one backbone, and MixtureModel, a mixture alone."""

from collections.abc import Iterator
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
from ebreg.networks import DEFAULT_PROPOSAL, Networks
from ebreg.predictive import DEFAULT, Accuracy, Predictive, Unnormalized, ascend, draws_of_proposal, normalize
from ebreg.sampling import check_proposal, proposal_rows
from ebreg.units import Bounds, Standardizer, Tail, Units

# Inputs further out than this many standard deviations are clamped: networks overflow in the end.
_FARTHEST = 1e6
# What a network raises for inputs that it was not built for.
_FAILURES = (RuntimeError, IndexError, AssertionError)


class Model(nn.Module):
    """Base of the models: a backbone, and the units of x and y.

    Args:
        backbone: Turns inputs into features (B, H).
        n_targets: D.
        x_units: Applied to x before the backbone; None hands x to the backbone as it is.
        y_units: None keeps the user's units inside too.
        bounds: Bounds of the targets, in the user's units; the heads have them in standard units.
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
        cls,
        x: Any,
        y: Any,
        n_components: int = 8,
        width: int = 64,
        bounds: Bounds | None = None,
        proposal: Any = DEFAULT_PROPOSAL,
        energy: Any = None,
    ) -> Self:
        """The default for a table x (n, C) with targets y (n, D), in their units.

        Args:
            x: Inputs.
            y: Targets.
            n_components: K.
            width: Of the layers.
            bounds: Of the targets, in the user's units.
            proposal: The head that gives q: "mixture", a name in ``ebreg.networks.PROPOSALS``, a module, or a
                function of H (here the width) and D that returns a module.
            energy: The head that gives f: a module, or such a function; None: an ``EnergyHead``.
        """
        x, y = checks.table("x", x), checks.table("y", y)
        units = Units.of(x, y, bounds)
        parts = networks.table(x.shape[1], y.shape[1], n_components, width, bounds=units.standard_bounds)
        parts = networks.with_heads(parts, proposal, energy, width, y.shape[1], n_components)
        return cls.of(parts, units)

    @property
    def reference(self) -> Tensor:
        """A tensor with the dtype and device that the heads compute in."""
        heads = (p for part in self.children() if part is not self.backbone for p in part.parameters())
        return next(heads, next(self.backbone.parameters(), self.y_units.scale))

    def features(self, x: Tensor) -> Tensor:
        """Inputs in the user's units -> features (B, H)."""
        if self.x_units is not None:
            x = self.x_units(x).clamp(-_FARTHEST, _FARTHEST)
        own = next(self.backbone.parameters(), self.reference)
        x = x.to(own.dtype) if x.is_floating_point() else x
        try:
            h = self.backbone(x)
        except _FAILURES as error:
            if isinstance(self.backbone, networks.MLP):
                raise  # not the user's mistake
            raise _explained("the backbone", f"inputs of shape {tuple(x.shape)}, {x.dtype}", error) from error
        dtype = self.reference.dtype
        return h if h.dtype == dtype or torch.is_autocast_enabled() else h.to(dtype)

    def q(self, h: Tensor) -> Distribution:
        """Proposal or mixture, in standard units, from features (B, H)."""
        raise NotImplementedError  # abstract

    def standardize(self, y: Tensor) -> Tensor:
        """Targets in the user's units, (..., D) -> standard units, in the networks' dtype."""
        return self.y_units(y).to(self.reference.dtype)

    def predictive(self, x: Any, accuracy: Accuracy | None = None) -> Predictive:
        """p(y | x) in the user's units for a batch of inputs, with the networks in evaluation mode.

        Where gradients are enabled, the answers of the distribution are differentiable with respect to x and
        the parameters: ``log_prob``, ``mean``, ``variance``, ``stddev``, ``covariance``, ``quantile``,
        ``icdf``, ``cdf``, ``expectation`` and ``log_partition``. The graph of the networks at all nodes or
        draws is then kept in memory. ``with torch.no_grad():`` around the call saves memory and time.

        Args:
            x: A batch of inputs: a tensor, or what can be turned into one.
            accuracy: Nodes, draws and tolerances, for an EnergyModel; None: the defaults.
        """
        x = self._inputs(x)
        if not isinstance(accuracy, Accuracy | None):
            raise TypeError(f"accuracy must be an ebreg.predictive.Accuracy, got {type(accuracy).__name__}")
        with evaluation_mode(self):
            return self._predictive(self.finite_features(x), accuracy or DEFAULT)

    def _inputs(self, x: Any) -> Tensor:
        x = checks.numbers("x", x).to(self.reference.device)
        if x.dim() < 2:
            raise ValueError(f"x must have shape (B, ...), one input a row; got {tuple(x.shape)}")
        checks.finite("x", x)
        return x

    def finite_features(self, x: Tensor) -> Tensor:
        """As :meth:`features`, with an UndefinedError where they are not finite."""
        h = self.features(x)
        if h.dim() != 2 or len(h) != len(x):
            shapes = f"{tuple(h.shape)} for inputs of shape {tuple(x.shape)}"
            raise ValueError(f"the backbone must turn B inputs into features (B, H); it gave {shapes}")
        bad = ~torch.isfinite(h).flatten(1).all(dim=1)
        if bad.any():
            raise UndefinedError(
                "features are not finite: some inputs are too large for the precision of the backbone, or "
                "its weights are not finite"
            )
        return h

    def log_prob(self, x: Any, y: Any, accuracy: Accuracy | None = None) -> Tensor:
        """Log density of targets y, (B, D), in the user's units, shape (B,); see :meth:`predictive`."""
        return self.predictive(x, accuracy).log_prob(checks.numbers("y", y).to(self.y_units.scale))

    def gradient_ascent(
        self, x: Any, y_start: Any = None, n_steps: int = 20, step_size: float = 0.05
    ) -> Tensor:
        r"""Targets near a local maximum of the density: T steps of gradient ascent, as earlier work predicts.

        In standard units, :math:`y \leftarrow y + \lambda \nabla_y f(x, y)`; a step that would lower f is not
        taken and halves :math:`\lambda` of its row. For a :class:`MixtureModel` f is log q. The networks are
        in evaluation mode, and no row depends on the others. y stays within the bounds, and a start beyond
        the range where the tail begins is first moved to the nearest point of it, which is higher.

        Args:
            x: A batch of inputs, (B, ...).
            y_start: The initial estimates, in the user's units, (B, D); None: the mean of the proposal.
            n_steps: T.
            step_size: The first :math:`\lambda`, in standard units squared, so that the unit of y does not
                matter. A longer one may leap over the nearest maximum.

        Returns:
            Shape (B, D), in the user's units and float64, none with a lower density than it started from.
        """
        # Gradients are needed, also where the caller has switched them off.
        with torch.inference_mode(False), torch.no_grad(), evaluation_mode(self):
            x = self._inputs(x)
            start = None if y_start is None else self._start(y_start, len(x))
            h = self.finite_features(x.clone() if x.is_inference() else x)
            return ascend(self._unnormalized(h), start, n_steps, step_size)

    def check_start(self, y_start: Tensor) -> None:
        """Require initial estimates, (n, D), that are finite and within the bounds."""
        checks.finite("y_start", y_start)
        self.bounds.check("y_start", y_start, advice="clip y_start to the bounds")

    def _start(self, y_start: Any, n_rows: int) -> Tensor:
        y = checks.numbers("y_start", y_start).detach().to(self.y_units.scale)
        checks.shape("y_start", y, (n_rows, self.n_targets))
        self.check_start(y)
        return y

    def to_float64(self) -> Self:
        """Turn the library's own networks to float64, in place, and return the model.

        A row's answer then does not depend, to some 1e-12, on the rows computed beside it. A backbone that
        the user brought keeps its dtype: it may well cast its inputs itself.
        """
        return self._cast(torch.float64)

    def to_float32(self) -> Self:
        """Turn the library's own networks to float32, in which they train, and return the model."""
        return self._cast(torch.float32)

    def _cast(self, dtype: torch.dtype) -> Self:
        for part in self.children():
            if part is not self.backbone or isinstance(part, networks.MLP):
                part.to(dtype)
        return self

    def _predictive(self, h: Tensor, accuracy: Accuracy) -> Predictive:
        raise NotImplementedError  # abstract

    def _unnormalized(self, h: Tensor) -> Unnormalized:
        raise NotImplementedError  # abstract


class MixtureModel(Model):
    """A mixture density network q(y | x): features, then a head that gives a Distribution.

    Args:
        backbone: Turns inputs into features (B, H).
        head: Turns features into a GaussianMixture, which answers in closed form, or into any torch
            Distribution with batch shape (B,) and event shape (D,), which answers by its draws.
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
        return cls(
            parts.backbone,
            parts.mixture,
            n_targets=len(units.y.shift),
            x_units=units.x,
            y_units=units.y,
            bounds=units.bounds,
        )

    def q(self, h: Tensor) -> Distribution:
        """The distribution in standard units, from features (B, H)."""
        return _distribution("head", self.head, h, self.n_targets)

    def log_prob(self, x: Any, y: Any, accuracy: Accuracy | None = None) -> Tensor:
        """Log density of targets y, (B, D), in the user's units, shape (B,); for any Distribution.

        It is exact: ``accuracy`` changes nothing.
        """
        x, y = self._inputs(x), checks.numbers("y", y).to(self.reference.device)
        checks.shape("y", y, (len(x), self.n_targets))
        with evaluation_mode(self):
            log_q = self.q(self.finite_features(x)).log_prob(self.standardize(y))
        return log_q - self.y_units.scale.log().sum()

    def _predictive(self, h: Tensor, accuracy: Accuracy) -> Predictive:
        q = self.q(h)
        if not isinstance(q, GaussianMixture):
            return draws_of_proposal(self._unnormalized(h), accuracy)
        q = q.rescaled(self.y_units.shift, self.y_units.scale)
        if not isinstance(q, TruncatedMixture):
            return q
        # The bounds as they were given: to standard units and back they may move by a rounding error.
        return q.between(self.bounds.low, self.bounds.high)

    def _unnormalized(self, h: Tensor) -> Unnormalized:
        # Log q in the place of the energy: it is normalised already.
        proposal = proposal_rows(self.q, h)
        return Unnormalized(self._log_q, h, proposal, None, self.y_units, self.bounds)

    def _log_q(self, h: Tensor, y: Tensor) -> Tensor:
        with evaluation_mode(self):
            return proposal_rows(self.q, h).log_prob(y.to(h.dtype))


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
        return _distribution("proposal", self.proposal, h, self.n_targets)

    def _energy(self, h: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.energy, networks.EnergyHead):
            return self.energy(h, y)
        try:
            f = self.energy(h, y)
        except _FAILURES as error:
            shapes = f"features of shape {tuple(h.shape)} and targets of shape {tuple(y.shape)}"
            raise _explained("energy", shapes, error) from error
        if not isinstance(f, Tensor) or f.shape != y.shape[:-1]:
            got = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
            raise ValueError(
                f"energy must return one value for each target, shape {tuple(y.shape[:-1])} for targets of "
                f"shape {tuple(y.shape)}; it returned {got}"
            )
        return f

    def _predictive(self, h: Tensor, accuracy: Accuracy) -> Predictive:
        return normalize(self._unnormalized(h), accuracy)

    def _unnormalized(self, h: Tensor) -> Unnormalized:
        proposal = proposal_rows(self.q, h)
        return Unnormalized(self._f_for_prediction, h, proposal, self.tail, self.y_units, self.bounds)

    def _f_for_prediction(self, h: Tensor, y: Tensor) -> Tensor:
        with evaluation_mode(self):
            return self.f(h, y.to(h.dtype))


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while: dropout is off, batch-norm keeps its statistics, rows are independent."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _distribution(name: str, head: nn.Module, h: Tensor, n_targets: int) -> Distribution:
    if isinstance(head, networks.MixtureHead):
        return head(h)
    try:
        q = head(h)
    except _FAILURES as error:
        raise _explained(name, f"features of shape {tuple(h.shape)}", error) from error
    check_proposal(name, q, len(h), n_targets)
    return q


def _explained(name: str, inputs: str, error: Exception) -> Exception:
    # A mistake in a network of the user's own; too little memory is none.
    if is_out_of_memory(error):
        return error
    return ValueError(f"{name} failed on {inputs}: {error}")


def _targets_of(head: nn.Module, n_targets: int | None) -> int:
    known = getattr(head, "n_targets", None) if n_targets is None else n_targets
    if known is None:
        raise ValueError(
            f"n_targets must be given: a {type(head).__name__} does not say how many targets it has"
        )
    return known
