"""Torch's global random state, borrowed for a while: one thread at a time, and given back as it was."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# The state belongs to the process: two fits in threads would else seed it under each other's hands.
_LOCK = threading.RLock()


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Random numbers of torch, such as first weights and dropout, come from the seed inside."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with _LOCK, torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed % 2**63)
        yield
