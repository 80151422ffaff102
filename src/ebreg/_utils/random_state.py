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
    on_gpu = device is not None and device.type == "cuda"
    with _LOCK, torch.random.fork_rng(devices=[device] if on_gpu else []):
        # Not torch.manual_seed, which seeds every GPU: only what is restored may be seeded.
        torch.default_generator.manual_seed(seed % 2**63)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed % 2**63)
        yield
