"""The training of a correction after that of its proposal, and where the correction is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ebreg.corrections import CorrectionNCE
from ebreg.training.batches import as_data, weights_of
from ebreg.training.config import TrainingConfig
from ebreg.training.early_stopping import difference, mean_and_error
from ebreg.training.loop import Training, fit
from ebreg.training.member_rows import HeldOut, MemberRows
from ebreg.training.sharpness import log_likelihoods, sharpness

# Its epochs, as a share of those before it, and its steps at least.
_EPOCHS = 0.2
_FEWEST_STEPS = 500


def fit_correction(
    method: CorrectionNCE,
    data: Any,
    validation: Any,
    config: TrainingConfig,
    before: Training,
    fewest_steps: int = _FEWEST_STEPS,
    **settings: Any,
) -> Training:
    """Train g of a model whose q is trained; q and the backbone stay as they are.

    Members whose validation rows g does not help are left without it, and all of them are if the mean gain of
    all validation rows together is less than its standard error.

    Args:
        method: What is trained.
        data: As in :func:`fit`.
        validation: The same rows as in the training before; without any, nothing shows whether g helps.
        config: Settings of the training before.
        before: That training.
        fewest_steps: Number of steps at least.
        settings: Other arguments of :func:`fit`.

    Returns:
        The record of both trainings; its best epochs are those of q.
    """
    model, data = method.model.eval(), as_data(data)
    held_out = isinstance(validation, HeldOut)
    validation = validation if held_out else as_data(validation, "validation")
    rows = MemberRows.of(model, data, validation)
    assert rows.validation is not None
    validated = data if held_out else validation
    method.validation_likelihoods = log_likelihoods(model, validated, rows.validation)
    own = log_likelihoods(model, data, rows.train)
    method.sharpness.copy_(sharpness(own, method.validation_likelihoods))
    config = _config(config, rows.train.shape[1], len(before.history), fewest_steps)
    with frozen(model.backbone, model.proposal):
        training = fit(method, data, validation, config, **settings)
    gained = torch.zeros(len(rows.validation), dtype=torch.bool)
    if training.row_nlls:  # else it was interrupted before the first validation
        weights = weights_of(validated).double()
        nlls, corrected = torch.stack(before.row_nlls), torch.stack(training.row_nlls)
        gained = has_gained(nlls, corrected, rows.validation, weights)
    method.correction.reset(~gained.expand(model.n_members))
    return replace(
        before,
        history=before.history + training.history,
        interrupted=training.interrupted,
        out_of_time=before.out_of_time or training.out_of_time,
        seconds=before.seconds + training.seconds,
    )


def fit_correction_again(
    method: CorrectionNCE, data: Any, config: TrainingConfig, **settings: Any
) -> Training:
    """Fine-tune g on all rows, after q was fine-tuned on them; members without a correction stay without.

    Args:
        method: As :func:`fit_correction` left it.
        data: All rows.
        config: Settings.
        settings: Other arguments of :func:`fit`.
    """
    model, data, left_out = method.model.eval(), as_data(data), method.correction.is_zero
    own = log_likelihoods(model, data, MemberRows.of(model, data, None).train)
    if method.validation_likelihoods is not None:
        method.sharpness.copy_(sharpness(own, method.validation_likelihoods))
    with frozen(model.backbone, model.proposal):
        training = fit(method, data, config=config, **settings)
    method.correction.reset(left_out)
    return training


def has_gained(before: Tensor, after: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Whether each member has gained; none has unless all rows together gain more than their standard error.

    Args:
        before: NLLs of the validation rows of each block, shape (G, n).
        after: The same, with a correction.
        rows: Their row numbers, shape (G, n); several blocks may have the same row.
        weights: Weights of all rows, shape (N,).

    Returns:
        Shape (G,).
    """
    gain = difference(before, after)
    # A row counts once, with its mean gain.
    distinct, place = rows.unique(return_inverse=True)
    sums = torch.zeros(len(distinct), dtype=gain.dtype).index_add(0, place.flatten(), gain.flatten())
    mean, error = mean_and_error(sums / place.flatten().bincount(), weights[distinct])
    own = torch.tensor([mean_and_error(*each)[0] for each in zip(gain, weights[rows], strict=True)])
    return (own > 0) & (mean > error)


def _config(config: TrainingConfig, n_rows: int, n_epochs: int, fewest_steps: int) -> TrainingConfig:
    # From that of a training of n epochs; n_rows are those of a member.
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
