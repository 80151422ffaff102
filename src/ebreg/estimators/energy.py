"""EnergyRegressor: an energy-based model with its proposal."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from ebreg._utils import checks
from ebreg.estimators.base import DistributionRegressor
from ebreg.estimators.blueprint import Blueprint
from ebreg.methods import FixedMLE, FixedNCE, JointMLE, JointNCE, Method, ResidualNCE
from ebreg.models import EnergyModel, ResidualModel
from ebreg.networks import DEFAULT_PROPOSAL

_JOINT = {method.name: method for method in (JointNCE, JointMLE)}
_FIXED = {method.name: method for method in (FixedNCE, FixedMLE)}


class EnergyRegressor(DistributionRegressor):
    """Regression that learns the whole distribution p(y | x) as an energy-based model.

    Args:
        method: ``"residual-nce"``, an energy that corrects its proposal; ``"joint-nce"``, the paper's method;
            ``"joint-mle"``; or a baseline with hand-set noise, ``"fixed-nce"`` or ``"fixed-mle"``.
            None: ``"residual-nce"``, and ``"joint-nce"`` with a ``proposal`` or ``energy`` of your choice.
        preset: ``"fast"``, ``"default"`` or ``"best"``: members, draws and steps of ``"residual-nce"``.
        n_members: Number of models that are trained at once, each with weights, an order of the rows and
            validation rows of its own; the answer is the mean of their densities. None: by the preset, and 1
            for the paper's methods and with networks of your own. With a ``backbone``, the members are heads
            on its features.
        dropout: Rate of dropout in the library's backbone, or one rate for each member; None: 0 for one half
            of the members, 0.1 for the other.
        n_components: Number of Gaussians in the mixture that is the proposal; None: 5 for each of several
            members, whose mean has several times as many, and 8 for a single one.
        width: Width of the hidden layers.
        n_draws: Draws for each row and step; None: by the preset for ``"residual-nce"``, 16 of the proposal
            for the joint methods, 1,024 of the noise for the fixed ones.
        sigmas: Standard deviations of the hand-set noise, in the units of y; None: 0.1 and 0.8 standard
            deviations of y. The joint methods ignore it.
        backbone: A torch module that maps a batch of inputs to features (B, H). A copy of it is trained, on
            the inputs as they are. None: a network for tables, with standardised columns.
        proposal: The distribution q(y | x): "mixture"; "full-mixture", with full covariances, for targets
            that depend on each other; "flow", a spline flow of zuko; a torch module that maps features (B, H)
            to any torch Distribution with batch shape (B,) and event shape (D,); or a function of H and D
            that returns such a module. H is ``width``, or what the ``backbone`` gives. :func:`ebreg.load` has
            to be given modules and functions again.
        energy: A torch module that maps features (B, H) and targets in standard units, (M, B, D) or (B, D),
            to f, (M, B) or (B,), or a function of H and D that returns one. None: a network.
        bounds: The range of y, (low, high), both included, or one such pair for each target; None in place of
            a number is no bound.
        max_iter: Maximum number of epochs; None: by the preset and the number of rows, and at least 10. A
            short training comes first then, which is enough for most tables.
        max_seconds: How long a fit may take, by the clock; kept within a tenth, or one step where that is
            longer. What is not finished by then is cut short, and the learning rate falls in time for it.
            None: no limit. The result depends on the speed of the machine.
        batch_size: Rows a step; None: between 16 and 1,024, by the number of rows.
        learning_rate: Highest learning rate of Adam; None: by the preset, and 0.002 with one member. With a
            rate of your own, or ``max_iter`` or ``n_iter_no_change``, no short training comes first.
        weight_decay: Decoupled weight decay, as in AdamW.
        early_stopping: Whether to split off validation rows, keep the weights of the epoch that is best on
            them, and stop when no further epoch is better.
        validation_fraction: Fraction of the rows used for validation; "auto": a tenth, but at least 20 and at
            most 4,000 rows, never more than a third, and none of fewer than 15. They are chosen at random, or
            as the ``groups`` or the ``time`` of :meth:`fit` say.
        n_iter_no_change: Epochs without improvement before the training of a member stops; None: a third of
            ``max_iter`` with one member, with several by the preset.
        refit: Whether to fine-tune on all rows, validation rows included, after early stopping; None: yes.
        warm_start: Whether a further call of fit continues from the fitted weights, with the same networks,
            units and bounds.
        device: Device to train and predict on: "auto", "cpu", "cuda".
        random_state: None, an integer or a numpy RandomState: seeds the split, the weights and the draws.
        verbose: Whether to show a progress bar; "auto": in a terminal or a notebook, once the training has
            taken two seconds.

    Attributes:
        model_: The trained :class:`ebreg.models.EnergyModel` or :class:`ebreg.models.ResidualModel`.
        history_: One entry per epoch: the mean of each loss, and ``validation_nll`` where it was computed.
            Fine-tuning follows at the end.
        n_iter_: Number of epochs before fine-tuning.
        best_epoch_: The epoch whose weights were kept, counted from 0, of each member where there are
            several; None without validation rows.
        interrupted_: Whether Ctrl-C ended the fit early.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns, where X had them.
        target_names_: Names of the targets, or None.
    """

    model_: EnergyModel

    def __init__(
        self,
        method: str | None = None,
        *,
        preset: str = "default",
        n_members: int | None = None,
        dropout: float | Sequence[float] | None = None,
        n_components: int | None = None,
        width: int = 64,
        n_draws: int | None = None,
        sigmas: Sequence[float] | None = None,
        backbone: nn.Module | None = None,
        proposal: Any = "mixture",
        energy: Any = None,
        bounds: Any = None,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        early_stopping: bool = True,
        validation_fraction: float | str = "auto",
        n_iter_no_change: int | None = None,
        refit: bool | None = None,
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool | str = "auto",
    ):
        self.method = method
        self.preset = preset
        self.n_members = n_members
        self.dropout = dropout
        self.n_components = n_components
        self.width = width
        self.n_draws = n_draws
        self.sigmas = sigmas
        self.backbone = backbone
        self.proposal = proposal
        self.energy = energy
        self.bounds = bounds
        self.max_iter = max_iter
        self.max_seconds = max_seconds
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
    def _method_name(self) -> str:
        if self.method is None:
            own_heads = self.energy is not None or self.proposal != DEFAULT_PROPOSAL
            return JointNCE.name if own_heads else ResidualNCE.name
        checks.one_of("method", self.method, [ResidualNCE.name, *_JOINT, *_FIXED])
        return self.method

    @classmethod
    def _model_class(cls, residual: bool) -> type[EnergyModel]:
        return ResidualModel if residual else EnergyModel

    def _method(self, model: EnergyModel, blueprint: Blueprint | None, n_draws: int | None) -> Method:
        name = self._method_name
        if isinstance(model, ResidualModel):
            return ResidualNCE(model, n_draws=4 if n_draws is None else n_draws)
        if name in _JOINT:
            return _JOINT[name](model, n_draws=16 if n_draws is None else n_draws)
        unit = model.y_units.scale.mean().item()
        sigmas = (0.1 * unit, 0.8 * unit) if self.sigmas is None else self.sigmas
        return _FIXED[name](model, sigmas, n_draws=1024 if n_draws is None else n_draws)
