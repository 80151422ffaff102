"""Training of the rivals that are networks: Adam, averaged weights, early stopping."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

LogProb = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""From a network, inputs (B, d) and targets (B,) to the log density (B,)."""


Make = Callable[[], nn.Module]
"""Makes a new network, the same every time."""


@dataclass(frozen=True)
class Stopped:
    """A training that ended early: the network at its best on the validation rows.

    Attributes:
        network: With averaged weights.
        nll: Of the validation rows, in standard units.
        n_steps: Steps until then.
        learning_rate: That of the training.
    """

    network: nn.Module
    nll: float
    n_steps: int
    learning_rate: float


@dataclass(frozen=True)
class Training:
    """Settings of a training.

    Attributes:
        learning_rates: Of Adam; the validation rows choose.
        weight_decay: Decoupled.
        averaging: Decay of the moving average of the weights at each step; the average is what is used.
        max_steps: Number of steps at most.
        patience: Steps without a better NLL of the validation rows before training ends.
    """

    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01)
    weight_decay: float = 1e-4
    averaging: float = 0.99
    max_steps: int = 10_000
    patience: int = 1_000

    def chosen(
        self, make: Make, log_prob: LogProb, rows: "Tensors", validation: "Tensors", seed: int
    ) -> Stopped:
        """Train with every learning rate; the one that is best on the validation rows."""
        tried = [self.stopped(make, log_prob, rows, validation, rate, seed) for rate in self.learning_rates]
        return min(tried, key=lambda stopped: stopped.nll)

    def stopped(
        self,
        make: Make,
        log_prob: LogProb,
        rows: "Tensors",
        validation: "Tensors",
        learning_rate: float,
        seed: int,
    ) -> Stopped:
        """Train until the validation rows get no better."""
        network = make()
        best = Stopped(network, math.inf, 0, learning_rate)
        every = max(1, len(rows.y) // batch_size(len(rows.y)))  # about an epoch
        for step, averaged in enumerate(self._steps(network, log_prob, rows, learning_rate, seed), start=1):
            if step % every == 0:
                with torch.no_grad():
                    nll = -log_prob(averaged, validation.x, validation.y).mean().item()
                if nll < best.nll:
                    best = Stopped(copy.deepcopy(averaged), nll, step, learning_rate)
            if step - best.n_steps >= self.patience or step == self.max_steps:
                break
        return best

    def fixed(
        self, make: Make, log_prob: LogProb, rows: "Tensors", n_steps: int, learning_rate: float, seed: int
    ) -> nn.Module:
        """The network after so many steps."""
        steps = self._steps(make(), log_prob, rows, learning_rate, seed)
        return next(islice(steps, n_steps - 1, None))

    def _steps(
        self, network: nn.Module, log_prob: LogProb, rows: "Tensors", learning_rate: float, seed: int
    ) -> Iterator[nn.Module]:
        # Endlessly, a step at a time; yields the network with averaged weights.
        averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(self.averaging))
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=learning_rate, weight_decay=self.weight_decay, foreach=True
        )
        generator = torch.Generator().manual_seed(seed)
        while True:
            for batch in torch.randperm(len(rows.y), generator=generator).split(batch_size(len(rows.y))):
                loss = -log_prob(network, rows.x[batch], rows.y[batch]).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), 10.0)
                optimizer.step()
                averaged.update_parameters(network)
                yield averaged.module


def batch_size(n_rows: int) -> int:
    """A power of 2 between 32 and 512 that makes about 32 batches."""
    return 2 ** min(9, max(5, round(math.log2(n_rows / 32))))


@dataclass(frozen=True)
class Tensors:
    """Inputs (n, d) and targets (n,) in standard units, float32."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Units:
    """Means and standard deviations of the training rows: of the inputs, (d,), and of the target."""

    x_shift: np.ndarray
    x_scale: np.ndarray
    y_shift: float
    y_scale: float

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray) -> "Units":
        """Of training rows; a constant column is left as it is."""
        scale = X.std(axis=0)
        return cls(X.mean(axis=0), np.where(scale > 0, scale, 1.0), float(y.mean()), float(y.std()))

    def x(self, X: np.ndarray) -> Tensor:
        """Inputs in standard units."""
        return torch.from_numpy((X - self.x_shift) / self.x_scale).float()

    def y(self, y: np.ndarray) -> Tensor:
        """Targets in standard units."""
        return torch.from_numpy((y - self.y_shift) / self.y_scale).float()

    def rows(self, X: np.ndarray, y: np.ndarray) -> Tensors:
        """Both."""
        return Tensors(self.x(X), self.y(y))
