"""Trainer: the trainings of a fit: with early stopping, of a correction, and then on all rows."""

import copy
import multiprocessing
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ebreg._utils.stack_level import stack_level
from ebreg.corrections import CorrectionNCE, in_turn
from ebreg.errors import TrustWarning
from ebreg.estimators import defaults, pilot
from ebreg.estimators.recipe import Pace, Recipe
from ebreg.methods import Method
from ebreg.training import Deadline, HeldOut, TrainingConfig, fit
from ebreg.training.batches import TensorData, weights_of
from ebreg.training.calibration import calibrate
from ebreg.training.correction import fit_correction, fit_correction_again
from ebreg.training.loop import Training
from ebreg.units import Standardizer


@dataclass(frozen=True)
class _Shares:
    """Shares of the time that may have passed when a part of a fit ends; the last part has the rest."""

    train: float
    correct: float
    fine_tune: float


_SHARES, _SHARES_WITH_CORRECTION = _Shares(0.8, 0.8, 0.95), _Shares(0.58, 0.75, 0.87)


# A part of a fit is not begun with less time than this.
_FEWEST_SECONDS = 0.25


@dataclass(frozen=True)
class Trainer:
    """Settings of a regressor's trainings; None stands for the default for the number of rows.

    Attributes:
        recipe: Settings that the library chose.
        max_iter: Maximum number of epochs.
        batch_size: Rows a step.
        weight_decay: Decoupled.
        n_iter_no_change: Epochs without improvement before training stops.
        verbose: True, False or "auto": whether to show a progress bar.
        seed: Of the order of the rows and of the draws.
        deadline: When all trainings have to be finished; None: they take the time that they need.
    """

    recipe: Recipe
    max_iter: int | None
    batch_size: int | None
    weight_decay: float
    n_iter_no_change: int | None
    verbose: bool | str
    seed: int
    deadline: Deadline | None = None

    def run(
        self, method: Method, data: TensorData, validation: TensorData | HeldOut | None, all_rows: TensorData
    ) -> tuple[Training, Training]:
        """Train in place, and fine-tune on all rows; returns the record of the first training and of all."""
        first, correction = in_turn(method)
        shares = _SHARES if correction is None else _SHARES_WITH_CORRECTION
        training, pace = self.train(first, data, validation, shares.train)
        final = training
        if validation is None or not self._goes_on(final, passes=1):
            correction, shares = None, _SHARES
        if correction is not None:
            final = self.correct(correction, data, validation, final, pace, shares.correct)
        held_out = isinstance(validation, HeldOut)
        if isinstance(validation, HeldOut) and training.best_epoch is not None:
            # In double precision: members have close densities, and weights magnify rounding errors.
            calibrate(method.model.to_float64(), data, validation, self.recipe.n_settings)
            method.model.to_float32()
        if not self.recipe.refit or not self._goes_on(final) or not (held_out or len(data) < len(all_rows)):
            return training, final
        n_epochs = self.recipe.fine_tuning.n_epochs(_n_epochs_kept(training))
        final = self.fine_tune(first, all_rows, n_epochs, final, pace, shares.fine_tune)
        if correction is not None and self._goes_on(final):
            final = self.correct_again(correction, all_rows, final, pace)
        return training, final

    def _goes_on(self, training: Training, passes: int = 0) -> bool:
        # Whether there is time for another part, and for what it takes before its first step: a part that
        # looks at many rows for that needs a training that came so many times through the rows.
        if training.interrupted or (training.out_of_time and len(training.history) <= passes):
            return False
        return self.deadline is None or self.deadline.seconds_left > _FEWEST_SECONDS

    def _until(self, share: float) -> Deadline | None:
        return None if self.deadline is None else self.deadline.part(share)

    def train(
        self,
        method: Method,
        data: TensorData,
        validation: TensorData | HeldOut | None,
        share: float = 1.0,
    ) -> tuple[Training, Pace]:
        """Train in place; with validation rows, the weights of the best epoch are kept.

        Args:
            method: What is trained.
            data: Training rows.
            validation: Validation rows, if any.
            share: Of the time, that may have passed at the end.

        Returns:
            The record of the training whose weights were kept, and its pace.
        """
        deadline = self._until(share)
        if self._has_pilot(validation):
            training, pace = self._train_twice(method, data, validation, deadline)
        else:
            pace = self.recipe.pace
            training = self._fit(method, data, validation, pace, deadline)
        if training.out_of_time and len(training.history) == 1:
            _warn_of_first_pass()
        if training.best_epoch is not None and validation is not None:
            _warn_if_diverged(pilot.kept_nll(training), data, validation)
        if training.interrupted:
            _warn_of_interrupt("in its training; the best weights so far are kept")
        return training, pace

    def _has_pilot(self, validation: TensorData | HeldOut | None) -> bool:
        # Settings of the user's are those of one training.
        is_given = self.max_iter is not None or self.n_iter_no_change is not None
        return self.recipe.pilot is not None and isinstance(validation, HeldOut) and not is_given

    def _train_twice(
        self, method: Method, data: TensorData, validation: Any, deadline: Deadline | None
    ) -> tuple[Training, Pace]:
        # A short training, and a long one from the same start where the members still gain at its end.
        assert self.recipe.pilot is not None
        short, long = self.recipe.pilot, self.recipe.pace
        start = copy.deepcopy(method.state_dict())
        first = self._fit(method, data, validation, short, deadline)
        if not pilot.goes_on(first, deadline):
            return first, short
        kept = copy.deepcopy(method.state_dict())
        method.load_state_dict(start)
        second = self._fit(method, data, validation, long, deadline)
        better, pace = pilot.better((first, short), (second, long))
        if better is first:
            method.load_state_dict(kept)
        return replace(better, interrupted=second.interrupted, seconds=first.seconds + second.seconds), pace

    def _fit(
        self, method: Method, data: TensorData, validation: Any, pace: Pace, deadline: Deadline | None
    ) -> Training:
        config = self._config(data, validation, pace)
        return fit(method, data, validation, config, progress=self._progress, deadline=deadline)

    def _config(
        self, data: TensorData, validation: TensorData | HeldOut | None, pace: Pace
    ) -> TrainingConfig:
        config = defaults.training_config(
            _n_rows(data, validation),
            validated=validation is not None,
            max_iter=self.max_iter,
            batch=self.batch_size,
            n_iter_no_change=self.n_iter_no_change,
            pace=pace,
            weight_decay=self.weight_decay,
            seed=self.seed,
        )
        if self.recipe.n_members == 1:
            return config
        return defaults.member_config(config, self.n_iter_no_change, pace, self.recipe.n_members)

    def correct(
        self,
        method: CorrectionNCE,
        data: TensorData,
        validation: TensorData | HeldOut | None,
        before: Training,
        pace: Pace,
        share: float = 1.0,
    ) -> Training:
        """Train a correction of what was trained before; returns the record of both trainings."""
        training = fit_correction(
            method,
            data,
            validation,
            self._config(data, validation, pace),
            before,
            self.recipe.n_correction_steps if self.max_iter is None else 1,
            progress=self._progress,
            deadline=self._until(share),
        )
        if training.interrupted:
            _warn_of_interrupt("while its energy was trained; what validation rows support of it is kept")
        return training

    def correct_again(
        self, method: CorrectionNCE, data: TensorData, before: Training, pace: Pace
    ) -> Training:
        """Fine-tune a correction of what was fine-tuned; members without one stay without."""
        if method.correction.is_zero.all():
            return before
        n_epochs = defaults.n_correction_tuning_epochs(sum("nce" in entry for entry in before.history))
        return self._tuned(fit_correction_again, method, data, n_epochs, before, pace, 1.0)

    def fine_tune(
        self,
        method: Method,
        data: TensorData,
        n_epochs: int,
        before: Training,
        pace: Pace,
        share: float = 1.0,
    ) -> Training:
        """Train on all rows, those for validation included; returns the record of all trainings.

        An interrupt restores the weights from before.

        Args:
            method: What is trained.
            data: All rows.
            n_epochs: Number of epochs.
            before: The record of all trainings before.
            pace: Of the training before.
            share: Of the time, that may have passed at the end.
        """
        return self._tuned(fit, method, data, n_epochs, before, pace, share)

    def _tuned(
        self,
        train: Callable[..., Training],
        method: Any,
        data: TensorData,
        n_epochs: int,
        before: Training,
        pace: Pace,
        share: float,
    ) -> Training:
        rate = self.recipe.fine_tuning.rate * pace.learning_rate
        config = defaults.fine_tuning_config(
            len(data), n_epochs, self.batch_size, rate, self.weight_decay, self.seed
        )
        best = copy.deepcopy(method.state_dict())
        training = train(method, data, config=config, progress=self._progress, deadline=self._until(share))
        if training.interrupted:
            method.load_state_dict(best)
            _warn_of_interrupt("while it was fine-tuned on all rows; the weights before that are kept")
            return replace(before, interrupted=True)
        return replace(before, history=before.history + training.history)

    @property
    def _progress(self) -> bool | str:
        # Many bars at once, from fits in parallel, would be noise; joblib's workers have a parent process.
        in_worker = multiprocessing.parent_process() is not None
        in_thread = threading.current_thread() is not threading.main_thread()
        return False if in_worker or in_thread else self.verbose


