"""Several processes under ``torchrun``: the rank of this process, and its rows of a batch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """Rank of this process and the number of processes; 0 of 1 without ``torchrun``."""

    rank: int = 0
    count: int = 1
    device: torch.device | str = "cpu"

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def wrap(self, module: nn.Module, all_learn: bool = True) -> nn.Module:
        """The module with gradients averaged over the processes.

        Args:
            module: The module.
            all_learn: Whether every parameter with ``requires_grad`` gets a gradient in each step.
        """
        if self.count == 1:
            return module
        device = next(module.parameters()).device
        return DistributedDataParallel(
            module,
            device_ids=[device] if device.type == "cuda" else None,
            find_unused_parameters=not all_learn,
        )

    def own(self, n: int) -> Tensor:
        """Positions of this process's rows in a batch of n."""
        return torch.arange(self.rank, n, self.count)

    def total(self, *values: float | Tensor) -> list[float]:
        """Sums over the processes."""
        if self.count == 1:
            return [float(value) for value in values]
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.tolist()


# All processes call fit in the same order, so their process groups have the same numbers.
_GROUPS = count()


@lru_cache(maxsize=1)  # one store for all process groups: the first process may host it
def _rendezvous() -> tuple[dist.Store, int, int]:
    return next(iter(dist.rendezvous("env://")))


def is_first() -> bool:
    """Whether this is the only process, or the first of those that ``torchrun`` started."""
    return _world_size() == 1 or int(os.environ["RANK"]) == 0


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def connect(device: torch.device) -> Iterator[Processes]:
    """Context with a process group under ``torchrun``; one that the user has started is used and kept."""
    if _world_size() == 1:
        yield Processes()
        return
    started_here = not dist.is_initialized()
    on_cuda = device.type == "cuda"
    if started_here:
        store, rank, n_processes = _rendezvous()
        # With a prefix: addresses that an earlier group has left in the store are no longer valid.
        dist.init_process_group(
            "nccl" if on_cuda else "gloo",
            store=dist.PrefixStore(f"ebreg {next(_GROUPS)}", store),
            rank=rank,
            world_size=n_processes,
            # Each process needs its own device; by default all would use the first one.
            device_id=device if on_cuda else None,
        )
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), device)
        dist.barrier()  # no process may leave while another one still waits for it
    finally:
        if started_here:
            dist.destroy_process_group()
