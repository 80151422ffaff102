"""Data: examples read as batches by index, and how rows are split into batches."""

import zlib
from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from ebreg._utils import checks


class Data(Protocol):
    """A map-style data set that returns whole batches."""

    def __len__(self) -> int:
        """Number of examples."""

    def __getitems__(self, index: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets (B, D) of a batch."""


class Augmentation(Protocol):
    """A data augmentation, as a function of uniform random numbers."""

    @property
    def n_points(self) -> int:
        """Number of uniform random numbers per example."""

    def __call__(self, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """New inputs and targets (B, D) from points u (B, n_points) of the unit cube; x and y are kept."""


class TensorData:
    """Inputs and targets in memory.

    Args:
        x: Shape (n, ...).
        y: Shape (n, D).
        weights: Weights of the examples, shape (n,), in any unit; None for equal weights.
        name: Name of the data in messages.
        source: Checksum of the data that the values were computed from, if any. It replaces that of the
            values, whose last bits differ between processors.
    """

    def __init__(self, x: Any, y: Any, weights: Any = None, name: str = "data", source: int | None = None):
        x, y = checks.numbers(f"x of {name}", x), checks.table(f"y of {name}", y)
        checks.at_least(f"the number of rows of {name}", len(y), 1)
        if len(x) != len(y):
            raise ValueError(
                f"x and y of {name} must have the same number of rows, got {len(x)} and {len(y)}"
            )
        checks.finite(f"x of {name}", x)
        checks.finite(f"y of {name}", y)
        self.x, self.y = x, y
        self._source = source
        self.weights = None if weights is None else _check_weights(weights, len(y), name)

    @cached_property
    def checksum(self) -> int:
        """Checksum of all values or of their source; a checkpoint is not resumed with another one."""
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
        """The rows at an index (m,)."""
        weights = None if self.weights is None else self.weights[index]
        source = None if self._source is None else zlib.crc32(index.cpu().numpy().tobytes(), self._source)
        return TensorData(self.x[index], self.y[index], weights, source=source)

    def with_targets(self, y: Tensor) -> "TensorData":
        """The same inputs with other targets, shape (n, D)."""
        source = None if self._source is None else zlib.crc32(y.cpu().numpy().tobytes(), self._source)
        return TensorData(self.x, y, self.weights, source=source)

    def __getitems__(self, index: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        index = torch.as_tensor(index)
        return self.x[index], self.y[index]


class ExampleData:
    """Any map-style data set: of single (x, y) pairs, or of batches through ``__getitems__``."""

    def __init__(self, examples: Any):
        self._examples = examples
        self.weights: Tensor | None = getattr(examples, "weights", None)
        self.augmentation: Augmentation | None = getattr(examples, "augmentation", None)

    @property
    def checksum(self) -> int | None:
        """Checksum of the examples, if they have one; it may read all of them."""
        return getattr(self._examples, "checksum", None)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitems__(self, index: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        index = index.tolist() if isinstance(index, Tensor) else list(index)
        if hasattr(self._examples, "__getitems__"):
            got = self._examples.__getitems__(index)
            if isinstance(got, tuple):
                return got
        else:
            got = [self._examples[i] for i in index]
        # The data sets of torch return a list of examples for a list of indices.
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
    if (
        not isinstance(data, str)
        and hasattr(data, "__len__")
        and (hasattr(data, "__getitem__") or hasattr(data, "__getitems__"))
    ):
        return ExampleData(data)
    raise TypeError(f"{name} must be a tuple (x, y) or a map-style data set, got {type(data).__name__}")


class Augmented:
    """Examples with a data augmentation that is applied in training.

    Args:
        examples: A map-style data set.
        augmentation: The augmentation.
    """

    def __init__(self, examples: Any, augmentation: Augmentation):
        self._examples = as_data(examples)
        self.augmentation = augmentation
        self.weights: Tensor | None = getattr(self._examples, "weights", None)

    @property
    def checksum(self) -> int | None:
        """Checksum of the examples, if they have one."""
        return getattr(self._examples, "checksum", None)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitems__(self, index: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """A batch before augmentation: the training loop applies it, with its own random numbers."""
        return self._examples.__getitems__(index)


def augmentation_of(data: Data) -> Augmentation | None:
    """The augmentation of the data; None if there is none."""
    return getattr(data, "augmentation", None)


def describe(augmentation: Augmentation) -> str:
    """Name of an augmentation, with its settings if it is a dataclass; the same in every process."""
    return repr(augmentation) if is_dataclass(augmentation) else type(augmentation).__qualname__


def weights_of(data: Data) -> Tensor:
    """Weights of the examples, 1 on average, shape (n,)."""
    weights = getattr(data, "weights", None)
    return torch.ones(len(data)) if weights is None else weights


def split_batches(order: Tensor, size: int) -> list[Tensor]:
    """Split row numbers, (n,) or (G, n), into batches of ``size``; the last one may be smaller."""
    batches = list(order.split(size, dim=-1))
    # A single row has no batch statistics, so it joins the batch before.
    if len(batches) > 1 and batches[-1].shape[-1] == 1 < size:
        batches[-2:] = [torch.cat(batches[-2:], dim=-1)]
    return batches


def _check_weights(weights: Any, n: int, name: str) -> Tensor:
    weights = checks.numbers(f"weights of {name}", weights).double()
    checks.shape(f"weights of {name}", weights, (n,))
    checks.finite(f"weights of {name}", weights)
    if (weights < 0).any() or not (weights > 0).any():
        raise ValueError(f"weights of {name} must be at least 0, and some of them above 0")
    # Relative to the largest one, so that the sum cannot overflow.
    weights = weights / weights.max()
    return weights * (n / weights.sum())
