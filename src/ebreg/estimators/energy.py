"""EnergyRegressor: an energy-based model with its proposal."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from ebreg._utils import checks
from ebreg.estimators.base import DistributionRegressor
from ebreg.estimators.design import Design
from ebreg.estimators.ties import Ties
from ebreg.methods import FixedMLE, FixedNCE, JointMLE, JointNCE, Method
from ebreg.models import EnergyModel
from ebreg.networks import MLP
from ebreg.training.batches import TensorData
from ebreg.units import Bounds, Units

_JOINT = {method.name: method for method in (JointNCE, JointMLE)}
_FIXED = {method.name: method for method in (FixedNCE, FixedMLE)}
_START_ANEW = "set warm_start=False to start anew"


class EnergyRegressor(DistributionRegressor):
    """Regression that learns the whole distribution p(y | x), as an energy-based model.

    Args:
        method: ``"joint-nce"``, the paper's; ``"joint-mle"``; or a baseline with hand-set noise,
            ``"fixed-nce"`` or ``"fixed-mle"``.
        n_components: Of the mixture that is the proposal.
        width: Of the layers of the networks.
        n_draws: Draws of the proposal for each row and step; None: 16 for the joint methods, 1,024 for the
            fixed.
        sigmas: Standard deviations of the hand-set noise, in the units of y; None: a tenth and eight tenths
            of the standard deviation of y. The joint methods need none.
        backbone: A torch module that turns a batch of inputs into features (B, H); a copy of it is trained,
            and it gets the inputs as they are. None: a network for tables, with standardised columns.
        bounds: The range of y, (low, high), both included, or one such pair for each target; None is an open
            end.
        max_iter: Most passes over the data; None: about 4,500 steps, and 10 passes at least.
        batch_size: Rows a step; None: by the number of rows.
        learning_rate: Of Adam.
        weight_decay: Decoupled, as in AdamW.
        early_stopping: Whether to set rows aside, keep the weights that do best on them, and stop when they
            get no better.
        validation_fraction: Share of rows set aside; "auto": a tenth, but at least 20 and at most 4,000,
            never more than a third, and none of fewer than 15.
        n_iter_no_change: Passes without improvement to wait for; None: a third of ``max_iter``.
        refit: Whether the rows set aside join in, once they have told when to stop, for a last stretch of a
            sixth as many passes.
        warm_start: Whether another call of fit goes on from the weights of the last, with its networks, units
            and bounds.
        device: Where to train and predict: "auto", "cpu", "cuda".
        random_state: None, a whole number or a numpy RandomState: of the split, the weights and the draws.
        verbose: Whether to show a progress bar.

    Attributes:
        model_: The trained :class:`ebreg.models.EnergyModel`.
        history_: For every pass, the means of the losses, and ``validation_nll`` where it was computed.
        n_iter_: Passes over the data until it stopped, before the last stretch.
        best_epoch_: The pass whose weights were kept, counted from 0; None without validation.
        interrupted_: Whether Ctrl-C ended the fit early.
        n_features_in_: Columns of X.
        feature_names_in_: Their names, where X had them.
        target_names_: Names of the targets, or None.
    """

    _keeps = EnergyModel
    model_: EnergyModel

    def __init__(
        self,
        method: str = "joint-nce",
        *,
        n_components: int = 8,
        width: int = 64,
        n_draws: int | None = None,
        sigmas: Sequence[float] | None = None,
        backbone: nn.Module | None = None,
        bounds: Any = None,
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 2e-3,
        weight_decay: float = 0.0,
        early_stopping: bool = True,
        validation_fraction: float | str = "auto",
        n_iter_no_change: int | None = None,
        refit: bool = True,
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = True,
    ):
        self.method = method
        self.n_components = n_components
        self.width = width
        self.n_draws = n_draws
        self.sigmas = sigmas
        self.backbone = backbone
        self.bounds = bounds
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.refit = refit
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _goes_on(self) -> bool:
        return self.warm_start and hasattr(self, "model_")

    def _check_goes_on(self) -> None:
        if not self._goes_on:
            return
        if self.backbone is not getattr(self, "_fitted_backbone", self.backbone):
            raise ValueError("backbone is not that of the model to go on with; " + _START_ANEW)
        for name in ("n_components", "width"):
            before, now = getattr(self.design_, name), getattr(self, name)
            if before != now:
                raise ValueError(f"{name} is {now}, and {before} in the model to go on with; " + _START_ANEW)

    def _bounds(self, n_targets: int) -> Bounds:
        given = super()._bounds(n_targets)
        if not self._goes_on:
            return given
        if n_targets != self.model_.n_targets:
            raise ValueError(
                f"y has {n_targets} targets and the model to go on with has {self.model_.n_targets}; "
                + _START_ANEW
            )
        bounds = copy.deepcopy(self.model_.bounds).cpu()
        if not (given.low.equal(bounds.low) and given.high.equal(bounds.high)):
            raise ValueError("bounds are not those of the model to go on with; " + _START_ANEW)
        return bounds

    def _start(self, data: TensorData, bounds: Bounds, ties: Ties, seed: int) -> tuple[Design, Method]:
        if not self._goes_on:
            return super()._start(data, bounds, ties, seed)
        return self.design_, self._trains(_single(copy.deepcopy(self.model_)))

    def _method(self, design: Design, units: Units, backbone: nn.Module | None) -> Method:
        return self._trains(EnergyModel.of(design.parts(units.standard_bounds, backbone), units))

    def _trains(self, model: EnergyModel) -> Method:
        checks.one_of("method", self.method, [*_JOINT, *_FIXED])
        if self.method in _JOINT:
            return _JOINT[self.method](model, n_draws=16 if self.n_draws is None else self.n_draws)
        unit = model.y_units.scale.mean().item()
        sigmas = (0.1 * unit, 0.8 * unit) if self.sigmas is None else self.sigmas
        return _FIXED[self.method](model, sigmas, n_draws=1024 if self.n_draws is None else self.n_draws)


def _single(model: EnergyModel) -> EnergyModel:
    # Back from float64 to what networks train in; a backbone of the user's own never left its dtype.
    for part in model.children():
        if part is not model.backbone or isinstance(part, MLP):
            part.float()
    return model
