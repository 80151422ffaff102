"""Defaults that depend on the number of rows: batch size, epochs, validation rows."""

import math
from dataclasses import replace

from ebreg._utils import checks
from ebreg.estimators.recipe import Pace
from ebreg.training.config import TrainingConfig

_FEWEST_EPOCHS = 10
# Fewer rows are too few to split.
_FEWEST_ROWS_TO_SPLIT = 15
# Without validation nothing stops the training early, and few rows need fewer steps.
_STEPS_WITHOUT_VALIDATION = 600
# The fine-tuning of a correction, as a share of the epochs of its training.
_CORRECTION_TUNING = 0.3
# A validation costs as much as several steps, so not every epoch of a small table has one.
_STEPS_BETWEEN_VALIDATIONS = 32


def batch_size(n_rows: int) -> int:
    """Rows a step: a quarter of a small table, 128 for most, n / 200 of a large one, up to 1,024."""
    if n_rows < 512:
        return max(1, min(n_rows, max(16, n_rows // 4)))
    return min(1024, max(128, 2 ** round(math.log2(n_rows / 200))))


def n_validation(n_rows: int, fraction: float | str = "auto") -> int:
    """Number of validation rows.

    "auto" is a tenth, but at least 20 and at most 4,000 rows, never more than a third, and none of fewer than
    15.
    """
    if fraction == "auto":
        if n_rows < _FEWEST_ROWS_TO_SPLIT:
            return 0
        return min(max(round(0.1 * n_rows), 20), 4000, n_rows // 3)
    if isinstance(fraction, str):
        raise ValueError(f"validation_fraction must be 'auto' or a number in (0, 1), got {fraction!r}")
    fraction = checks.fraction("validation_fraction", fraction)
    n = min(max(1, round(fraction * n_rows)), n_rows - 1)
    if n == 0:
        raise ValueError("validation_fraction needs at least 2 rows; set early_stopping=False for one")
    return n


def training_config(
    n_rows: int,
    validated: bool,
    max_iter: int | None,
    batch: int | None,
    n_iter_no_change: int | None,
    pace: Pace,
    weight_decay: float,
    seed: int,
) -> TrainingConfig:
    """The settings of a training of one member on n rows; None stands for the default for their number."""
    batch = batch_size(n_rows) if batch is None else checks.at_least("batch_size", batch, 1)
    n_batches = -(-n_rows // batch)
    if max_iter is None:
        steps = pace.most_steps(n_rows)
        steps = steps if validated else min(steps, max(_STEPS_WITHOUT_VALIDATION, 2 * n_rows))
        max_iter = max(_FEWEST_EPOCHS, -(-steps // n_batches))
    max_iter = checks.at_least("max_iter", max_iter, 1)
    every = max(1, min(_STEPS_BETWEEN_VALIDATIONS // n_batches, max_iter // 10))
    if n_iter_no_change is None:
        n_iter_no_change = max(2, every, max_iter // 3)
    return TrainingConfig(
        epochs=max_iter,
        batch_size=batch,
        learning_rate=pace.learning_rate,
        weight_decay=weight_decay,
        patience=checks.at_least("n_iter_no_change", n_iter_no_change, 1) if validated else None,
        anchor=max_iter // 3 if validated else None,
        validation_every=every,
        seed=seed,
    )


def member_config(
    config: TrainingConfig, n_iter_no_change: int | None, pace: Pace, n_members: int
) -> TrainingConfig:
    """The settings of a training of several members, from those of one.

    Every member keeps the epoch that is best on its own rows: their mistakes in that are not the same. The
    learning rate falls at the end, for members that still learn then.
    """
    patience, growth = config.patience, 0.0
    if n_iter_no_change is None and patience is not None:
        patience = max(2 * config.validation_every, round(pace.patience * config.epochs))
        growth = pace.patience_growth
    return replace(
        config,
        schedule=pace.schedule,
        anchor=None,
        patience=patience,
        patience_growth=growth,
        validation_rows=config.validation_rows * n_members,
    )


def n_correction_tuning_epochs(n_epochs: int) -> int:
    """Epochs in which a correction is fine-tuned, from those of its training."""
    return max(1, round(_CORRECTION_TUNING * n_epochs))


def fine_tuning_config(
    n_rows: int, n_epochs: int, batch: int | None, learning_rate: float, weight_decay: float, seed: int
) -> TrainingConfig:
    """The settings of fine-tuning on all rows, down to a learning rate of zero."""
    return TrainingConfig(
        epochs=n_epochs,
        batch_size=batch_size(n_rows) if batch is None else batch,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        schedule="one-cycle",
        averaging=2.0,
        seed=seed + 1,
    )
