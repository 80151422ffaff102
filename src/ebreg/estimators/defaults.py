"""The settings that follow from the number of rows: batches, epochs, and the rows kept for validation."""

import math
from numbers import Real

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.training.config import TrainingConfig

# A training of the default network takes about this many steps, where one pass over the data has fewer.
_STEPS = 4500
_FEWEST_EPOCHS = 10
# Below this many rows nothing can be set aside, and no training needs as many steps.
_FEWEST_ROWS_TO_SPLIT = 15
_STEPS_UNWATCHED = 600
# Validation costs as much as several steps, so there are some between one and the next.
_STEPS_BETWEEN_VALIDATIONS = 32


def batch_size(n_rows: int) -> int:
    """A quarter of a small table, 128 for most, and a two-hundredth of a large one up to 1,024."""
    if n_rows < 512:
        return max(1, min(n_rows, max(16, n_rows // 4)))
    return min(1024, max(128, 2 ** round(math.log2(n_rows / 200))))


def n_validation(n_rows: int, fraction: float | str = "auto") -> int:
    """How many rows to keep for validation.

    By default a tenth, but at least 20 and at most 4,000 rows, and never more than a third; of fewer than 15
    rows none.
    """
    if fraction == "auto":
        if n_rows < _FEWEST_ROWS_TO_SPLIT:
            return 0
        return min(max(round(0.1 * n_rows), 20), 4000, n_rows // 3)
    if isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < fraction < 1:
        raise ValueError(f"validation_fraction must be 'auto' or lie in (0, 1), got {fraction!r}")
    n = min(max(1, round(float(fraction) * n_rows)), n_rows - 1)
    if n == 0:
        raise ValueError("validation_fraction needs at least 2 rows; set early_stopping=False for one")
    return n


def split(n_rows: int, n_held: int, seed: int) -> tuple[Tensor, Tensor]:
    """Row numbers for training and for validation, both in ascending order."""
    order = torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed))
    return order[n_held:].sort().values, order[:n_held].sort().values


def training_config(
    n_rows: int,
    validated: bool,
    max_iter: int | None,
    batch: int | None,
    n_iter_no_change: int | None,
    learning_rate: float,
    weight_decay: float,
    seed: int,
) -> TrainingConfig:
    """The settings of a training of n rows; None stands for what suits their number."""
    batch = batch_size(n_rows) if batch is None else checks.at_least("batch_size", batch, 1)
    n_batches = -(-n_rows // batch)
    if max_iter is None:
        steps = _STEPS if validated else min(_STEPS, max(_STEPS_UNWATCHED, 2 * n_rows))
        max_iter = max(_FEWEST_EPOCHS, -(-steps // n_batches))
    max_iter = checks.at_least("max_iter", max_iter, 1)
    every = max(1, min(_STEPS_BETWEEN_VALIDATIONS // n_batches, max_iter // 10))
    if n_iter_no_change is None:
        n_iter_no_change = max(2, every, max_iter // 3)
    return TrainingConfig(
        epochs=max_iter,
        batch_size=batch,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        patience=checks.at_least("n_iter_no_change", n_iter_no_change, 1) if validated else None,
        anchor=max_iter // 3 if validated else None,
        validation_every=every,
        seed=seed,
    )


def finishing_config(
    n_rows: int,
    n_passes: int,
    batch: int | None,
    learning_rate: float,
    weight_decay: float,
    seed: int,
) -> TrainingConfig:
    """The last stretch, over all rows: a sixth of the passes it took to get there, down to a rate of zero."""
    return TrainingConfig(
        epochs=max(1, round(n_passes / 6)),
        batch_size=batch_size(n_rows) if batch is None else batch,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        schedule="one-cycle",
        averaging=2.0,
        seed=seed + 1,
    )
