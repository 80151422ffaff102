"""Activation functions by name."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

# In place where the gradient needs only the result, which is faster. So call them with new tensors only.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "tanh": torch.tanh_,
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "softplus": nn.functional.softplus,
}
