"""The training loop: plain PyTorch, and no knowledge of f and q.

A method hands it named losses per example; the loop brings batches, steps, validation, early stopping,
checkpoints and processes. With a checkpoint, a run that is killed at any moment and resumed ends with the
same weights, to the last bit, as one that was not.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebreg._utils.random_state import seeded
from ebreg.errors import TrainingError
from ebreg.methods import Method
from ebreg.saving import checkpoints
from ebreg.training.batch_norm import has_batch_norm, shared_statistics
from ebreg.training.batches import Data, as_data, augmentation_of, describe, weights_of
from ebreg.training.config import PRECISIONS, TrainingConfig
from ebreg.training.interrupts import stop_on_interrupt
from ebreg.training.processes import Processes, connect
from ebreg.training.progress_bar import progress_bar
from ebreg.training.schedules import SCHEDULES
from ebreg.training.stages import Stages
from ebreg.training.state import Progress, State


@dataclass(frozen=True)
class Training:
    """What :func:`fit` returns.

    Attributes:
        history: One entry per epoch.
        best_epoch: The epoch whose weights were kept, counted from 0; None without validation.
        interrupted: Whether Ctrl-C ended it early.
        seconds: Time spent, over all sessions of a resumed run.
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
    Afterwards the method and its model are in evaluation mode.
    Under ``torchrun`` every process calls this with the same arguments.

    Args:
        method: What to train; its parameters say on which device.
        data: A tuple (x, y) of tensors x (n, ...) and y (n, D), or (x, y, weights) with weights (n,), or a
            map-style data set.
        validation: The same, or None.
        config: Settings.
        checkpoint: A file to write checkpoints to. One that exists is an error unless ``resume`` is set.
        resume: Continue from the checkpoint if it is there, start anew if it is not.
        progress: Whether to show a progress bar; "auto": in a terminal or a notebook, once it has taken two
            seconds.
        after_epoch: Called with the number of epochs finished, after each.
        identity: What else must be equal for a checkpoint to be of this training, as JSON holds it, beside
            the data, the method and the settings.
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
            f"checkpoint {path} exists: pass resume=True to go on from it, or give another path to start anew"
        )
    device = method.model.like.device
    # Dropout and the like use the global random state.
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
            run.stages.leave()
            method.eval()
            del run  # its hold on the processes ends before they part