def _warn_of_first_pass() -> None:
    warnings.warn(
        "max_seconds ended the training within its first pass over the rows: the model has not seen all of "
        "them. Raise max_seconds, or give fewer rows.",
        TrustWarning,
        stacklevel=stack_level(),
    )


def _warn_of_interrupt(when: str) -> None:
    warnings.warn(f"the fit was interrupted {when}", UserWarning, stacklevel=stack_level())


def _n_epochs_kept(training: Training) -> int:
    # Epochs behind the weights that were kept; of members, on average.
    best = training.best_epoch
    if best is None:
        return len(training.history)
    epochs = best if isinstance(best, list) else [best]
    return round(sum(epochs) / len(epochs)) + 1


def _n_rows(data: TensorData, validation: TensorData | HeldOut | None) -> int:
    # That a member is trained on.
    if not isinstance(validation, HeldOut):
        return len(data)
    return len(data) - validation.index.shape[1] if validation.train is None else validation.train.shape[1]


def _warn_if_diverged(nll: float, data: TensorData, validation: TensorData | HeldOut) -> None:
    # A training that diverged may have finite losses. It is compared with one normal distribution, fitted to
    # the training rows.
    if isinstance(validation, HeldOut):
        validation = data.take(validation.index.flatten().unique())
    weights = weights_of(validation).double()
    normal_nlls = Standardizer.robust("y", data.y).normal_nll(validation.y)
    normal_nll = ((weights * normal_nlls).sum() / weights.sum()).item()
    # Before any training, the energy model is level over the range of the data: a little worse.
    if nll <= normal_nll + 2 * validation.y.shape[1]:
        return
    warnings.warn(
        f"the training diverged: its negative log-likelihood on the validation rows is {nll:.4g}, and one "
        f"normal distribution for all rows has {normal_nll:.4g}. Lower learning_rate, raise max_iter, or "
        "give more rows.",
        TrustWarning,
        stacklevel=stack_level(),
    )
