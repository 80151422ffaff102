"""The training loop: epochs, validation, early stopping, checkpoints and several processes.

A method returns named losses per example; the loop knows nothing else of f and q. A run with a checkpoint can
be killed at any moment: resumed, it ends with the same weights, bit for bit, as one that was not killed.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ebreg._utils.random_state import seeded
from ebreg.methods import Method
from ebreg.saving import checkpoints
from ebreg.training.batch_norm import check_batch_norm, shared_statistics
from ebreg.training.batches import Data, as_data, augmentation_of, describe, split_batches, weights_of
from ebreg.training.config import TrainingConfig
from ebreg.training.interrupts import stop_on_interrupt
from ebreg.training.processes import Processes, connect
from ebreg.training.progress_bar import progress_bar
from ebreg.training.stages import Stage, Stages
from ebreg.training.state import Progress, State
from ebreg.training.step import Step
from ebreg.training.validation import validation_nll


@dataclass(frozen=True)
class Training:
    """The result of :func:`fit`.

    Attributes:
        history: One entry per epoch.
        best_epoch: The epoch whose weights were kept, counted from 0; None without validation.
        interrupted: Whether Ctrl-C stopped it early.
        seconds: Time spent, including that before a checkpoint was resumed.
    """

    history: list[dict[str, float]]
    best_epoch: int | None
    interrupted: bool
    seconds: float


def fit(
    method: Method,
    data: Any,
    validation: Any = None,
    config: TrainingConfig | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool | str = True,
    after_epoch: Callable[[int], None] | None = None,
    identity: Mapping[str, Any] | None = None,
) -> Training:
    """Train a method on data, in place.

    With validation data the weights of the best epoch are kept, also when training is interrupted by Ctrl-C.
    Afterwards the method and its model are in evaluation mode. Under ``torchrun`` every process calls this
    with the same arguments.

    Args:
        method: The method to train, on the device of its parameters.
        data: A tuple (x, y) of tensors x (n, ...) and y (n, D), or (x, y, weights) with weights (n,), or a
            map-style data set.
        validation: The same, or None.
        config: Settings.
        checkpoint: Path of the checkpoint file. A file that exists is an error unless ``resume`` is set.
        resume: Continue from the checkpoint if it exists, else start from the beginning.
        progress: Whether to show a progress bar; "auto": in a terminal or a notebook, once the training has
            taken two seconds.
        after_epoch: Called after each epoch with the number of epochs finished.
        identity: JSON values that must be equal for a checkpoint to be resumed, in addition to the data, the
            method and the settings.
    """
    if not isinstance(method, Method):
        raise TypeError(f"fit takes a method, such as methods.JointNCE(model); got {type(method).__name__}")
    if not isinstance(config, TrainingConfig | None):
        raise TypeError(f"config must be a TrainingConfig, got {type(config).__name__}")
    data = as_data(data)
    validation = None if validation is None else as_data(validation, "validation")
    config = config or TrainingConfig()
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists() and not resume:
        raise FileExistsError(
            f"checkpoint {path} exists: pass resume=True to continue from it, or give another path"
        )
    device = method.model.reference.device
    # Dropout uses the global random state.
    with (
        connect(device) as processes,
        seeded(config.seed, device),
        shared_statistics(method, processes.count),
    ):
        run = _Run(method, data, validation, config, processes, identity or {})
        try:
            if path is not None:
                checkpoints.prepare(path)
                run.restore(path)
            return run.train(path, progress, after_epoch)
        finally:
            run.stages.unfreeze()
            method.zero_grad()  # a later backward() of the user's starts from nothing
            method.eval()
            del run  # its DistributedDataParallel must go before the process group does


class _Run:
    """One call of :func:`fit`."""

    def __init__(
        self,
        method: Method,
        data: Data,
        validation: Data | None,
        config: TrainingConfig,
        processes: Processes,
        identity: Mapping[str, Any],
    ):
        self.method, self.data, self.validation = method, data, validation
        self.config, self.processes, self.identity = config, processes, identity
        self.state = State(method, config)
        self.stages = Stages(method, data, validation, config, processes)
        self.step = Step(self.state, data, config, processes)
        batches = split_batches(torch.arange(len(data)), config.batch_size)
        self.n_batches = len(batches)
        check_batch_norm(method, len(batches[-1]), processes.count)

    def train(
        self, path: Path | None, show: bool | str, after_epoch: Callable[[int], None] | None
    ) -> Training:
        config, progress = self.config, self.progress
        start = time.perf_counter() - progress.seconds
        show = show if self.processes.is_first else False
        bar = progress_bar(show, self.method.name, config.epochs * self.n_batches)
        with bar, stop_on_interrupt() as stop:
            bar.update(self.n_steps)
            while not self._is_finished() and not self._is_interrupted(stop):
                self._epoch(path, bar, stop)
                progress.seconds = time.perf_counter() - start
                if progress.batch:  # interrupted inside the epoch
                    break
                if after_epoch is not None:
                    after_epoch(progress.epoch)
                if path is not None and config.checkpoint_every is None:
                    self._save(path)
            interrupted = stop.is_set()
            if interrupted and path is not None:
                self._save(path)
        if not self.state.take_best():
            self.state.take_candidate()
        return Training(progress.history, self.state.selection.best_epoch, interrupted, progress.seconds)

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint, if there is one."""
        if not path.exists():
            return
        self.state.restore(path, self._identity(), self.n_batches)
        if not self.processes.is_first:  # the sums of all processes are in the first
            self.progress.sums = dict.fromkeys(self.progress.sums, 0.0)

    @property
    def progress(self) -> Progress:
        return self.state.progress

    @property
    def n_steps(self) -> int:
        return self.progress.epoch * self.n_batches + self.progress.batch

    def _is_finished(self) -> bool:
        n_epochs = self.progress.epoch
        return n_epochs >= self.config.epochs or self.state.selection.should_stop(
            n_epochs, self.config.patience
        )

    def _is_interrupted(self, stop: threading.Event) -> bool:
        # Ctrl-C may reach one process before another; all must stop after the same step.
        if self.processes.total(stop.is_set())[0]:
            stop.set()
        return stop.is_set()

    def _epoch(self, path: Path | None, bar: Any, stop: threading.Event) -> None:
        config, progress = self.config, self.progress
        stage = self.stages.at(progress.epoch)
        stage.train()
        seed = (config.seed * 1_000_003 + progress.epoch) % 2**63
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed))
        for index in split_batches(order, config.batch_size)[progress.batch :]:
            self.step(index, stage, self.n_steps / (config.epochs * self.n_batches))
            progress.batch += 1
            bar.update()
            if path is not None and config.checkpoint_every and self.n_steps % config.checkpoint_every == 0:
                self._save(path)
            if self._is_interrupted(stop) and progress.batch < self.n_batches:
                return
        self._finish_epoch(bar)

    def _finish_epoch(self, bar: Any) -> None:
        progress, stage = self.progress, self.stages.at(self.progress.epoch)
        sums = self.processes.total(*progress.sums.values())
        entry = {name: total / len(self.data) for name, total in zip(progress.sums, sums, strict=True)}
        n_epochs = progress.epoch + 1
        due = n_epochs % self.config.validation_every == 0 or n_epochs == self.config.epochs
        if stage.validation is not None and due:
            entry["validation_nll"] = self._validate(stage, stage.validation)
        progress.history.append(entry)
        bar.set_postfix({name: f"{value:.3f}" for name, value in entry.items()}, refresh=False)
        progress.epoch, progress.batch, progress.sums = n_epochs, 0, {}

    def _validate(self, stage: Stage, data: Data) -> float:
        n_rows = self.config.validation_rows
        rows = validation_nll(self.state.candidate, data, stage, self.processes, n_rows)
        weights = weights_of(data).double()
        if self.state.selection.consider(self.progress.epoch, rows, weights):
            self.state.keep_candidate()
        return ((weights * rows).sum() / weights.sum()).item()

    def _save(self, path: Path) -> None:
        sums = self.processes.total(*self.progress.sums.values())
        if self.processes.is_first:
            self.state.save(path, self._identity(), dict(zip(self.progress.sums, sums, strict=True)))

    def _identity(self) -> dict[str, Any]:
        # Everything that must be equal for a checkpoint to be resumed. How often checkpoints are written and
        # how many rows are validated at once may differ.
        settings = {
            k: v for k, v in asdict(self.config).items() if k not in ("checkpoint_every", "validation_rows")
        }
        augmentation = augmentation_of(self.data)
        return {
            "method": f"{self.method.name}({self.method.extra_repr()})",
            "rows": len(self.data),
            "validation rows": None if self.validation is None else len(self.validation),
            "the checksum of the data": getattr(self.data, "checksum", None),
            "the checksum of the validation data": getattr(self.validation, "checksum", None),
            "the augmentation": None if augmentation is None else describe(augmentation),
            **settings,
            **self.identity,
        }