class _Run:
    """One training under way."""

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
        self.identity = identity
        self.config, self.processes = config, processes
        self.device = method.model.like.device
        self.weights = weights_of(data)
        self.augmentation = augmentation_of(data)
        self.state = State(method, config)
        self.stages = Stages(method, data, validation, config, processes)
        batches = _batches(torch.arange(len(data)), config.batch_size)
        self.n_batches = len(batches)
        _check_batch_norm(method, len(batches[-1]), processes.count)

    def train(
        self, path: Path | None, progress: bool | str, after_epoch: Callable[[int], None] | None
    ) -> Training:
        config, state = self.config, self.progress
        start = time.perf_counter() - state.seconds
        progress = progress if self.processes.is_first else False
        bar = progress_bar(progress, self.method.name, config.epochs * self.n_batches)
        with bar, stop_on_interrupt() as stop:
            bar.update(state.epoch * self.n_batches + state.batch)
            while state.epoch < config.epochs and not self._out_of_patience() and not self._agreed(stop):
                self._epoch(path, bar, stop)
                state.seconds = time.perf_counter() - start
                if state.batch:  # interrupted in the middle
                    break
                if after_epoch is not None:
                    after_epoch(state.epoch)
                if path is not None and config.checkpoint_every is None:
                    self._save(path)
            interrupted = stop.is_set()
            if interrupted and path is not None:
                self._save(path)
        if not self.state.take_best():
            self.state.take_candidate()
        return Training(state.history, state.best_epoch, interrupted, state.seconds)

    def _epoch(self, path: Path | None, bar: Any, stop: threading.Event) -> None:
        config, state = self.config, self.progress
        self.stages.at(state.epoch).train()
        seed = (config.seed * 1_000_003 + state.epoch) % 2**63
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed))
        for index in _batches(order, config.batch_size)[state.batch :]:
            self._step(index)
            state.batch += 1
            bar.update()
            if path is not None and config.checkpoint_every and self.n_steps % config.checkpoint_every == 0:
                self._save(path)
            if self._agreed(stop) and state.batch < self.n_batches:
                return
        self._finish_epoch(bar)

    @property
    def progress(self) -> Progress:
        return self.state.progress

    @property
    def n_steps(self) -> int:
        return self.progress.epoch * self.n_batches + self.progress.batch

    def _step(self, index: Tensor) -> None:
        config = self.config
        lr = config.learning_rate * SCHEDULES[config.schedule](
            self.n_steps / (config.epochs * self.n_batches)
        )
        for group in self.state.optimizer.param_groups:
            group["lr"] = lr
        # Every process makes the points of the whole batch and takes those of its own rows, so that the draws
        # do not depend on the number of processes. A process without rows repeats one at weight 0.
        stage = self.stages.at(self.progress.epoch)
        points = stage.learner.points(len(index), self.state.noise)
        changes = self._points_of_augmentation(len(index))
        own = self.processes.own(len(index))
        weight = self.processes.count / len(index) if len(own) else 0.0
        own = own if len(own) else torch.zeros(1, dtype=torch.long)
        x, y = (values.to(self.device) for values in stage.data.__getitems__(index[own].tolist()))
        if self.augmentation is not None:
            x, y = self.augmentation(x, y, changes[own].to(self.device))
        dtype = PRECISIONS[config.precision]
        autocast = torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)
        with autocast, stage.inputs(self.method):
            losses = stage.parallel(x, y, points[:, own].to(self.device))
        importance = self.weights[index[own]].to(self.device)
        losses = {name: importance.to(values.dtype) * values for name, values in losses.items()}
        loss = weight * torch.stack([values.sum() for values in losses.values()]).sum()
        self.state.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.state.parameters, config.clip_norm or math.inf)
        self._check_finite(norm, loss, x, y)
        self.state.optimizer.step()
        if self.state.average is not None:
            self.state.average.update()
        for name, values in losses.items():
            share = weight * values.detach().sum().item() * len(index) / self.processes.count
            self.progress.sums[name] = self.progress.sums.get(name, 0.0) + share

    def _points_of_augmentation(self, B: int) -> Tensor:
        n_points = 0 if self.augmentation is None else self.augmentation.n_points
        return torch.rand(B, n_points, generator=self.state.noise)

    def _finish_epoch(self, bar: Any) -> None:
        state = self.progress
        validation = self.stages.at(state.epoch).validation
        sums = self.processes.total(*state.sums.values())
        entry = {name: total / len(self.data) for name, total in zip(state.sums, sums, strict=True)}
        due = (state.epoch + 1) % self.config.validation_every == 0 or state.epoch + 1 == self.config.epochs
        if validation is not None and due:
            entry["validation_nll"] = self._validate(validation)
        state.history.append(entry)
        bar.set_postfix({name: f"{value:.3f}" for name, value in entry.items()}, refresh=False)
        state.epoch, state.batch, state.sums = state.epoch + 1, 0, {}

    @torch.no_grad()
    def _validate(self, validation: Data) -> float:
        candidate, stage = self.state.candidate.eval(), self.stages.at(self.progress.epoch)
        rows = torch.zeros(len(validation), dtype=torch.float64)
        for index in self.processes.own(len(rows)).split(self.config.validation_rows):
            if len(index):
                x, y = (values.to(self.device) for values in validation.__getitems__(index.tolist()))
                with stage.inputs(candidate):
                    rows[index] = candidate.validation_nll(x, y).cpu().double()
        rows = torch.tensor(self.processes.total(*rows.tolist()), dtype=torch.float64)
        weights = weights_of(validation).double()
        selection = self.state.selection
        if selection.consider(self.progress.epoch, rows, weights):
            self.state.keep_candidate()
        self.progress.best_epoch, self.progress.lowest_epoch = selection.kept, selection.lowest
        return ((weights * rows).sum() / weights.sum()).item()

    def _out_of_patience(self) -> bool:
        lowest, patience = self.progress.lowest_epoch, self.config.patience
        return patience is not None and lowest is not None and self.progress.epoch - lowest > patience

    def _agreed(self, stop: threading.Event) -> bool:
        # Ctrl-C may reach one process before another; all must leave after the same step.
        if self.processes.total(stop.is_set())[0]:
            stop.set()
        return stop.is_set()

    def _check_finite(self, gradient_norm: Tensor, loss: Tensor, x: Tensor, y: Tensor) -> None:
        # Averaged over the processes already, so all of them see the same.
        if torch.isfinite(gradient_norm):
            return
        where = f"at epoch {self.progress.epoch}, batch {self.progress.batch}"
        for name, values in (("x", x), ("y", y)):
            if not torch.isfinite(values).all():
                raise TrainingError(f"{name} is not finite {where}: remove or impute such examples")
        kept = "the best epoch" if self.state.take_best() else "the step before"
        raise TrainingError(
            f"the loss is {loss.item()} and its gradient {gradient_norm.item()} {where}; the weights of "
            f"{kept} were kept. Lower learning_rate, or bring inputs and targets to smaller units."
        )

    def _save(self, path: Path) -> None:
        sums = self.processes.total(*self.progress.sums.values())
        if self.processes.is_first:
            self.state.save(path, self._identity(), dict(zip(self.progress.sums, sums, strict=True)))

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint, if there is one."""
        if not path.exists():
            return
        self.state.restore(path, self._identity(), self.n_batches)
        if not self.processes.is_first:  # the first holds the sums of all
            self.progress.sums = dict.fromkeys(self.progress.sums, 0.0)

    def _identity(self) -> dict[str, Any]:
        # What must be equal for a resumed run to be the same run. Checkpoints may come more or less often.
        settings = {
            k: v for k, v in asdict(self.config).items() if k not in ("checkpoint_every", "validation_rows")
        }
        n_validation = None if self.validation is None else len(self.validation)
        return {
            "method": f"{self.method.name}({self.method.extra_repr()})",
            "rows": len(self.data),
            "validation rows": n_validation,
            "the checksum of the data": getattr(self.data, "checksum", None),
            "the augmentation": None if self.augmentation is None else describe(self.augmentation),
            **settings,
            **self.identity,
        }


def _batches(order: Tensor, size: int) -> list[Tensor]:
    batches = list(order.split(size))
    # One row alone has no batch statistics: it joins the batch before.
    if len(batches) > 1 and len(batches[-1]) == 1 < size:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def _check_batch_norm(method: Method, smallest_batch: int, n_processes: int) -> None:
    if smallest_batch >= max(2, n_processes) or not has_batch_norm(method):
        return
    raise ValueError(
        "batch-norm needs two rows or more in every batch, and one in every process; the smallest has "
        f"{smallest_batch} for {n_processes} process{'es' * (n_processes > 1)}: give more rows or a larger "
        "batch_size, or take a network without batch-norm"
    )
