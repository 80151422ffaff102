"""Memory of a process that trains: pages that one step frees are kept for the next, and lack of it."""

import ctypes

import torch

# Of glibc's mallopt. By default a tensor of a megabyte gets new pages from the system at every step, each of
# which is cleared and mapped anew: a tenth to a quarter of the time of narrow networks with many draws.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_SETTINGS = {_MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**30, _TOP_PAD: 2**26}


def keep_pages() -> bool:
    """Let this process keep up to 1 GiB of freed memory; whether the C library knows how to (glibc does).

    For processes of one's own, such as the commands of ebreg: the setting is of the process as a whole, so
    the library never makes it for its users.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, or another system
        return False
    taken = [mallopt(name, value) for name, value in _SETTINGS.items()]
    return all(taken)


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is too little memory; of the CPU's torch has no class of its own."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
