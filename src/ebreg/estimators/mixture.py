"""MixtureDensityRegressor: a mixture density network, with or without an energy-based teacher."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from ebreg._utils import checks
from ebreg.estimators.base import DistributionRegressor
from ebreg.estimators.blueprint import Blueprint
from ebreg.methods import Method, MixtureNLL, MixtureTeacher
from ebreg.models import MixtureModel


class MixtureDensityRegressor(DistributionRegressor):
    """Regression that learns the whole distribution p(y | x) as a mixture of Gaussians.

    Its predictions are fast: they are closed forms of the mixture. It has all methods of
    :class:`EnergyRegressor`. Any other distribution can take the place of the mixture.

    Args:
        teacher: None: the mixture learns from the data alone. ``"energy"``: an energy-based model is trained
            at the same time and teaches the mixture, as in the paper; it is not kept. With a ``backbone``,
            it trains a copy of its own.
        preset: ``"fast"``, ``"default"`` or ``"best"``: members, draws and steps of a mixture without a
            teacher.
        n_members: As in :class:`EnergyRegressor`; None: by the preset, and 1 with a teacher or with networks
            of your own.
        dropout: Rate of dropout in the library's backbone, or one rate for each member; None: 0 for one half
            of the members, 0.1 for the other.
        n_components: Number of Gaussians in the mixture; None: 5 for each of several members, whose mean has
            several times as many, and 8 for a single one.
        width: Width of the hidden layers.
        n_draws: Draws of the mixture for each row and step, for the teacher; None: 16.
        backbone: A torch module that maps a batch of inputs to features (B, H). A copy of it is trained, on
            the inputs as they are. None: a network for tables, with standardised columns.
        proposal: The distribution q(y | x), which is the teacher's proposal: "mixture", whose answers are
            closed forms; or, with answers by draws, "full-mixture", "flow", a module or a function, as in
            :class:`EnergyRegressor`.
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
        device: Device to train and predict on: "auto", "cpu", "cuda".
        random_state: None, an integer or a numpy RandomState: seeds the split, the weights and the draws.
        verbose: Whether to show a progress bar; "auto": in a terminal or a notebook, once the training has
            taken two seconds.

    Attributes:
        model_: The trained :class:`ebreg.models.MixtureModel`.
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

    model_: MixtureModel

    def __init__(
        self,
        teacher: str | None = None,
        *,
        preset: str = "default",
        n_members: int | None = None,
        dropout: float | Sequence[float] | None = None,
        n_components: int | None = None,
        width: int = 64,
        n_draws: int | None = None,
        backbone: nn.Module | None = None,
        proposal: Any = "mixture",
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
        device: str = "auto",
        random_state: Any = None,
        verbose: bool | str = "auto",
    ):
        self.teacher = teacher
        self.preset = preset
        self.n_members = n_members
        self.dropout = dropout
        self.n_components = n_components
        self.width = width
        self.n_draws = n_draws
        self.backbone = backbone
        self.proposal = proposal
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
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _method_name(self) -> str:
        checks.one_of("teacher", self.teacher, ["energy", None])
        return MixtureNLL.name if self.teacher is None else MixtureTeacher.name

    @classmethod
    def _model_class(cls, residual: bool) -> type[MixtureModel]:
        return MixtureModel

    def _method(self, model: MixtureModel, blueprint: Blueprint | None, n_draws: int | None) -> Method:
        if self.teacher is None:
            return MixtureNLL(model)
        assert blueprint is not None  # there is no warm start
        teacher = blueprint.networks()
        n_draws = 16 if n_draws is None else n_draws
        return MixtureTeacher(
            model, teacher.energy, teacher.backbone, n_draws=n_draws, tail=blueprint.units.tail
        )
