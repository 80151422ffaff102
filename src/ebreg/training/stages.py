"""Stages: what is trained in the first epochs, and in the rest."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from ebreg.methods import Method
from ebreg.training.batches import Data, augmentation_of
from ebreg.training.config import TrainingConfig
from ebreg.training.frozen_features import FrozenFeatures, backbones_of
from ebreg.training.processes import Processes


@dataclass(frozen=True)
class Stage:
    """Some epochs of a training, with their losses and their data.

    Attributes:
        learner: The method that computes the losses.
        parallel: The same, with gradients averaged over the processes.
        data: Training data.
        validation: Validation data, or None.
        in_evaluation: Backbones in evaluation mode while the rest is trained.
        features: The features that ``data`` and ``validation`` hold as inputs; None: they hold the inputs.
    """

    learner: Method
    parallel: nn.Module
    data: Data
    validation: Data | None
    in_evaluation: tuple[nn.Module, ...]
    features: FrozenFeatures | None

    def train(self) -> None:
        """Set training mode, except for the backbones in evaluation mode."""
        self.learner.train()
        for backbone in self.in_evaluation:
            backbone.eval()

    def inputs(self, method: Method) -> AbstractContextManager[None]:
        """Context in which a method, the one under training or its average, takes the stage's inputs."""
        return nullcontext() if self.features is None else self.features.as_inputs(method)


class Stages:
    """The stages of a training, by epoch.

    In the first ``mixture_epochs`` the mixture is trained by its own log-likelihood. In the first
    ``frozen_epochs`` the backbones are frozen; their features are then computed once, unless an augmentation
    or batch-norm in training mode changes them from step to step.

    Args:
        method: The method under training.
        data: Training data.
        validation: Validation data, or None.
        config: Settings.
        processes: The processes that share a batch.
    """

    def __init__(
        self,
        method: Method,
        data: Data,
        validation: Data | None,
        config: TrainingConfig,
        processes: Processes,
    ):
        if config.frozen_epochs and method.model.n_members > 1 and not method.model.shares_backbone:
            raise ValueError("frozen_epochs needs a backbone that all members share; set it to 0")
        self._method, self._config, self._processes = method, config, processes
        self._data, self._validation = data, validation
        self._backbones = tuple(backbones_of(method))
        self._trainable = [p for each in self._backbones for p in each.parameters() if p.requires_grad]
        self._current: tuple[tuple[bool, bool], Stage] | None = None

    def at(self, epoch: int) -> Stage:
        """The stage of an epoch, counted from 0."""
        kind = epoch < self._config.mixture_epochs, epoch < self._config.frozen_epochs
        if self._current is None or self._current[0] != kind:
            self._current = kind, self._stage(*kind)
        return self._current[1]

    def unfreeze(self) -> None:
        """Make the parameters trainable that were so before."""
        self._freeze(False)

    def _stage(self, is_first: bool, frozen: bool) -> Stage:
        self._freeze(frozen)
        learner = self._method.first_stage() if is_first else self._method
        parallel = self._processes.wrap(learner, all_learn=learner is self._method)
        data, validation = self._data, self._validation
        in_evaluation: tuple[nn.Module, ...] = ()
        features = None
        if frozen and self._config.frozen_norm == "evaluation":
            in_evaluation = self._backbones
            if augmentation_of(self._data) is None:
                features, data, validation = self._with_features
        return Stage(learner, parallel, data, validation, in_evaluation, features)

    def _freeze(self, frozen: bool) -> None:
        for parameter in self._trainable:
            parameter.requires_grad_(not frozen)

    @cached_property
    def _with_features(self) -> tuple[FrozenFeatures, Data, Data | None]:
        features = FrozenFeatures(self._method, self._config.validation_rows)
        validation = None if self._validation is None else features.of(self._validation)
        return features, features.of(self._data), validation
