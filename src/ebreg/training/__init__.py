"""Training: one loop for every method, with validation, early stopping, checkpoints and processes."""

from ebreg.training.config import PAPER, TrainingConfig
from ebreg.training.deadline import Deadline
from ebreg.training.loop import Training, fit
from ebreg.training.member_rows import HeldOut

__all__ = ["PAPER", "Deadline", "HeldOut", "Training", "TrainingConfig", "fit"]
