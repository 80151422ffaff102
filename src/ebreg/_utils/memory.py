"""Memory: keep freed pages between training steps, and recognise out-of-memory errors."""

import ctypes

import torch

# Settings of glibc's mallopt. By default a tensor of a megabyte gets new pages from the system at every step,
# which must be cleared and mapped: a tenth to a quarter of the time of narrow networks with many draws.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_SETTINGS = {_MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**30, _TOP_PAD: 2**26}


def keep_pages() -> bool:
    """Let this process keep up to 1 GiB of freed memory; False if the C library is not glibc.

    The setting applies to the whole process. So only the commands of ebreg make it; the library never makes
    it in the process of a user.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, or another system
        return False
    results = [mallopt(name, value) for name, value in _SETTINGS.items()]
    return all(results)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory; on the CPU torch has no error class for it."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
