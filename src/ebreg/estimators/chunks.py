"""Chunks: predictive distributions of many rows, made a chunk at a time and kept up to a limit."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.models import Model
from ebreg.predictive import Accuracy, Predictive

# Rows at once, with one target and with several: a chunk then needs well below a gigabyte.
_ROWS, _ROWS_SEVERAL = 256, 32
# Bytes that are kept, padding included; chunks beyond it are made again for every question.
KEPT_BYTES = 2**30


class Chunks:
    """The rows of x, as predictive distributions of some rows each.

    Args:
        model: Trained.
        x: Inputs, (n, ...).
        accuracy: Nodes, draws and tolerances; None: the defaults.
        n_rows: Rows in a chunk; None: by the number of targets.
    """

    def __init__(self, model: Model, x: Tensor, accuracy: Accuracy | None = None, n_rows: int | None = None):
        if not isinstance(accuracy, Accuracy | None):
            raise TypeError(f"accuracy must be an ebreg.predictive.Accuracy, got {type(accuracy).__name__}")
        self.model, self.x, self.accuracy = model, x, accuracy
        default = _ROWS if model.n_targets == 1 else _ROWS_SEVERAL
        self.n_rows = default if n_rows is None else checks.at_least("chunk", n_rows, 1)
        self._kept: dict[int, Predictive] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[tuple[slice, Predictive]]:
        """Rows and their distribution; at least one chunk, also of no rows: it has the shapes of answers."""
        for start in self._starts:
            rows = slice(start, start + self.n_rows)
            p = self._kept.get(start)
            yield rows, self._make(rows) if p is None else p

    def take(self, rows: Tensor) -> "Chunks":
        """Some of the rows, by their numbers; what is kept of them is not made again."""
        taken = Chunks(self.model, self.x[rows], self.accuracy, self.n_rows)
        if len(self._kept) == len(self._starts):
            first, *others = (self._kept[start] for start in self._starts)
            chosen: Any = first.joined(others) if others else first
            chosen = chosen[rows.to(self.model.reference.device)]
            taken._kept = {start: chosen[start : start + self.n_rows] for start in taken._starts}
            taken._bytes = sum(map(_n_bytes, taken._kept.values()))
        return taken

    @property
    def _starts(self) -> range:
        return range(0, max(1, len(self)), self.n_rows)

    def _make(self, rows: slice) -> Predictive:
        p = self.model.predictive(self.x[rows], self.accuracy)
        size = _n_bytes(p)
        if self._bytes + size <= KEPT_BYTES:
            self._kept[rows.start] = p
            self._bytes += size
        return p


def _n_bytes(p: Predictive) -> int:
    return sum(value.nbytes for value in vars(p).values() if isinstance(value, torch.Tensor))
