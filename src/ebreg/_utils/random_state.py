"""The global random state of torch, seeded inside a context and restored afterwards."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# The state is global, so two fits in two threads must not seed it at the same time.
_LOCK = threading.RLock()


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Context in which random numbers of torch (initial weights, dropout) come from a seed."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with _LOCK, torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed % 2**63)
        yield
