"""Gradient ascent for many rows, a chunk at a time, numpy out."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.models import Model

_ROWS = 256  # at once: those of a backbone for images need the memory


def start_of(model: Model, y_start: Any, n_rows: int, drop_target_axis: bool) -> Tensor:
    """Initial estimates, (n,) or (n, D) as y was in the fit, as a float64 tensor (n, D)."""
    y = checks.numbers("y_start", y_start).detach().cpu().double()
    checks.shape("y_start", y, (n_rows,) if drop_target_axis else (n_rows, model.n_targets))
    y = y.reshape(n_rows, model.n_targets)
    model.check_start(y.to(model.y_units.scale))  # of all rows, so that messages have their numbers
    return y


def in_chunks(model: Model, x: Tensor, start: Tensor | None, n_steps: int, step_size: float) -> np.ndarray:
    """The ascent of all rows of x, (n, ...), from starts (n, D) or the means of the proposal: (n, D)."""
    # At least one chunk, also of no rows: it has the shape of the answer, and checks the arguments.
    chunks = [slice(first, first + _ROWS) for first in range(0, max(1, len(x)), _ROWS)]
    answers = [
        model.gradient_ascent(x[rows], None if start is None else start[rows], n_steps, step_size)
        for rows in chunks
    ]
    return torch.cat(answers).cpu().numpy()
