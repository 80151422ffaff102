"""MixtureDensityRegressor: a mixture density network, with an energy-based teacher or alone."""

import copy
from typing import Any

from torch import nn

from ebreg._utils import checks
from ebreg.estimators.base import DistributionRegressor
from ebreg.estimators.design import Design
from ebreg.methods import Method, MixtureNLL, MixtureTeacher
from ebreg.models import MixtureModel
from ebreg.units import Units


class MixtureDensityRegressor(DistributionRegressor):
    """Regression that learns the whole distribution p(y | x), as a mixture of Gaussians.

    Every answer is in closed form or nearly so, and fast. It answers all that :class:`EnergyRegressor` does.

    Args:
        teacher: ``"energy"``: an energy-based model learns beside it and teaches it; it is thrown away. None:
            the mixture learns from the data alone.
        n_components: Of the mixture.
        width: Of the layers of the networks.
        n_draws: Draws of the mixture for each row and step, for the teacher.
        backbone: See :class:`EnergyRegressor`; the teacher trains a copy of its own.
        bounds: See :class:`EnergyRegressor`.
        max_iter: See :class:`EnergyRegressor`.
        batch_size: See :class:`EnergyRegressor`.
        learning_rate: See :class:`EnergyRegressor`.
        weight_decay: See :class:`EnergyRegressor`.
        early_stopping: See :class:`EnergyRegressor`.
        validation_fraction: See :class:`EnergyRegressor`.
        n_iter_no_change: See :class:`EnergyRegressor`.
        refit: See :class:`EnergyRegressor`.
        device: See :class:`EnergyRegressor`.
        random_state: See :class:`EnergyRegressor`.
        verbose: See :class:`EnergyRegressor`.

    Attributes:
        model_: The trained :class:`ebreg.models.MixtureModel`.
        history_: For every pass, the means of the losses, and ``validation_nll`` where it was computed.
        n_iter_: Passes over the data until it stopped, before the last stretch.
        best_epoch_: The pass whose weights were kept, counted from 0; None without validation.
        interrupted_: Whether Ctrl-C ended the fit early.
        n_features_in_: Columns of X.
        feature_names_in_: Their names, where X had them.
        target_names_: Names of the targets, or None.
    """

    _keeps = MixtureModel
    model_: MixtureModel

    def __init__(
        self,
        teacher: str | None = "energy",
        *,
        n_components: int = 8,
        width: int = 64,
        n_draws: int = 16,
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
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = True,
    ):
        self.teacher = teacher
        self.n_components = n_components
        self.width = width
        self.n_draws = n_draws
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
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _method(self, design: Design, units: Units, backbone: nn.Module | None) -> Method:
        checks.one_of("teacher", self.teacher, ["energy", None])
        model = MixtureModel.of(design.parts(units.standard_bounds, backbone), units)
        if self.teacher is None:
            return MixtureNLL(model)
        teachers = design.parts(units.standard_bounds, copy.deepcopy(backbone))
        return MixtureTeacher(
            model, teachers.energy, teachers.backbone, n_draws=self.n_draws, tail=units.tail
        )
