import pytest
import torch

# Small tensors gain nothing from threads, and the tests run in two processes.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _parameters_that_do_not_depend_on_other_tests():
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        yield
