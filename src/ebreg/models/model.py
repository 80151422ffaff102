"""Model: the base of the models, a backbone with the units of x and y."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ebreg import networks
from ebreg._utils import checks, gradients
from ebreg.errors import UndefinedError
from ebreg.models import heads, members
from ebreg.models.calibration import Calibration
from ebreg.models.evaluation_mode import evaluation_mode
from ebreg.networks import DEFAULT_PROPOSAL, Networks
from ebreg.predictive import Accuracy, Predictive, Unnormalized, accuracy_or_default, ascend
from ebreg.units import Bounds, Standardizer, Units

# Inputs further out than this many standard deviations are clamped: networks overflow in the end.
_FARTHEST = 1e6
_N_CHECKED = 4  # rows of the first call of heads


class Model(nn.Module):
    """Base of the models: a backbone, and the units of x and y.

    A model may have several members, each with weights of its own. In training, rows belong to members and
    come in blocks, those of the first member first; see :mod:`ebreg.networks.member_layers`. A prediction is
    the mean of the members' densities, weighted by ``calibration``.

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
        self.calibration: Calibration | None = None
        self._shares_backbone = False

    def _have_members(self) -> None:
        # To be called when all networks are in place.
        E = networks.count_members(self)
        self.calibration = None if E == 1 else Calibration.none(E, self.n_targets)
        self._shares_backbone = networks.count_members(self.backbone) < E

    @property
    def n_members(self) -> int:
        """E."""
        return 1 if self.calibration is None else self.calibration.n_members

    @property
    def shares_backbone(self) -> bool:
        """Whether the members are heads on the features of one backbone."""
        return self._shares_backbone and self.n_members > 1

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
        n_members: int = 1,
        dropout: float | Sequence[float] = 0.0,
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
            energy: The head that gives f: a module, or such a function; None: that of the library.
            n_members: E; the heads are then the library's.
            dropout: Rate in the backbone, or one for each member.
        """
        x, y = checks.table("x", x), checks.table("y", y)
        units = Units.of(x, y, bounds)
        E = checks.at_least("n_members", n_members, 1)
        has_own_heads = proposal != DEFAULT_PROPOSAL or energy is not None
        if E > 1 and has_own_heads:
            raise ValueError(
                "n_members must be 1 with a proposal or an energy of your choice: only the library's own "
                "heads can be computed for several members at once"
            )
        parts = cls._table_networks(
            x.shape[1],
            y.shape[1],
            n_components,
            width,
            bounds=units.standard_bounds,
            n_members=E,
            dropout=networks.member_rates(dropout, E),
        )
        parts = networks.with_heads(parts, proposal, energy, width, y.shape[1], n_components)
        model = cls.of(parts, units)
        if has_own_heads:
            model.check_heads(x, y)
        return model

    @classmethod
    def _table_networks(
        cls, n_inputs: int, n_targets: int, n_components: int, width: int, n_members: int, **settings: Any
    ) -> Networks:
        return networks.table(n_inputs, n_targets, n_components, width, n_members=n_members, **settings)

    @property
    def reference(self) -> Tensor:
        """A tensor with the dtype and device that the heads compute in."""
        # Asked for several times a step: torch's own iterators take longer than the arithmetic.
        parts = [part for part in self._modules.values() if part is not self.backbone]
        for part in (*parts, self.backbone):
            parameter = _first_parameter(part)
            if parameter is not None:
                return parameter
        return self.y_units.scale

    def features(self, x: Tensor) -> Tensor:
        """Inputs in the user's units -> features (B, H); with members, rows in blocks -> (E * B, H).

        Where the members share a backbone, B rows are those of every member -> (E * B, H).
        """
        if self.x_units is not None:
            x = self.x_units(x).clamp(-_FARTHEST, _FARTHEST)
        own = next(self.backbone.parameters(), self.reference)
        x = x.to(own.dtype) if x.is_floating_point() else x
        if isinstance(self.backbone, networks.MLP):
            h = self.backbone(x)
        else:
            h = heads.call("the backbone", self.backbone, f"inputs of shape {tuple(x.shape)}, {x.dtype}", x)
        dtype = self.reference.dtype
        h = h if h.dtype == dtype or torch.is_autocast_enabled() else h.to(dtype)
        return members.repeated(h, self.n_members) if self.shares_backbone else h

    def q(self, h: Tensor) -> Distribution:
        """Proposal or mixture, in standard units, from features (B, H)."""
        raise NotImplementedError  # abstract

    def answers_by_draws(self, accuracy: Accuracy) -> bool:
        """Whether a predictive distribution of this accuracy consists of draws."""
        raise NotImplementedError  # abstract

    @torch.no_grad()
    def check_heads(self, x: Tensor, y: Tensor) -> None:
        """Call the heads with the first rows of x and y, to explain before a training what is wrong."""
        x, y = x[:_N_CHECKED].to(self.reference.device), y[:_N_CHECKED].to(self.y_units.scale)
        with evaluation_mode(self):
            h, bounds = self._all_features(x), self.bounds.standardized(self.y_units)
            q = heads.distribution_of("proposal", self._q_head, h, self.n_targets)
            y = members.repeated(self.standardize(y), self.n_members)
            self._check_energy(h, heads.first_draws("proposal", q, y, bounds))

    @property
    def _q_head(self) -> nn.Module:
        # The head that gives q.
        raise NotImplementedError  # abstract

    def _check_energy(self, h: Tensor, y: Tensor) -> None:
        # At targets (M, B, D) in standard units; a model without an energy has nothing to check.
        return

    def _q_for_prediction(self, h: Tensor) -> Distribution:
        # Also for questions that are asked after the prediction was made.
        with evaluation_mode(self):
            return self.q(h)

    @property
    def temperature(self) -> float:
        """See :class:`Calibration`; 1 without."""
        return 1.0 if self.calibration is None else self.calibration.temperature.item()

    @property
    def min_scale(self) -> float:
        """Smallest standard deviation of a component of q, in standard units: tied targets need one."""
        return float(getattr(self._q_head, "min_scale", 0.0))

    def _tempered(self, q: Any) -> Any:
        # With the standard deviations of the components times the temperature.
        t = self.temperature
        if t == 1:
            return q
        return q.with_components(q.logits, q.means, (q.scales * t).clamp(min=self.min_scale))

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
        x, accuracy = self._inputs(x), accuracy_or_default(accuracy)
        with evaluation_mode(self), _without_inference_mode():
            return self._answer(x.clone() if x.is_inference() else x, accuracy)

    def _answer(self, x: Tensor, accuracy: Accuracy) -> Predictive:
        # p(y | x) of inputs that were checked.
        return self._predictive(self._rows(x, accuracy), accuracy)

    def _rows(self, x: Tensor, accuracy: Accuracy) -> Unnormalized:
        # One unnormalised density for each row of x, of all members together.
        target = self._unnormalized(self._all_features(x))
        if self.calibration is None:
            return target
        return members.merge(target, self.calibration, self._log_z(target, accuracy))

    def _all_features(self, x: Tensor) -> Tensor:
        # Of all rows by every member: (B, ...) -> (E * B, H).
        if self._has_tiles(x):
            return _finite(self._features_in_tiles(x).to(self.reference.dtype))
        return self.finite_features(x if self.shares_backbone else members.repeated(x, self.n_members))

    def _has_tiles(self, x: Tensor) -> bool:
        # Whether features for a prediction are computed in single precision: of the library's networks.
        own = isinstance(self.backbone, networks.MLP) and self.x_units is not None
        is_constant = not gradients.tracked(x, *self.backbone.parameters())
        has_members = self.n_members > 1 and not self.shares_backbone
        return own and has_members and is_constant and len(x) > 0 and x.device.type == "cpu"

    def _features_in_tiles(self, x: Tensor) -> Tensor:
        assert self.x_units is not None
        E, inputs = self.n_members, self.x_units(x).clamp(-_FARTHEST, _FARTHEST).float()
        return networks.in_tiles(lambda rows: self.backbone(members.repeated(rows, E)), inputs, 1, E)

    def _inputs(self, x: Any) -> Tensor:
        x = checks.numbers("x", x).to(self.reference.device)
        if x.dim() < 2:
            raise ValueError(f"x must have shape (B, ...), one input a row; got {tuple(x.shape)}")
        checks.finite("x", x)
        return x

    def finite_features(self, x: Tensor) -> Tensor:
        """As :meth:`features`, with an UndefinedError where they are not finite."""
        h = self.features(x)
        n_rows = len(x) * (self.n_members if self.shares_backbone else 1)
        if h.dim() != 2 or len(h) != n_rows:
            shapes = f"{tuple(h.shape)} for inputs of shape {tuple(x.shape)}"
            raise ValueError(f"the backbone must turn B inputs into features (B, H); it gave {shapes}")
        return _finite(h)

    def log_prob(self, x: Any, y: Any, accuracy: Accuracy | None = None) -> Tensor:
        """Log density of targets y, (B, D), in the user's units, shape (B,); see :meth:`predictive`."""
        return self.predictive(x, accuracy).log_prob(checks.numbers("y", y).to(self.y_units.scale))

    def member_log_prob(self, x: Tensor, y: Tensor, accuracy: Accuracy) -> Tensor:
        """Log density of targets by the members that their rows belong to, with their temperature.

        Args:
            x: Rows in blocks, (E * B, ...); where members share a backbone, (B, ...).
            y: In the user's units, rows in blocks, (E * B, D).
            accuracy: Nodes, draws and tolerances.

        Returns:
            Shape (E * B,).
        """
        with evaluation_mode(self):
            target = members.separated(self._unnormalized(self.finite_features(x)), self.n_members)
            return self._predictive(target, accuracy).log_prob(y.to(self.y_units.scale))

    def member_means(self, x: Any, accuracy: Accuracy | None = None) -> Tensor:
        """Means of p(y | x) by every member alone, in the user's units.

        Args:
            x: A batch of inputs, (B, ...).
            accuracy: As in :meth:`predictive`.

        Returns:
            Shape (E, B, D).
        """
        x, accuracy = self._inputs(x), accuracy_or_default(accuracy)
        with evaluation_mode(self), _without_inference_mode():
            target = self._unnormalized(self._all_features(x.clone() if x.is_inference() else x))
            return self._member_means(target, accuracy).unflatten(0, (self.n_members, -1))

    def epistemic_share(
        self, x: Any, accuracy: Accuracy | None = None, predictive: Predictive | None = None
    ) -> Tensor:
        r"""The share of the predictive variance that the members disagree about.

        .. math:: \mathrm{Var}_e[\mu_e(x)] \, / \, \mathrm{Var}[y | x]

        where :math:`\mu_e` is the mean of a member and e has the weights of the calibration. The rest is what
        every member expects of y itself. More rows to train on would lower the former, not the latter.

        Args:
            x: A batch of inputs, (B, ...).
            accuracy: As in :meth:`predictive`.
            predictive: The answer of :meth:`predictive` for the same arguments, where it is known.

        Returns:
            Shape (B, D), in [0, 1]; 0 with one member.
        """
        p = self.predictive(x, accuracy) if predictive is None else predictive
        if self.calibration is None:
            return torch.zeros_like(p.mean)
        # In standard units no square overflows or vanishes.
        means, variance = (
            self.y_units(self.member_means(x, accuracy)),
            (p.stddev / self.y_units.scale).square(),
        )
        disagreement = members.variance_of_means(means, self.calibration)
        return (disagreement / variance.clamp_min(torch.finfo(variance.dtype).tiny)).clamp(max=1)

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
            target = self._rows(x.clone() if x.is_inference() else x, accuracy_or_default(None))
            return ascend(target, start, n_steps, step_size)

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

    def _predictive(self, target: Unnormalized, accuracy: Accuracy) -> Predictive:
        raise NotImplementedError  # abstract

    def _unnormalized(self, h: Tensor) -> Unnormalized:
        # Of features (B, H); with members, (E * B, H) in blocks.
        raise NotImplementedError  # abstract

    def _member_means(self, target: Unnormalized, accuracy: Accuracy) -> Tensor:
        # Of rows of members in blocks, in the user's units: (E * B, D).
        return members.of_each(target, self.n_members, lambda p: self._predictive(p, accuracy).mean)

    def _log_z(self, target: Unnormalized, accuracy: Accuracy) -> Tensor:
        # Log of the normalisers of rows, (B,), in standard units.
        raise NotImplementedError  # abstract


def _finite(h: Tensor) -> Tensor:
    if not torch.isfinite(h).all():
        raise UndefinedError(
            "features are not finite: some inputs are too large for the precision of the backbone, or its "
            "weights are not finite"
        )
    return h


def _first_parameter(module: nn.Module | None) -> nn.Parameter | None:
    if module is None:
        return None
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    found = (_first_parameter(child) for child in module._modules.values())
    return next((parameter for parameter in found if parameter is not None), None)


@contextmanager
def _without_inference_mode() -> Iterator[None]:
    # Tensors that are made in inference mode have no gradients later, which the modes need.
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield
