"""Stages: what learns in the first epochs of a training, before all of it does."""

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
    """Some epochs of a training.

    Attributes:
        learner: Gives the losses.
        parallel: The same, with gradients averaged over the processes.
        data: What it learns from.
        validation: What it is judged by.
        resting: Backbones that compute in evaluation mode while the rest is trained.
        embedding: Whose features the data hold in place of inputs; None: the inputs are there themselves.
    """

    learner: Method
    parallel: nn.Module
    data: Data
    validation: Data | None
    resting: tuple[nn.Module, ...]
    embedding: FrozenFeatures | None

    def train(self) -> None:
        """Training mode, except for what rests."""
        self.learner.train()
        for backbone in self.resting:
            backbone.eval()

    def inputs(self, method: Method) -> AbstractContextManager[None]:
        """While it lasts, a method, the one under training or its average, takes the stage's inputs."""
        return nullcontext() if self.embedding is None else self.embedding.as_inputs(method)


class Stages:
    """The stages of a training, by epoch.

    In the first ``mixture_epochs`` the mixture learns by its own log-likelihood. In the first
    ``frozen_epochs`` the backbones keep their weights; their features are then computed once, unless an
    augmentation or batch-norm in training mode changes them from step to step.

    Args:
        method: What is trained.
        data: What it learns from.
        validation: What it is judged by.
        config: Settings.
        processes: Under which it runs.
    """

    def __init__(
        self,
        method: Method,
        data: Data,
        validation: Data | None,
        config: TrainingConfig,
        processes: Processes,
    ):
        self._method, self._config, self._processes = method, config, processes
        self._data, self._validation = data, validation
        self._backbones = tuple(backbones_of(method))
        self._learning = [p for each in self._backbones for p in each.parameters() if p.requires_grad]
        self._current: tuple[tuple[bool, bool], Stage] | None = None

    def at(self, epoch: int) -> Stage:
        """The stage of an epoch, counted from 0."""
        kind = epoch < self._config.mixture_epochs, epoch < self._config.frozen_epochs
        if self._current is None or self._current[0] != kind:
            self._current = kind, self._stage(*kind)
        return self._current[1]

    def leave(self) -> None:
        """What was frozen may learn again."""
        self._freeze(False)

    def _stage(self, opening: bool, frozen: bool) -> Stage:
        self._freeze(frozen)
        learner = self._method.first_stage() if opening else self._method
        parallel = self._processes.wrap(learner, all_learn=learner is self._method)
        data, validation = self._data, self._validation
        resting: tuple[nn.Module, ...] = ()
        embedding = None
        if frozen and self._config.frozen_norm == "evaluation":
            resting = self._backbones
            if augmentation_of(self._data) is None:
                embedding, data, validation = self._embedded
        return Stage(learner, parallel, data, validation, resting, embedding)

    def _freeze(self, frozen: bool) -> None:
        for parameter in self._learning:
            parameter.requires_grad_(not frozen)

    @cached_property
    def _embedded(self) -> tuple[FrozenFeatures, Data, Data | None]:
        embedding = FrozenFeatures(self._method, self._config.validation_rows)
        validation = None if self._validation is None else embedding.of(self._validation)
        return embedding, embedding.of(self._data), validation
