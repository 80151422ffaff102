"""TrainingConfig: the settings of a training."""

from dataclasses import dataclass, fields
from typing import Any

import torch

from ebreg._utils import checks
from ebreg.training.schedules import SCHEDULES

PRECISIONS = {"float32": None, "bf16": torch.bfloat16}
FROZEN_NORMS = ("evaluation", "training")


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of a training, checked when they are made.

    Attributes:
        epochs: Number of epochs.
        batch_size: Examples per step, over all processes together.
        learning_rate: Learning rate of Adam, at the maximum of the schedule.
        schedule: A name in ``ebreg.training.schedules.SCHEDULES``.
        weight_decay: Decoupled weight decay, as in AdamW.
        clip_norm: Largest norm of the gradient; None does not clip.
        averaging: The weights kept are an average over the steps so far, the one at step t with weight t to
            this power: 8 averages over about the last ninth of the steps, however many there were, so
            training may stop at any time. None keeps the last weights.
        anchor: With validation, the epoch, counted from 0, whose weights are kept unless another one is
            better by more than chance. None keeps the epoch with the lowest validation NLL; see
            :class:`ebreg.training.early_stopping.Selection`.
        patience: Early stopping: epochs without a lower validation NLL after which training stops; None
            trains for all epochs.
        patience_growth: Early stopping waits at least this many times as long as it took to come to the
            lowest validation NLL.
        precision: "float32", or "bf16" for autocast of the networks.
        seed: Seed of the order of examples and of the draws, not of the initial weights.
        checkpoint_every: Steps between checkpoints; None writes one after each epoch.
        validation_rows: Rows evaluated at once in validation.
        validation_every: Epochs between validations; the last epoch is always validated.
        frozen_epochs: Epochs at the start in which the backbones are frozen and only the heads are trained.
        frozen_norm: Mode of batch-norm in a frozen backbone: "evaluation" keeps its statistics, and features
            are computed once for all these epochs unless there is an augmentation; "training" updates them,
            as the paper's authors do.
        mixture_epochs: Epochs at the start in which the mixture is trained by its own log-likelihood, before
            it is trained towards the energy (``Method.first_stage``).
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 3e-3
    schedule: str = "warm-up"
    weight_decay: float = 0.0
    clip_norm: float | None = 10.0
    averaging: float | None = 8.0
    anchor: int | None = None
    patience: int | None = None
    patience_growth: float = 0.0
    precision: str = "float32"
    seed: int = 0
    checkpoint_every: int | None = None
    validation_rows: int = 256
    validation_every: int = 1
    frozen_epochs: int = 0
    frozen_norm: str = "evaluation"
    mixture_epochs: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "validation_rows", "validation_every"):
            self._set(name, checks.at_least(name, getattr(self, name), 1))
        for name in ("patience", "checkpoint_every"):
            if getattr(self, name) is not None:
                self._set(name, checks.at_least(name, getattr(self, name), 1))
        if self.anchor is not None:
            self._set("anchor", checks.at_least("anchor", self.anchor, 0))
        for name in ("frozen_epochs", "mixture_epochs"):
            self._set(name, checks.at_least(name, getattr(self, name), 0))
        if self.mixture_epochs >= self.epochs:
            raise ValueError(
                f"with the mixture alone for {self.mixture_epochs} of {self.epochs} epochs the energy is "
                "never trained; give fewer mixture_epochs, or use the method mdn-nll"
            )
        checks.one_of("frozen_norm", self.frozen_norm, FROZEN_NORMS)
        self._set("seed", checks.seed(self.seed, bits=63))
        self._set("learning_rate", checks.positive("learning_rate", self.learning_rate))
        if self.clip_norm is not None:
            self._set("clip_norm", checks.positive("clip_norm", self.clip_norm))
        if self.averaging is not None:
            self._set("averaging", checks.positive("averaging", self.averaging))
        self._set("patience_growth", checks.not_negative("patience_growth", self.patience_growth))
        self._set("weight_decay", checks.not_negative("weight_decay", self.weight_decay))
        checks.one_of("schedule", self.schedule, SCHEDULES)
        checks.one_of("precision", self.precision, PRECISIONS)

    def _set(self, name: str, value: float) -> None:
        # Plain Python numbers, also from numpy: settings are written into checkpoints as JSON.
        object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> "TrainingConfig":
        """Settings by name; an unknown name is an error."""
        known = [f.name for f in fields(cls)]
        for name in settings:
            checks.one_of("a training setting", name, known)
        return cls(**settings)


# The settings of the paper: Adam at 1e-3 for 75 epochs of batches of 32, nothing else.
PAPER = TrainingConfig(
    epochs=75, batch_size=32, learning_rate=1e-3, schedule="constant", clip_norm=None, averaging=None
)
