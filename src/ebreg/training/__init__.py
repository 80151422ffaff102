"""Training: one loop for every method, with validation, early stopping, checkpoints and processes."""

from ebreg.training.config import PAPER, TrainingConfig
from ebreg.training.loop import Training, fit
from ebreg.training.member_rows import HeldOut

__all__ = ["PAPER", "HeldOut", "Training", "TrainingConfig", "fit"]
