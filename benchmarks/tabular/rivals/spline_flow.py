"""A neural spline flow of zuko, conditional on the inputs."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.tabular.predicted import Predict
from benchmarks.tabular.rivals.training import Training, Units
from benchmarks.tabular.rivals.validation import hold_out

_POINTS_AT_A_TIME = 100_000


@dataclass(frozen=True)
class SplineFlow:
    """NSF with standardised inputs and target.

    A tenth of the training rows chooses the learning rate and the number of steps; then the flow is trained
    again on all training rows for as many epochs.
    """

    transforms: int = 3
    bins: int = 8
    width: int = 64
    n_hidden_layers: int = 2
    validation_share: float = 0.1
    training: Training = field(default_factory=Training)
    name = "spline flow"
    packages = ("zuko",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Choose the learning rate and the number of steps, then train on all rows."""
        units = Units.of(X, y)
        X_fit, y_fit, X_validation, y_validation = hold_out(X, y, self.validation_share, seed)
        rows, validation = units.rows(X_fit, y_fit), units.rows(X_validation, y_validation)
        make = partial(self._flow, X.shape[1], seed)
        stopped = self.training.chosen(make, _log_prob, rows, validation, seed)
        n_steps = round(stopped.n_steps * len(y) / len(y_fit))
        flow = self.training.fixed(make, _log_prob, units.rows(X, y), n_steps, stopped.learning_rate, seed)
        return lambda X: FlowPredicted(flow.double().eval(), units, X)

    def _flow(self, n_inputs: int, seed: int) -> nn.Module:
        import zuko

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return zuko.flows.NSF(
                features=1,
                context=n_inputs,
                transforms=self.transforms,
                bins=self.bins,
                hidden_features=[self.width] * self.n_hidden_layers,
            )


def _log_prob(flow: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return flow(x).log_prob(y[:, None])


class FlowPredicted:
    """The distributions of a flow for the inputs X (n, d)."""

    def __init__(self, flow: Any, units: Units, X: np.ndarray):
        self._flow, self._units, self._x = flow, units, units.x(X).double()

    @property
    def mean(self) -> np.ndarray:
        """The average of a thousand quantiles, shape (n,)."""
        return self.quantile((np.arange(1000) + 0.5) / 1000).mean(axis=0)

    @torch.no_grad()
    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """Log density, shape (n,)."""
        standard = torch.from_numpy((y - self._units.y_shift) / self._units.y_scale)
        return _log_prob(self._flow, self._x, standard).numpy() - math.log(self._units.y_scale)

    @torch.no_grad()
    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """Shape (Q, n): the flow increases in its single target, so it maps quantiles to quantiles."""
        z = torch.special.ndtri(torch.from_numpy(levels))[:, None, None]
        n_rows = max(1, _POINTS_AT_A_TIME // len(levels))
        parts = [self._flow(x).transform.inv(z.expand(-1, len(x), 1))[..., 0] for x in self._x.split(n_rows)]
        return self._units.y_shift + self._units.y_scale * torch.cat(parts, dim=1).numpy()
