"""Step: one optimiser step on a batch."""

import math
from contextlib import nullcontext

import torch
from torch import Tensor

from ebreg.errors import TrainingError
from ebreg.methods import Losses
from ebreg.training.batches import Data, augmentation_of, weights_of
from ebreg.training.config import PRECISIONS, TrainingConfig
from ebreg.training.processes import Processes
from ebreg.training.schedules import SCHEDULES
from ebreg.training.stages import Stage
from ebreg.training.state import State


class Step:
    """One optimiser step: losses of a batch, gradients, clipping, update, weight averaging.

    Args:
        state: The method, its optimiser and its random generator, changed in place.
        data: Training data; its weights and augmentation are used.
        config: Settings.
        processes: The processes that share a batch.
    """

    def __init__(self, state: State, data: Data, config: TrainingConfig, processes: Processes):
        self._state, self._config, self._processes = state, config, processes
        self._device = state.method.model.reference.device
        has_weights = getattr(data, "weights", None) is not None
        self._weights = weights_of(data) if has_weights else None
        self._augmentation = augmentation_of(data)

    def __call__(self, index: Tensor, stage: Stage, t: float) -> None:
        """Train on a batch, and add its losses to those of the epoch.

        Args:
            index: Rows of the batch over all processes for each block of rows, shape (G, B).
            stage: The current stage of the training.
            t: Share of the training done so far, in [0, 1], for the learning-rate schedule.
        """
        model, (G, B) = self._state.method.model, index.shape
        E = model.n_members
        # Every process makes the random numbers of the whole batch and takes those of its own rows, so the
        # draws do not depend on the number of processes. A process without rows repeats one at weight 0.
        points = stage.learner.points(E * B, self._state.noise)
        augmentation_points = self._augmentation_points(G * B)
        if self._processes.count == 1:
            own, rows, scale = None, index.flatten(), 1 / B
        else:
            own = self._processes.own(B)
            scale = self._processes.count / B if len(own) else 0.0
            own = own if len(own) else torch.zeros(1, dtype=torch.long)
            rows = index[:, own].flatten()
            points = points.unflatten(1, (E, B))[:, :, own].flatten(1, 2)
        x, y = (values.to(self._device) for values in stage.data.__getitems__(rows))
        if self._augmentation is not None:
            own_points = augmentation_points.view(G, B, -1)[:, slice(None) if own is None else own]
            x, y = self._augmentation(x, y, own_points.flatten(0, 1).to(self._device))
        weights = None if self._weights is None else self._weights[rows]
        if model.shares_backbone:
            y, weights = y.repeat(E, 1), None if weights is None else weights.repeat(E)
        losses = self._losses(stage, x, y, points.to(self._device), weights)
        totals = torch.stack([values.sum() for values in losses.values()])
        self._update(scale * totals.sum(), t, x, y)
        # Added on the device: reading a number would wait for it.
        shares = totals.detach().double() * (scale * B / (E * self._processes.count))
        sums = self._state.progress.sums
        for name, share in zip(losses, shares, strict=True):
            sums[name] = sums.get(name, 0.0) + share

    def _augmentation_points(self, B: int) -> Tensor:
        n_points = 0 if self._augmentation is None else self._augmentation.n_points
        return torch.rand(B, n_points, generator=self._state.noise)

    def _losses(self, stage: Stage, x: Tensor, y: Tensor, points: Tensor, weights: Tensor | None) -> Losses:
        """The weighted losses of this process's rows, each of shape (b,)."""
        dtype = PRECISIONS[self._config.precision]
        autocast = nullcontext() if dtype is None else torch.autocast(self._device.type, dtype=dtype)
        with autocast, stage.inputs(self._state.method):
            losses: Losses = stage.parallel(x, y, points)
        if weights is None:
            return losses
        weights = weights.to(self._device)
        return {name: weights.to(values.dtype) * values for name, values in losses.items()}

    def _update(self, loss: Tensor, t: float, x: Tensor, y: Tensor) -> None:
        state = self._state
        state.optimizer.zero_grad()
        loss.backward()
        norm = self._clip(self._config.clip_norm or math.inf)
        self._check_finite(norm, loss, x, y)
        state.optimizer.step(self._config.learning_rate * SCHEDULES[self._config.schedule](t))
        if state.average is not None:
            state.average.update()

    def _clip(self, max_norm: float) -> Tensor:
        # The norm of the gradient before it was clipped; with blocks, of each member by itself.
        state = self._state
        if len(state.blocks) == 1:
            return torch.nn.utils.clip_grad_norm_(state.parameters, max_norm)
        gradients = [p.grad for p in state.parameters if p.grad is not None]
        norm = torch.linalg.vector_norm
        norms = norm(torch.stack([norm(gradient.flatten(1), dim=1) for gradient in gradients]), dim=0)
        factors = (max_norm / norms.clamp_min(1e-6)).clamp_max(1.0)
        if (factors < 1).any():
            for gradient in gradients:
                gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))
        return norms.max()

    def _check_finite(self, gradient_norm: Tensor, loss: Tensor, x: Tensor, y: Tensor) -> None:
        # The gradient is already averaged over the processes, so all of them raise or none does.
        if torch.isfinite(gradient_norm):
            return
        progress = self._state.progress
        where = f"at epoch {progress.epoch}, batch {progress.batch}"
        for name, values in (("x", x), ("y", y)):
            if not torch.isfinite(values).all():
                raise TrainingError(f"{name} is not finite {where}: remove or impute such examples")
        kept = "the best epoch" if self._state.take_best() else "the step before"
        raise TrainingError(
            f"training diverged {where}: the loss is {loss.item()} and its gradient {gradient_norm.item()}. "
            f"The weights of {kept} were kept. Lower learning_rate, or rescale inputs and targets."
        )
