"""Training: one loop for every method, with validation, early stopping, checkpoints and processes."""

from ebreg.training.config import PAPER, TrainingConfig
from ebreg.training.loop import Training, fit

__all__ = ["PAPER", "Training", "TrainingConfig", "fit"]
