"""Data as batches by index: one gather per batch, not one call per example."""

import zlib
from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from ebreg._utils import checks


class Data(Protocol):
    """What the training loop reads: a map-style data set that gives whole batches."""

    def __len__(self) -> int:
        """Number of examples."""

    def __getitems__(self, index: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets (B, D) of a batch."""


class Augmentation(Protocol):
    """A random change of examples that leaves their law as it is, as a function of uniform numbers."""

    @property
    def n_points(self) -> int:
        """How many uniform numbers it needs for an example."""

    def __call__(self, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """New inputs and targets (B, D) from points u (B, n_points) of the unit cube; nothing is changed."""


class TensorData:
    """Inputs and targets held in memory.

    Args:
        x: Shape (n, ...).
        y: Shape (n, D).
        weights: How much each example counts, shape (n,), in any unit; None: all count the same.
        name: What the data is called in messages.
        source: A checksum of what the values were computed from, if they were: processors differ in their
            last bits.
    """

    def __init__(self, x: Any, y: Any, weights: Any = None, name: str = "data", source: int | None = None):
        x, y = checks.numbers(f"x of {name}", x), checks.table(f"y of {name}", y)
        checks.at_least(f"the number of rows of {name}", len(y), 1)
        if len(x) != len(y):
            raise ValueError(
                f"x and y of {name} must have as many rows as each other, got {len(x)} and {len(y)}"
            )
        checks.finite(f"x of {name}", x)
        checks.finite(f"y of {name}", y)
        self.x, self.y = x, y
        self._source = source
        self.weights = None if weights is None else _check_weights(weights, len(y), name)

    @cached_property
    def checksum(self) -> int:
        """Of all values, or of their source, so that a training is not resumed on other data."""
        if self._source is not None:
            return self._source
        checksum = 0
        for values in (self.x, self.y, *(() if self.weights is None else (self.weights,))):
            content = values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            checksum = zlib.crc32(content.data, checksum)
        return checksum

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> "TensorData":
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[index]
        source = None if self._source is None else zlib.crc32(index.cpu().numpy().tobytes(), self._source)
        return TensorData(self.x[index], self.y[index], weights, source=source)

    def __getitems__(self, index: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        index = torch.as_tensor(index)
        return self.x[index], self.y[index]


class ExampleData:
    """Any map-style data set: of (x, y) pairs one at a time, or of batches through ``__getitems__``."""

    def __init__(self, examples: Any):
        self._examples = examples
        self.weights: Tensor | None = getattr(examples, "weights", None)
        self.augmentation: Augmentation | None = getattr(examples, "augmentation", None)

    @property
    def checksum(self) -> int | None:
        """That of the examples, if they have one; it may take a look at all of them."""
        return getattr(self._examples, "checksum", None)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitems__(self, index: Sequence[int]) -> tuple[Tensor, Tensor]:
        if hasattr(self._examples, "__getitems__"):
            got = self._examples.__getitems__(list(index))
            if isinstance(got, tuple):
                return got
        else:
            got = [self._examples[i] for i in index]
        # torch's own data sets give a list of examples for a list of indices.
        x = torch.stack([torch.as_tensor(x) for x, _ in got])
        return x, torch.stack([torch.as_tensor(y).reshape(-1) for _, y in got])


def as_data(data: Any, name: str = "data") -> Data:
    """Accept a tuple (x, y) or (x, y, weights) of tensors or arrays, or any map-style data set."""
    if isinstance(data, tuple):
        if len(data) not in (2, 3):
            raise ValueError(f"{name} must be a tuple (x, y) or (x, y, weights), got a tuple of {len(data)}")
        x, y, weights = (*data, None)[:3]
        return TensorData(x, y, weights, name)
    if isinstance(data, TensorData):
        return data
    if hasattr(data, "__len__") and (hasattr(data, "__getitem__") or hasattr(data, "__getitems__")):
        return ExampleData(data)
    raise TypeError(f"{name} must be a tuple (x, y) or a map-style data set, got {type(data).__name__}")


class Augmented:
    """Examples that are changed at random whenever they are trained on.

    Args:
        examples: A map-style data set.
        augmentation: How they are changed.
    """

    def __init__(self, examples: Any, augmentation: Augmentation):
        self._examples = as_data(examples)
        self.augmentation = augmentation
        self.weights: Tensor | None = getattr(self._examples, "weights", None)

    @property
    def checksum(self) -> int | None:
        """That of the examples, if they have one."""
        return getattr(self._examples, "checksum", None)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitems__(self, index: Sequence[int]) -> tuple[Tensor, Tensor]:
        """As they are: the training loop augments, with random numbers of its own."""
        return self._examples.__getitems__(index)


def augmentation_of(data: Data) -> Augmentation | None:
    """How examples are changed when they are trained on; None: not at all."""
    return getattr(data, "augmentation", None)


def describe(augmentation: Augmentation) -> str:
    """An augmentation by its name, with its settings if it is a dataclass; the same in every process."""
    return repr(augmentation) if is_dataclass(augmentation) else type(augmentation).__qualname__


def weights_of(data: Data) -> Tensor:
    """How much each example counts, 1 on average, shape (n,)."""
    weights = getattr(data, "weights", None)
    return torch.ones(len(data)) if weights is None else weights


def _check_weights(weights: Any, n: int, name: str) -> Tensor:
    weights = checks.numbers(f"weights of {name}", weights).double()
    checks.shape(f"weights of {name}", weights, (n,))
    checks.finite(f"weights of {name}", weights)
    if (weights < 0).any() or not (weights > 0).any():
        raise ValueError(f"weights of {name} must be at least 0, and some of them above 0")
    # In units of the largest, no sum overflows.
    weights = weights / weights.max()
    return weights * (n / weights.sum())
