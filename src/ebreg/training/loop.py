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

from torch import Tensor

from ebreg._utils.random_state import seeded
from ebreg.methods import Method
from ebreg.saving import checkpoints
from ebreg.training.batch_norm import check_batch_norm, shared_statistics
from ebreg.training.batches import Data, as_data, augmentation_of, describe, split_batches, weights_of
from ebreg.training.config import TrainingConfig
from ebreg.training.deadline import Deadline
from ebreg.training.interrupts import stop_on_interrupt
from ebreg.training.member_rows import HeldOut, MemberRows
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
        best_epoch: The epoch whose weights were kept, counted from 0; None without validation; a list with
            the epoch of each member where they have rows of their own.
        interrupted: Whether Ctrl-C stopped it early.
        out_of_time: Whether its deadline did, in the last epoch.
        seconds: Time spent, including that before a checkpoint was resumed.
        row_nlls: NLL of each validation row with the weights that were kept, shape (n,), of each member with
            rows of its own, or of all together; empty without validation.
    """

    history: list[dict[str, float]]
    best_epoch: int | list[int] | None
    interrupted: bool
    seconds: float
    row_nlls: tuple[Tensor, ...] = ()
    out_of_time: bool = False


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
    deadline: Deadline | None = None,
) -> Training:
    """Train a method on data, in place.

    With validation data the weights of the best epoch are kept, also when training is interrupted by Ctrl-C.
    Afterwards the method and its model are in evaluation mode. Under ``torchrun`` every process calls this
    with the same arguments.

    Args:
        method: The method to train, on the device of its parameters.
        data: A tuple (x, y) of tensors x (n, ...) and y (n, D), or (x, y, weights) with weights (n,), or a
            map-style data set.
        validation: The same, or None; for a model with members also a :class:`HeldOut`, the rows of ``data``
            that each member validates itself on.
        config: Settings.
        checkpoint: Path of the checkpoint file. A file that exists is an error unless ``resume`` is set.
        resume: Continue from the checkpoint if it exists, else start from the beginning.
        progress: Whether to show a progress bar; "auto": in a terminal or a notebook, once the training has
            taken two seconds.
        after_epoch: Called after each epoch with the number of epochs finished.
        identity: JSON values that must be equal for a checkpoint to be resumed, in addition to the data, the
            method and the settings.
        deadline: When the training ends at the latest, after the step under way; the last epoch may then be a
            part of one. The learning rate follows the time where that is ahead of the epochs.
    """
    if not isinstance(method, Method):
        raise TypeError(f"fit takes a method, such as methods.JointNCE(model); got {type(method).__name__}")
    if not isinstance(config, TrainingConfig | None):
        raise TypeError(f"config must be a TrainingConfig, got {type(config).__name__}")
    data = as_data(data)
    if validation is not None and not isinstance(validation, HeldOut):
        validation = as_data(validation, "validation")
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
        run = _Run(method, data, validation, config, processes, identity or {}, deadline)
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
        validation: Data | HeldOut | None,
        config: TrainingConfig,
        processes: Processes,
        identity: Mapping[str, Any],
        deadline: Deadline | None,
    ):
        self.method, self.data, self.deadline = method, data, deadline
        self.out_of_time = False
        self.validation = None if isinstance(validation, HeldOut) else validation
        self.config, self.processes, self.identity = config, processes, identity
        self.state = State(method, config)
        self.rows = self.all_rows = MemberRows.of(method.model, data, validation)
        self.stages = Stages(method, data, self.validation, config, processes)
        self.step = Step(self.state, data, config, processes)
        batches = split_batches(self.rows.train, config.batch_size)
        self.n_batches = len(batches)
        check_batch_norm(method, batches[-1].shape[1], processes.count)

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
        rows = (selection.best_rows for selection in self.state.selections)
        row_nlls = tuple(each for each in rows if each is not None)
        return Training(
            progress.history, self._best_epoch, interrupted, progress.seconds, row_nlls, self.out_of_time
        )

    @property
    def _best_epoch(self) -> int | list[int] | None:
        epochs = [selection.best_epoch for selection in self.state.selections]
        if len(epochs) == 1:
            return epochs[0]
        known = [epoch for epoch in epochs if epoch is not None]
        return known or None

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint, if there is one."""
        if not path.exists():
            return
        self.state.restore(path, self._identity(), self.n_batches)
        self._take_blocks()
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
        return (
            self.out_of_time
            or n_epochs >= self.config.epochs
            or all(self.state.is_finished(block, n_epochs) for block in self.state.blocks.tolist())
        )

    def _take_blocks(self) -> None:
        # After members were left out.
        if len(self.state.blocks) < len(self.rows.train):
            self.rows = self.all_rows.take(self.state.blocks)
            config, processes = self.config, self.processes
            self.stages = Stages(self.state.method, self.data, self.validation, config, processes)

    def _is_interrupted(self, stop: threading.Event) -> bool:
        # Ctrl-C may reach one process before another; all must stop after the same step.
        if self.processes.total(stop.is_set())[0]:
            stop.set()
        return stop.is_set()

    def _is_out_of_time(self) -> bool:
        # In all processes after the same step.
        if self.deadline is not None and self.processes.total(self.deadline.has_passed)[0]:
            self.out_of_time = True
        return self.out_of_time

    @property
    def _share_done(self) -> float:
        # Of the training, for the learning rate.
        steps = self.n_steps / (self.config.epochs * self.n_batches)
        return steps if self.deadline is None else max(steps, self.deadline.share)

    def _epoch(self, path: Path | None, bar: Any, stop: threading.Event) -> None:
        config, progress = self.config, self.progress
        stage = self.stages.at(progress.epoch)
        stage.train()
        seed = (config.seed * 1_000_003 + progress.epoch) % 2**63
        order = self.rows.order(seed, self.state.blocks)
        for index in split_batches(order, config.batch_size)[progress.batch :]:
            self.step(index, stage, self._share_done)
            progress.batch += 1
            bar.update()
            if path is not None and config.checkpoint_every and self.n_steps % config.checkpoint_every == 0:
                self._save(path)
            if self._is_interrupted(stop) and progress.batch < self.n_batches:
                return
            if self._is_out_of_time():
                break
        self._finish_epoch(bar)

    def _finish_epoch(self, bar: Any) -> None:
        progress, stage = self.progress, self.stages.at(self.progress.epoch)
        sums = self.processes.total(*progress.sums.values())
        n_rows = self.rows.train.shape[1]
        n_rows = n_rows if progress.batch == self.n_batches else progress.batch * self.config.batch_size
        entry = {name: total / n_rows for name, total in zip(progress.sums, sums, strict=True)}
        n_epochs = progress.epoch + 1
        is_last = n_epochs == self.config.epochs or self.out_of_time
        due = n_epochs % self.config.validation_every == 0 or is_last
        if self.rows.validation is not None and due:
            entry |= self._validate(stage, self.rows.validation)
        progress.history.append(entry)
        shown = {name: value for name, value in entry.items() if not name.startswith("validation_nll_")}
        bar.set_postfix({name: f"{value:.3f}" for name, value in shown.items()}, refresh=False)
        progress.epoch, progress.batch, progress.sums = n_epochs, 0, {}
        if self.state.drop_finished(n_epochs):
            self._take_blocks()

    def _validate(self, stage: Stage, index: Tensor) -> dict[str, float]:
        # NLL of the members in training, and of all: of those that are finished, with the weights kept.
        data = stage.data if self.rows.held_out else stage.validation
        assert data is not None
        state = self.state
        rows = validation_nll(
            state.candidate, data, index, stage, self.processes, self.config.validation_rows
        )
        weights = weights_of(data).double()[index]
        state.consider(self.progress.epoch, rows, weights)
        nlls = ((weights * rows).sum(dim=1) / weights.sum(dim=1)).tolist()
        entry = {state.nll_name(block): nll for block, nll in zip(state.blocks.tolist(), nlls, strict=True)}
        if len(state.selections) > 1:
            finished = set(range(len(state.selections))) - set(state.blocks.tolist())
            kept = [self.progress.history[self._kept(block)][state.nll_name(block)] for block in finished]
            entry["validation_nll"] = sum([*nlls, *kept]) / len(state.selections)
        return entry

    def _kept(self, block: int) -> int:
        epoch = self.state.selections[block].best_epoch
        assert epoch is not None
        return epoch

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
        augmentation, validation = augmentation_of(self.data), self.all_rows.validation
        return {
            "method": f"{self.method.name}({self.method.extra_repr()})",
            "rows": len(self.data),
            "validation rows": None if validation is None else validation.shape[1],
            "members": self.method.model.n_members,
            "the checksum of the data": getattr(self.data, "checksum", None),
            "the checksum of the validation data": getattr(self.validation, "checksum", None),
            "the augmentation": None if augmentation is None else describe(augmentation),
            **settings,
            **self.identity,
        }
