"""Freed memory is kept: later steps need hardly any new pages of the system."""

import platform
import subprocess
import sys

import pytest

resource = pytest.importorskip("resource")

# In a new process: the setting applies to the process as a whole.
STEPS = """
import ctypes, resource, torch
from ebreg._utils.memory import keep_pages
torch.set_num_threads(1)

def step():
    return sum(torch.ones(2**19).mul(2)[0] for _ in range(4))

def faults():
    for _ in range(5):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

ctypes.CDLL(None).mallopt(-3, 2**17)  # the setting of a process that frees its largest tensors first
without = faults()
assert keep_pages()
print(without, faults())
"""


# Not by a call of keep_pages here, which would set it for all tests.
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
@pytest.mark.slow  # a process imports torch
def test_steps_reuse_their_pages():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    without, with_pages = map(int, done.stdout.split())
    pages_of_a_tensor = 4 * 2**19 / resource.getpagesize()
    assert with_pages < pages_of_a_tensor < without
