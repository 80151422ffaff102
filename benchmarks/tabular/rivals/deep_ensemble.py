"""A deep ensemble: five networks that give the mean and the variance of a normal distribution."""

import math
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.tabular.predicted import Predict
from benchmarks.tabular.rivals.training import LogProb, Make, Tensors, Training, Units
from benchmarks.tabular.rivals.validation import hold_out


@dataclass(frozen=True)
class DeepEnsemble:
    """The predictive distribution is the mixture of the members, with equal weights.

    Every member holds out its own tenth of the training rows for early stopping, so that together they have
    seen all of them. The first chooses the learning rate.
    """

    n_members: int = 5
    width: int = 64
    n_hidden_layers: int = 2
    validation_share: float = 0.1
    training: Training = field(default_factory=Training)
    name = "deep ensemble"
    packages = ("torch",)

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        """Train the members one after the other."""
        units = Units.of(X, y)
        first, *others = np.random.default_rng(seed).integers(2**31, size=self.n_members).tolist()
        chosen = self.training.chosen(*self._task(X, y, units, first), first)
        members = [
            chosen,
            *(
                self.training.stopped(*self._task(X, y, units, each), chosen.learning_rate, each)
                for each in others
            ),
        ]
        networks = [member.network.eval() for member in members]

        @torch.no_grad()
        def predict(X: np.ndarray) -> MixturePredicted:
            outputs = torch.stack([network(units.x(X)) for network in networks], dim=1).double()  # (n, E, 2)
            means, scales = outputs[..., 0], scale_of(outputs[..., 1])
            return MixturePredicted(units.y_shift + units.y_scale * means, units.y_scale * scales)

        return predict

    def _task(
        self, X: np.ndarray, y: np.ndarray, units: Units, seed: int
    ) -> tuple[Make, LogProb, Tensors, Tensors]:
        # What a member learns: its network, its training rows and its validation rows.
        X_fit, y_fit, X_validation, y_validation = hold_out(X, y, self.validation_share, seed)
        rows, validation = units.rows(X_fit, y_fit), units.rows(X_validation, y_validation)
        return partial(self._network, X.shape[1], seed), normal_log_prob, rows, validation

    def _network(self, n_inputs: int, seed: int) -> nn.Module:
        widths = [n_inputs, *[self.width] * self.n_hidden_layers]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            hidden = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
            return nn.Sequential(*(layer for pair in hidden for layer in pair), nn.Linear(widths[-1], 2))


def scale_of(output: Tensor) -> Tensor:
    """The standard deviation from a network's output, in standard units."""
    return nn.functional.softplus(output) + 1e-3


def normal_log_prob(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Log density of targets (B,) in standard units."""
    mean, output = network(x).unbind(dim=1)
    scale = scale_of(output)
    return -0.5 * ((y - mean) / scale).square() - scale.log() - 0.5 * math.log(2 * math.pi)


class MixturePredicted:
    """Equal mixtures of normal distributions; means and scales have shape (n, E)."""

    def __init__(self, means: Tensor, scales: Tensor):
        from ebreg.distributions import GaussianMixture

        self._mixture = GaussianMixture(torch.zeros_like(means), means[..., None], scales[..., None])

    @property
    def mean(self) -> np.ndarray:
        """Shape (n,)."""
        return self._mixture.mean[:, 0].numpy()

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """Log density, shape (n,)."""
        return self._mixture.log_prob(torch.from_numpy(y)[:, None]).numpy()

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """Shape (Q, n)."""
        return self._mixture.icdf(torch.from_numpy(levels))[..., 0].numpy()
