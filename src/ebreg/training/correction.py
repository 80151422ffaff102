"""The training of a correction after that of its proposal, and where the correction is kept."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ebreg.corrections import CorrectionNCE
from ebreg.training.config import TrainingConfig
from ebreg.training.loop import Training, fit
from ebreg.training.sharpness import sharpness

# Its epochs, as a share of those before it, and its steps at least.
_EPOCHS = 0.2
_FEWEST_STEPS = 500


def fit_correction(
    method: CorrectionNCE,
    data: Any,
    validation: Any,
    config: TrainingConfig,
    before: Training,
    **settings: Any,
) -> Training:
    """Train g of a model whose q is trained; q and the backbone stay as they are.

    Members whose validation rows g does not help are left without it, and all of them are if the mean gain of
    all validation rows together is less than its standard error.

    Args:
        method: What is trained.
        data: As in :func:`fit`.
        validation: The same rows as in the training before.
        config: Settings, by :func:`correction_config`.
        before: The training of q.
        settings: Other arguments of :func:`fit`.

    Returns:
        The record of both trainings; its best epochs are those of q.
    """
    model = method.model
    method.sharpness.copy_(sharpness(model.eval(), data, validation))
    with frozen(model.backbone, model.proposal):
        training = fit(method, data, validation, config, **settings)
    if training.row_nlls and before.row_nlls:
        gained = has_gained(torch.stack(before.row_nlls), torch.stack(training.row_nlls))
        method.correction.reset(~gained.expand(model.n_members))
    return replace(
        before,
        history=before.history + training.history,
        interrupted=training.interrupted,
        seconds=before.seconds + training.seconds,
    )


def correction_config(
    config: TrainingConfig, n_rows: int, n_epochs: int, fewest_steps: int = _FEWEST_STEPS
) -> TrainingConfig:
    """The settings of the training of a correction, from those of what it corrects.

    Args:
        config: Those.
        n_rows: Rows of a member.
        n_epochs: Epochs of the training before.
        fewest_steps: Number of steps at least.
    """
    epochs = max(1, round(_EPOCHS * n_epochs), -(-fewest_steps // -(-n_rows // config.batch_size)))
    return replace(
        config,
        epochs=epochs,
        schedule="one-cycle",
        anchor=None,
        patience=None if config.patience is None else max(2, epochs // 3),
        patience_growth=0.0,
        validation_every=max(1, epochs // 20),
        frozen_epochs=0,
        mixture_epochs=0,
    )


def has_gained(before: Tensor, after: Tensor) -> Tensor:
    """Whether each member has gained, from NLLs of its validation rows, shape (G, n); shape (G,)."""
    gain = before - after
    is_worth_it = gain.mean() > gain.std() / math.sqrt(gain.numel())
    return (gain.mean(dim=1) > 0) & is_worth_it


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Modules that do not learn for a while."""
    learning = [p for module in modules for p in module.parameters() if p.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
