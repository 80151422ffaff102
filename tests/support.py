"""What several test files use."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ebreg.estimators.chunks import Chunks
from ebreg.estimators.prediction import Prediction
from ebreg.predictive import Accuracy, NodeDensity, Unnormalized, WeightedDraws, quadrature
from ebreg.predictive.importance_sampling import _in_units, _sample
from ebreg.predictive.source import Source
from ebreg.training.adamw import AdamW
from ebreg.units import Bounds, Standardizer, Tail


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=dtype)


class KilledError(Exception):
    """Stands for SIGKILL: nothing runs between it and the end of the process that could save anything."""


def kill_after(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    """Let the optimiser raise a KilledError in the step after so many."""
    original, calls = AdamW.step, []

    def dying(self, *args, **kwargs):
        calls.append(1)
        if len(calls) > n_steps:
            raise KilledError
        return original(self, *args, **kwargs)

    monkeypatch.setattr(AdamW, "step", dying)


def target_of(
    energy: Callable[[Tensor], Tensor],
    proposal: Any,
    tail: Tail | None = None,
    shift: Tensor | None = None,
    scale: Tensor | None = None,
) -> Unnormalized:
    """What a predictive distribution is made from: f of all rows, (M, B, D) -> (M, B), and their proposal."""
    B, (D,) = len(proposal), proposal.event_shape
    units = Standardizer.identity(D) if scale is None else Standardizer(shift, scale)

    def f(h: Tensor, y: Tensor) -> Tensor:
        rows = h[:, 0].long()
        everywhere = torch.zeros(len(y), B, D, dtype=y.dtype).index_copy(1, rows, y)
        return energy(everywhere)[:, rows]

    rows = torch.arange(B, dtype=torch.float64)[:, None]
    return Unnormalized(f, rows, proposal, tail, units, Bounds.none(D))


def nodes_of(energy, proposal, tail=None, shift=None, scale=None, n_nodes=512, **settings) -> NodeDensity:
    """By quadrature, with the same number of nodes in every row."""
    accuracy = Accuracy(n_nodes=n_nodes, max_nodes=n_nodes, **settings)
    return quadrature(target_of(energy, proposal, tail, shift, scale), accuracy)


def draws_of(
    energy, proposal, tail=None, shift=None, scale=None, n_draws=2048, fitted=None, **settings
) -> WeightedDraws:
    """By importance sampling, with the same number of draws, from the same source, in every row."""
    accuracy = Accuracy(n_draws=n_draws, **settings)
    target = target_of(energy, proposal, tail, shift, scale)
    return _in_units(_sample(Source(target, fitted), n_draws, accuracy), target, None)


def prediction(model, x, drop_target_axis: bool = False, chunk: int | None = None, **settings) -> Prediction:
    """A numpy prediction with the settings of an Accuracy."""
    return Prediction(Chunks(model, x, Accuracy(**settings), chunk), drop_target_axis)
