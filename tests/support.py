"""What several test files use."""

import torch
from torch import Tensor


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=dtype)
