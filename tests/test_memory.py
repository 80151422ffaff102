"""Freed memory is kept: steps after the first ask the system for next to nothing."""

import platform
import subprocess
import sys

import pytest

resource = pytest.importorskip("resource")

# In a process of its own: the setting is of the process as a whole.
STEPS = """
import resource, sys, torch
from ebreg._utils.memory import keep_pages
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    assert keep_pages()
else:  # what a process falls into that frees its largest tensors first
    import ctypes
    ctypes.CDLL(None).mallopt(-3, 2**17)
def step():
    return sum(torch.ones(2**19).mul(2)[0] for _ in range(4))
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


# Not by asking keep_pages itself, which would set it for all tests.
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_steps_reuse_their_pages():
    def faults(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", STEPS, how], capture_output=True, text=True, check=True)
        return int(done.stdout)

    pages_of_a_tensor = 4 * 2**19 / resource.getpagesize()
    assert faults("kept") < pages_of_a_tensor < faults("asked for anew")
