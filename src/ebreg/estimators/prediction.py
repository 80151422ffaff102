"""Prediction: the distribution of y for the rows of X, numpy in and numpy out, in chunks of rows."""

import math
import warnings
from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg._utils.stack_level import stack_level
from ebreg.distributions.regions import Mode, Modes, Region
from ebreg.errors import TrustWarning
from ebreg.models import Model
from ebreg.predictive import Predictive

if TYPE_CHECKING:
    import pandas as pd


class Prediction:
    """p(y | x) for n rows of X, in the user's units.

    Every question is answered for a chunk of rows at a time, so a million rows need no more memory than their
    answers. What was computed is kept for further questions where the rows are not too many: 2,048 with one
    target, 256 with several.

    With one target that was given as (n,), the last axis, of the D targets, is left out everywhere.

    Args:
        model: Trained.
        x: Inputs, (n, ...).
        drop_target_axis: Whether y had the shape (n,).
        index: Labels of the rows, for :meth:`to_frame`.
        target_names: Names of the targets, for :meth:`to_frame`.
        chunk: Rows computed at once; None: by the number of targets.
        **settings: Of :meth:`ebreg.models.Model.predictive`: ``n_nodes`` for one target, ``n_draws``.
    """

    def __init__(
        self,
        model: Model,
        x: Tensor,
        drop_target_axis: bool = False,
        index: Any = None,
        target_names: Sequence[str] | None = None,
        chunk: int | None = None,
        **settings: Any,
    ):
        for name in settings:
            checks.one_of("a setting of a prediction", name, SETTINGS)
        self._model, self._x, self._settings = model, x, settings
        self._drop = drop_target_axis
        self._index = index
        self._names = target_names
        self._chunk = (
            _CHUNKS[min(model.n_targets, 2)] if chunk is None else checks.at_least("chunk", chunk, 1)
        )
        self._kept: dict[int, Predictive] = {}
        self._warned = False

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: Any) -> "Prediction":
        """The prediction of some of the rows: a slice, row numbers or a mask; one number gives one row."""
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        if chosen.ndim > 1:
            raise IndexError(
                f"rows are numbers in one list, a slice or a mask; got an array of {chosen.shape}"
            )
        index = None if self._index is None else self._index[chosen]
        part = Prediction(
            self._model,
            self._x[torch.from_numpy(chosen)],
            self._drop,
            index,
            self._names,
            self._chunk,
            **self._settings,
        )
        part._warned = self._warned
        return part

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}  # made again when they are asked for

    def __repr__(self) -> str:
        return f"Prediction({len(self)} rows, {self.n_targets} target{'s' * (self.n_targets > 1)})"

    @property
    def n_targets(self) -> int:
        """D."""
        return self._model.n_targets

    @property
    def mean(self) -> np.ndarray:
        """Shape (n,) or (n, D)."""
        return self._targets(self._each(lambda p: p.mean))

    @property
    def variance(self) -> np.ndarray:
        """Shape (n,) or (n, D)."""
        return self._targets(self._each(lambda p: p.variance))

    @property
    def stddev(self) -> np.ndarray:
        """Shape (n,) or (n, D)."""
        return self._targets(self._each(lambda p: p.stddev))

    @property
    def covariance(self) -> np.ndarray:
        """Of the targets with each other, shape (n, D, D)."""
        return self._each(lambda p: p.covariance)

    @property
    def effective_sample_size(self) -> np.ndarray:
        """How many independent draws of p the proposal's draws are worth, shape (n,)."""
        return self._each(lambda p: p.effective_sample_size, watch=False)

    @property
    def pareto_k(self) -> np.ndarray:
        """Tail index of the importance ratios; read it together with the effective sample size. (n,)."""
        return self._each(lambda p: p.pareto_k, watch=False)

    @property
    def log_partition(self) -> np.ndarray:
        """Log of the normaliser, shape (n,)."""
        return self._each(lambda p: p.log_partition, watch=False)

    @property
    def log_partition_error(self) -> np.ndarray:
        """Standard error of the log of the normaliser, shape (n,)."""
        return self._each(lambda p: p.log_partition_error, watch=False)

    @property
    def weak(self) -> np.ndarray:
        """Rows whose answers the sampling does not support, shape (n,), booleans."""
        return self._each(lambda p: p.weak, watch=False)

    @property
    def proposal(self) -> Any:
        """The proposal of all rows, as a torch Distribution in the user's units."""
        return self._model.proposal_at(self._x)

    def log_prob(self, y: Any) -> np.ndarray:
        """Log density of targets, in the user's units: (..., n) or (..., n, D) -> (..., n)."""
        return self._at(lambda p, y: p.log_prob(y), y)

    def cdf(self, y: Any) -> np.ndarray:
        """P(Y <= y), in every target if there are several: (..., n) or (..., n, D) -> (..., n)."""
        return self._at(lambda p, y: p.cdf(y), y)

    def icdf(self, q: Any) -> np.ndarray:
        """Quantiles of a single target: levels () -> (n,), (Q,) or (Q, n) -> (Q, n)."""
        return self._quantiles("icdf", q)

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of each target by itself: levels () -> (n,) or (n, D), (Q,) -> (Q, n) or (Q, n, D)."""
        return self._quantiles("quantile", q)

    def interval(self, coverage: float = 0.9) -> np.ndarray:
        """Ends of the interval with equal tails that holds ``coverage``, shape (n, 2) or (n, 2, D)."""
        coverage = _check_open_unit("coverage", coverage)
        tail = (1 - coverage) / 2
        if not 0 < tail < 1 - tail < 1:
            raise ValueError(f"coverage is {coverage!r}, too close to 0 or 1 for an interval with two tails")
        return np.moveaxis(self.quantile([tail, 1 - tail]), 0, 1)

    def sample(self, n_draws: int, random_state: Any = None) -> np.ndarray:
        """Independent draws, shape (n_draws, n) or (n_draws, n, D).

        Args:
            n_draws: Draws a row.
            random_state: None, a whole number, or a numpy RandomState, as in scikit-learn.
        """
        from sklearn.utils import check_random_state

        n_draws = checks.at_least("n_draws", n_draws, 0)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        generator = torch.Generator(self._model.like.device).manual_seed(seed)
        return self._targets(self._each(lambda p: p.sample(n_draws, generator), dim=1))

    def modes(self) -> Modes:
        """The local maxima of every row, heaviest first; locations have shape (n_i,) or (n_i, D)."""
        return Modes(
            tuple(
                Mode(self._targets(_numpy(row.locations)), _numpy(row.masses), _numpy(row.log_densities))
                for part in self._ask(lambda p: p.modes())
                for row in part
            ),
            np.array,
        )

    def highest_density_region(self, mass: float = 0.9) -> Region:
        """The smallest region that holds ``mass``; for one target a union of intervals for every row."""
        mass = _check_open_unit("mass", mass)
        parts = self._ask(lambda p: p.highest_density_region(mass))
        thresholds = [_numpy(part.log_threshold) for part in parts]
        intervals = None
        if self.n_targets == 1:
            intervals = tuple(_numpy(row) for part in parts for row in part.intervals or ())
        return Region(mass, np.concatenate([np.empty(0), *thresholds]), self.log_prob, intervals)

    def expectation(self, fn: Callable[[np.ndarray], Any]) -> np.ndarray:
        """Expectation of a function of the targets.

        Args:
            fn: Maps targets (M, rows) or (M, rows, D) to (M, rows, ...). It sees some of the rows at a time
                and must treat every one alike.

        Returns:
            Shape (n, ...).
        """

        def inner(y: Tensor) -> Tensor:
            values = np.asarray(fn(self._targets(_numpy(y))))
            if values.shape[:2] != tuple(y.shape[:2]):
                raise ValueError(
                    f"fn must keep the first two axes of what it is given, {tuple(y.shape[:2])}; "
                    f"it returned shape {values.shape}"
                )
            return torch.as_tensor(values, device=y.device).to(torch.float64)

        return self._each(lambda p: p.expectation(inner))

    def apply(self, fn: Callable[..., Tensor], *arrays: Any) -> np.ndarray:
        """Ask a question of your own: call ``fn`` with the torch predictive of each chunk of rows.

        Args:
            fn: Takes an :class:`ebreg.predictive.Predictive` of B rows and the same rows of each array, as
                float64 tensors (B, D); returns a tensor with rows first, (B, ...).
            *arrays: Targets and the like, shape (n,) or (n, D).
        """
        tensors = [self._rows_of(array) for array in arrays]
        return self._each(fn, *tensors)

    def to_frame(self, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> "pd.DataFrame":
        """A pandas table with the index of X: means, deviations, quantiles, and the trust of every row.

        Columns are named ``mean``, ``std``, ``q0.05`` and so on; with several targets, or one with a name,
        they carry it in front, as in ``price mean``.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install ebreg[pandas]") from error
        D = self.n_targets
        quantiles = np.atleast_1d(quantiles).tolist()
        if len(set(quantiles)) < len(quantiles):
            raise ValueError(f"quantiles must differ from each other, got {quantiles}")
        columns = {"mean": self.mean, "std": self.stddev}
        columns |= {
            f"q{float(q)!r}": values for q, values in zip(quantiles, self.quantile(quantiles), strict=True)
        }
        names = list(self._names or ([f"y{d}" for d in range(D)] if D > 1 else [""]))
        table = {
            f"{name} {what}".strip(): values.reshape(len(self), D)[:, d]
            for d, name in enumerate(names)
            for what, values in columns.items()
        }
        table["effective_sample_size"] = self.effective_sample_size
        table["log_partition_error"] = self.log_partition_error
        return pd.DataFrame(table, index=self._index)

    def _quantiles(self, verb: str, q: Any) -> np.ndarray:
        levels = checks.numbers("q", q).double()
        if not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantile levels must lie in (0, 1), got {levels.flatten().tolist()[:10]}")
        if levels.dim() > 2 or (levels.dim() == 2 and levels.shape[1] != len(self)):
            raise ValueError(f"q must have shape (), (Q,) or (Q, {len(self)}), got {tuple(levels.shape)}")
        if levels.dim() == 2 and verb == "quantile" and self.n_targets > 1:
            raise ValueError(f"q must have shape () or (Q,) for several targets, got {tuple(levels.shape)}")
        if levels.dim() == 2:
            answers = self._each(lambda p, q: getattr(p, verb)(q.T), levels.T, dim=1)
        else:
            answers = self._each(lambda p: getattr(p, verb)(levels), dim=levels.dim())
        if self.n_targets > 1 and levels.numel():
            self._warn_of_extremes(torch.minimum(levels, 1 - levels).min().item())
        return self._targets(answers)

    def _warn_of_extremes(self, tail: float) -> None:
        # Quantiles of several targets are those of weighted draws, of which few lie so far out.
        rough = int(((self.effective_sample_size * tail < _FEWEST_BEYOND) & ~self.weak).sum())
        if rough:
            warnings.warn(
                f"quantiles at a level of {tail:g} from an end rest on fewer than {_FEWEST_BEYOND} draws in "
                f"{rough} of {len(self)} rows; a larger n_draws in predict_distribution makes them finer",
                TrustWarning,
                stacklevel=stack_level(),
            )

    def _at(self, question: Callable[[Predictive, Tensor], Tensor], y: Any) -> np.ndarray:
        # Targets (..., n, D), rows of which are asked about chunk by chunk.
        values = checks.numbers("y", y).double()
        values = values[..., None] if self._drop else values
        expected = (len(self), self.n_targets)
        if tuple(values.shape[-2:]) != expected:
            shape = f"(..., {len(self)})" if self._drop else f"(..., {len(self)}, {self.n_targets})"
            raise ValueError(f"y must have shape {shape}, one target for each row; got {np.shape(y)}")
        if torch.isnan(values).any():
            raise ValueError("y must not be NaN; remove those rows")
        n_each = math.prod(values.shape[:-2])
        rows_first = values.reshape(n_each, *expected).transpose(0, 1)  # (n, S, D)
        answers = self._each(lambda p, y: question(p, y.transpose(0, 1)).T, rows_first)
        return answers.T.reshape(values.shape[:-1])

    def _each(
        self, question: Callable[..., Tensor], *tensors: Tensor, dim: int = 0, watch: bool = True
    ) -> np.ndarray:
        # The answers, whose rows lie along dim, of all chunks together.
        return np.concatenate(
            self._ask(lambda *args: _numpy(question(*args)), *tensors, watch=watch), axis=dim
        )

    def _ask(self, question: Callable[..., Any], *tensors: Tensor, watch: bool = True) -> list[Any]:
        # The answer of every chunk; at least one, also of no rows: it knows the shapes of empty answers.
        answers, weak = [], []
        for start in range(0, max(1, len(self)), self._chunk):
            rows = slice(start, start + self._chunk)
            p = self._predictive(start)
            answers.append(question(p, *(tensor[rows].to(self._model.like.device) for tensor in tensors)))
            if watch and not self._warned:
                weak.append(_numpy(p.weak))
        if weak:
            self._warn(np.flatnonzero(np.concatenate(weak)))
        return answers

    def _predictive(self, start: int) -> Predictive:
        # Of the chunk that starts there; kept for the next question where there are not too many.
        if start in self._kept:
            return self._kept[start]
        p = self._of(self._x[start : start + self._chunk])
        if len(self) <= _MOST_KEPT[min(self.n_targets, 2)]:
            self._kept[start] = p
        return p

    def _of(self, x: Tensor) -> Predictive:
        return self._model.predictive(x, **self._model.relevant(self._settings))

    def _warn(self, rows: np.ndarray) -> None:
        self._warned = True
        if not len(rows):
            return
        some = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
        why, more = (
            ("the nodes do not resolve the density", "n_nodes")
            if self.n_targets == 1
            else ("the draws are worth too few of the model's own, or leave log Z rough", "n_draws")
        )
        warnings.warn(
            f"{why} in {len(rows)} of {len(self)} rows ({some}): their answers are rough. Look at "
            f"effective_sample_size and log_partition_error; a larger {more} in predict_distribution, or a "
            "longer training, may help. Such rows are often far from the training data.",
            TrustWarning,
            stacklevel=stack_level(),
        )

    def _rows_of(self, array: Any) -> Tensor:
        values = checks.numbers("y", array).double()
        values = values[:, None] if values.dim() == 1 and self.n_targets == 1 else values
        checks.shape("y", values, (len(self), self.n_targets))
        return values

    def _targets(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self._drop else values


# What may be set; a model takes those that mean something to it.
SETTINGS = ("n_nodes", "max_nodes", "n_draws", "max_draws", "n_replicates", "seed")
# Draws beyond a quantile, below which it is rough.
_FEWEST_BEYOND = 5
# Rows at once, by one target or several: what a chunk needs stays well below a gigabyte.
_CHUNKS = {1: 256, 2: 32}
# Rows whose distributions are kept between questions: some 40 kB each for one target, up to 1 MB for several.
_MOST_KEPT = {1: 2048, 2: 256}


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()


def _check_open_unit(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number in (0, 1), got {value!r}")
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {value:g}; 0.9 stands for 90 %")
    return float(value)
