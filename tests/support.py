"""What several test files use."""

import pytest
import torch
from torch import Tensor


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=dtype)


class KilledError(Exception):
    """Stands for SIGKILL: nothing runs between it and the end of the process that could save anything."""


def kill_after(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    """Let the optimiser raise a KilledError in the step after so many."""
    original, calls = torch.optim.AdamW.step, []

    def dying(self, *args, **kwargs):
        calls.append(1)
        if len(calls) > n_steps:
            raise KilledError
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", dying)
