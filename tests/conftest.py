import signal

import pytest
import torch

# Small tensors gain nothing from threads, and the tests run in two processes.
torch.set_num_threads(1)

# A shell starts background jobs with Ctrl-C ignored, and some tests raise it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _parameters_that_do_not_depend_on_other_tests():
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        yield
