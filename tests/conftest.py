import torch

# Small tensors gain nothing from threads, and the tests run in two processes.
torch.set_num_threads(1)
