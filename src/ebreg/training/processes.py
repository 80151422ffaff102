"""Several processes under ``torchrun``: who this process is, and which rows are its own."""

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
    """This process among all; one of one where there is no ``torchrun``."""

    rank: int = 0
    count: int = 1
    device: torch.device | str = "cpu"

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def wrap(self, module: nn.Module, all_learn: bool = True) -> nn.Module:
        """A module whose gradients are averaged over the processes.

        Args:
            module: The module.
            all_learn: Whether every parameter that may learn gets a gradient in each step.
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

    def total(self, *values: float) -> list[float]:
        """Sums over the processes."""
        if self.count == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.tolist()


# Processes train the same things in the same order, so their groups have the same numbers.
_GROUPS = count()


@lru_cache(maxsize=1)  # one for all groups of this process: the first process may be its host
def _meeting_place() -> tuple[dist.Store, int, int]:
    return next(iter(dist.rendezvous("env://")))


def is_first() -> bool:
    """Whether this is the only process, or the first of those that ``torchrun`` started."""
    return _number() == 1 or int(os.environ["RANK"]) == 0


def _number() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def connect(device: torch.device) -> Iterator[Processes]:
    """Join the processes that ``torchrun`` started; leaves a process group of the user's own as it is."""
    if _number() == 1:
        yield Processes()
        return
    started_here = not dist.is_initialized()
    on_cuda = device.type == "cuda"
    if started_here:
        store, rank, n_processes = _meeting_place()
        # Under a name of its own: the addresses that an earlier group has left in the store are dead.
        dist.init_process_group(
            "nccl" if on_cuda else "gloo",
            store=dist.PrefixStore(f"ebreg {next(_GROUPS)}", store),
            rank=rank,
            world_size=n_processes,
            # Sums over processes need a device for each of them, which is not the first by itself.
            device_id=device if on_cuda else None,
        )
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), device)
        dist.barrier()  # nobody leaves while another still waits for an answer
    finally:
        if started_here:
            dist.destroy_process_group()
