"""Chunks: predictive distributions of many rows, made a chunk at a time and kept up to a limit."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions.log_linear import LogLinear
from ebreg.models import MixtureModel, Model
from ebreg.predictive import DEFAULT, Accuracy, Predictive, accuracy_or_default

# Rows at once, with one target, by draws, and with several targets, at the default accuracy: a chunk then
# needs well below a gigabyte. More nodes or draws mean fewer rows. Mixtures have neither.
_ROWS, _ROWS_BY_DRAWS, _ROWS_SEVERAL, _ROWS_OF_MIXTURES = 512, 256, 32, 1024
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
        self.model, self.x, self.accuracy = model, x, accuracy_or_default(accuracy)
        self.n_rows = self._default_rows()
        if n_rows is not None:
            self.n_rows = checks.at_least("chunk", n_rows, 1)
        self._kept: dict[int, Predictive] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.x)

    @property
    def by_draws(self) -> bool:
        """Whether the rows are answered by draws."""
        return self.model.answers_by_draws(self.accuracy)

    def __iter__(self) -> Iterator[tuple[slice, Predictive]]:
        """Rows and their distribution; at least one chunk, also of no rows: it has the shapes of answers."""
        for start in self._starts:
            rows = slice(start, start + self.n_rows)
            p = self._kept.get(start)
            yield rows, self._make(rows) if p is None else p

    def take(self, rows: Tensor) -> "Chunks":
        """Some of the rows, by their numbers; what is kept of them is not made again."""
        taken = Chunks(self.model, self.x[rows], self.accuracy, self.n_rows)
        for start in taken._starts:
            p = self._gather(rows[start : start + self.n_rows])
            if p is not None:
                taken._keep(start, p)
        return taken

    def _gather(self, rows: Tensor) -> Predictive | None:
        # The distributions of at most a chunk of rows, in their order; None where one of them is not kept.
        chunk, place = rows // self.n_rows, rows % self.n_rows
        starts = (chunk.unique() * self.n_rows).tolist() or [0]
        if any(start not in self._kept for start in starts):
            return None
        device = self.model.reference.device
        first, *others = [
            self._kept[start][place[chunk == start // self.n_rows].to(device)] for start in starts
        ]
        joined: Any = first.joined(others) if others else first
        return joined[chunk.argsort(stable=True).argsort().to(device)]

    def _default_rows(self) -> int:
        if isinstance(self.model, MixtureModel) and not self.by_draws:
            return _ROWS_OF_MIXTURES
        settings = (DEFAULT, self.accuracy)
        counts = [each.draw_counts if self.by_draws else each.node_counts for each in settings]
        usual, wanted = (most for *_, most in counts)
        one = _ROWS_BY_DRAWS if self.by_draws else _ROWS
        rows = one if self.model.n_targets == 1 else _ROWS_SEVERAL
        return max(1, rows * usual // max(usual, wanted))

    @property
    def _starts(self) -> range:
        return range(0, max(1, len(self)), self.n_rows)

    @torch.no_grad()  # what is kept must not keep a graph
    def _make(self, rows: slice) -> Predictive:
        p = self.model.predictive(self.x[rows], self.accuracy)
        self._keep(rows.start, p)
        return p

    def _keep(self, start: int, p: Predictive) -> None:
        size = _n_bytes(p)
        if self._bytes + size <= KEPT_BYTES:
            self._kept[start] = p
            self._bytes += size


def _n_bytes(p: Any) -> int:
    parts = [p, p.proposal, getattr(p, "target", None), getattr(p, "fitted", None)]
    # By identity: a mixture is its own proposal.
    tensors = {id(value): value for part in parts if part is not None for value in vars(part).values()}
    size = sum(value.nbytes for value in tensors.values() if isinstance(value, Tensor))
    return size + (p.n_bytes if isinstance(p, LogLinear) else 0)  # what it derives is kept with it
