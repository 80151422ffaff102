"""Prediction: the distribution of y for the rows of X, numpy in and numpy out."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions import Mode, Modes, Region, check_levels
from ebreg.estimators import trust_warnings
from ebreg.estimators.chunks import Chunks
from ebreg.estimators.inputs import check_target_names
from ebreg.estimators.seen import SeenInputs, compared_columns
from ebreg.predictive import Predictive
from ebreg.predictive.nested_intervals import interval_of_scores
from ebreg.predictive.nested_regions import region_of_score

if TYPE_CHECKING:
    import pandas as pd

# Rows whose inputs are compared with those of the training at once.
_ROWS_COMPARED = 1024


class Prediction:
    """p(y | x) for n rows of X, in the user's units.

    The distributions are computed for a chunk of rows at a time and kept, up to 1 GiB, so that further
    questions evaluate no network again. Beyond that, chunks are computed again for every question, and a
    million rows need no more memory than their answers.

    With one target that was given as (n,), the last axis, of the D targets, is left out everywhere.

    Args:
        chunks: The rows.
        drop_target_axis: Whether y had the shape (n,).
        index: Labels of the rows, for :meth:`to_frame`.
        target_names: Names of the targets, for :meth:`to_frame`.
        seen: The inputs of the training, for :attr:`unusual`; None where they are not known.
    """

    def __init__(
        self,
        chunks: Chunks,
        drop_target_axis: bool = False,
        index: Any = None,
        target_names: list[str] | None = None,
        seen: SeenInputs | None = None,
    ):
        self._chunks = chunks
        self._drop = drop_target_axis
        self._index = index
        self._names = target_names
        self._seen = seen
        self._warned = False

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, rows: Any) -> "Prediction":
        """The prediction of some of the rows: a slice, row numbers or a mask; one number gives one row."""
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        if chosen.ndim > 1:
            raise IndexError(f"rows must be numbers in one list, a slice or a mask; got shape {chosen.shape}")
        index = None if self._index is None else self._index[chosen]
        chunks = self._chunks.take(torch.from_numpy(chosen))
        part = Prediction(chunks, self._drop, index, self._names, self._seen)
        part._warned = self._warned
        return part

    def __repr__(self) -> str:
        return f"Prediction({len(self)} rows, {self.n_targets} target{'s' * (self.n_targets > 1)})"

    def check_target_names(self, y: Any) -> None:
        """Require the columns of a table y, where there are several, to be those of the fit."""
        check_target_names(y, self._names)

    @property
    def n_targets(self) -> int:
        """D."""
        return self._chunks.model.n_targets

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
        return self._each(lambda p: p.effective_sample_size, warn=False)

    @property
    def pareto_k(self) -> np.ndarray:
        """Tail index of the importance ratios; read it together with the effective sample size. (n,)."""
        return self._each(lambda p: p.pareto_k, warn=False)

    @property
    def log_partition(self) -> np.ndarray:
        """Log of the normaliser, shape (n,)."""
        return self._each(lambda p: p.log_partition, warn=False)

    @property
    def log_partition_error(self) -> np.ndarray:
        """Standard error of the log of the normaliser, shape (n,)."""
        return self._each(lambda p: p.log_partition_error, warn=False)

    @property
    def unreliable(self) -> np.ndarray:
        """Rows whose answers the nodes or draws do not support, shape (n,), booleans."""
        return self._each(lambda p: p.unreliable, warn=False)

    @property
    def unusual(self) -> np.ndarray:
        """Rows whose inputs are unlike those of the training, shape (n,), booleans.

        Those with an ``unusual_score`` above 1, as about one in a hundred rows like the training rows have.
        The answer of such a row is an extrapolation, however accurately it was computed.
        """
        return self.unusual_score > 1

    @property
    def unusual_score(self) -> np.ndarray:
        """How unlike the inputs of the training a row is, at least 0, shape (n,).

        About 99 of 100 rows like the training rows have less than 1. See
        :class:`ebreg.estimators.seen.SeenInputs` for what is compared: the columns of a table, or the
        features of a backbone of your own. A row's score does not depend on the other rows.
        """
        if self._seen is None:
            raise ValueError(
                "the inputs of the training are not known: the model was saved before they were stored, or "
                "not made by fit, or its features were not finite; fit it again"
            )
        x = self._chunks.x
        parts = x.split(_ROWS_COMPARED) if len(x) else [x]
        scores = [self._seen.score(compared_columns(self._chunks.model, rows)) for rows in parts]
        return _numpy(torch.cat(scores))

    @property
    def epistemic_share(self) -> np.ndarray:
        """The share of the variance that the members disagree about, in [0, 1], shape (n,) or (n, D).

        It is large where the training rows do not determine the model, and 0 with one member. It evaluates
        the networks again, for every member alone: see :meth:`ebreg.models.Model.epistemic_share`.
        """
        return self._targets(self._each(self._share, self._chunks.x))

    @property
    def proposal(self) -> Any:
        """The proposal of all rows, in the user's units: torch tensors in and out."""
        first, *others = [p.proposal for _, p in self._chunks]
        return first.joined(others) if others else first

    def mean_and_stddev(self) -> tuple[np.ndarray, np.ndarray]:
        """Both, shape (n,) or (n, D) each, in one pass over the rows."""
        mean, stddev = self._all(lambda p: (p.mean, p.stddev))
        return self._targets(mean), self._targets(stddev)

    def log_prob(self, y: Any) -> np.ndarray:
        """Log density of targets, in the user's units: (..., n) or (..., n, D) -> (..., n)."""
        return self._at(lambda p, y: p.log_prob(y), y)

    def proposal_log_prob(self, y: Any) -> np.ndarray:
        """Log density of targets under the proposal, which an energy corrects: shapes as in :meth:`log_prob`.

        For a mixture it is :meth:`log_prob`.
        """
        return self._at(lambda p, y: p.proposal.log_prob(y), y)

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
        """The interval with equal tails that holds ``coverage``, shape (n, 2) or (n, 2, D)."""
        coverage = checks.fraction("coverage", coverage)
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
        generator = torch.Generator(self._device).manual_seed(seed)
        return self._targets(self._each(lambda p: p.sample(n_draws, generator), axis=1))

    def modes(self) -> Modes:
        """The local maxima of every row, heaviest first; locations have shape (n_i,) or (n_i, D)."""
        rows = tuple(
            Mode(self._targets(_numpy(row.locations)), _numpy(row.masses), _numpy(row.log_densities))
            for modes in self._ask(lambda p: p.modes())
            for row in modes
        )
        return Modes(rows, np.array)

    def highest_density_region(self, mass: float = 0.9) -> Region:
        """The smallest region that holds ``mass``; for one target a union of intervals for every row."""
        mass = checks.fraction("mass", mass)
        return Region.joined(self._ask(lambda p: p.highest_density_region(mass)), self.log_prob)

    def hpd_mass(self, y: Any) -> np.ndarray:
        """The mass of the highest-density region that targets just enter: shapes as in :meth:`log_prob`.

        Of targets that the distribution describes it is uniform between 0 and 1.
        """
        return self._at(lambda p, y: p.hpd_mass(y), y)

    def region_of_score(self, score: float, mass: float) -> Region:
        """The targets with a score of at most ``score``, see :mod:`ebreg.predictive.nested_regions`."""
        return Region.joined(self._ask(lambda p: region_of_score(p, score, mass)), self.log_prob)

    def interval_of_scores(self, scores: Tensor, low: Tensor, high: Tensor) -> np.ndarray:
        """The same for intervals, within bounds, all (D,): (n, 2) or (n, 2, D).

        See :mod:`ebreg.predictive.nested_intervals`.
        """
        scores, low, high = (each.to(self._device, torch.float64) for each in (scores, low, high))
        return self._targets(self._each(lambda p: interval_of_scores(p, scores, low, high)))

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
                    f"fn must keep the first two axes of its argument, {tuple(y.shape[:2])}; "
                    f"it returned shape {values.shape}"
                )
            return torch.as_tensor(values, device=y.device).to(torch.float64)

        return self._each(lambda p: p.expectation(inner))

    def apply(self, fn: Callable[..., Tensor], *arrays: Any) -> np.ndarray:
        """Call a function with the torch predictive distribution of each chunk of rows.

        Args:
            fn: Takes an :class:`ebreg.predictive.Predictive` of B rows and the same rows of each array, as
                float64 tensors (B, D); returns a tensor with rows first, (B, ...). Gradients are disabled.
            *arrays: Targets and the like, shape (n,) or (n, D).
        """
        return self._each(fn, *(self._rows_of(array) for array in arrays))

    def to_frame(self, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> "pd.DataFrame":
        """A pandas table with the index of X: means, deviations, quantiles and diagnostics, in one pass.

        Columns are named ``mean``, ``std``, ``q0.05`` and so on, and ``epistemic_share``; with several
        targets, or one with a name, they carry it in front, as in ``price mean``. Then come
        ``effective_sample_size``, ``log_partition_error``, ``unreliable``, of the computation, and
        ``unusual``, of the input; the last is left out where the inputs of the training are not known.
        """
        try:
            import pandas as pd
        except ImportError as missing:
            raise ImportError("to_frame needs pandas: pip install ebreg[pandas]") from missing
        D = self.n_targets
        levels = check_levels(np.atleast_1d(quantiles))
        if len(levels.unique()) < len(levels):
            raise ValueError(f"quantiles must differ from each other, got {levels.tolist()}")
        mean, std, values, share, size, error, unreliable = self._all(
            lambda p, x: (
                p.mean,
                p.stddev,
                p.quantile(levels).transpose(0, 1),  # rows first
                self._share(p, x),
                p.effective_sample_size,
                p.log_partition_error,
                p.unreliable,
            ),
            self._chunks.x,
        )
        columns = {"mean": mean, "std": std}
        columns |= {f"q{q!r}": values[:, i] for i, q in enumerate(levels.tolist())}
        columns["epistemic_share"] = share
        names = self._names or ([f"y{d}" for d in range(D)] if D > 1 else [""])
        table = {
            f"{name} {what}".strip(): values[:, d]
            for d, name in enumerate(names)
            for what, values in columns.items()
        }
        table |= {"effective_sample_size": size, "log_partition_error": error, "unreliable": unreliable}
        if self._seen is not None:
            table["unusual"] = self.unusual
        return pd.DataFrame(table, index=self._index)

    def _quantiles(self, verb: str, q: Any) -> np.ndarray:
        levels = check_levels(q)
        if levels.dim() > 2 or (levels.dim() == 2 and levels.shape[1] != len(self)):
            raise ValueError(f"q must have shape (), (Q,) or (Q, {len(self)}), got {tuple(levels.shape)}")
        if levels.dim() == 2 and verb == "quantile" and self.n_targets > 1:
            raise ValueError(f"q must have shape () or (Q,) for several targets, got {tuple(levels.shape)}")
        if levels.dim() == 2:
            answers = self._each(lambda p, q: getattr(p, verb)(q.T), levels.T, axis=1)
        else:
            answers = self._each(lambda p: getattr(p, verb)(levels), axis=levels.dim())
        if levels.numel():
            tail = torch.minimum(levels, 1 - levels).min().item()
            n_extreme = int(self._each(partial(trust_warnings.is_extreme, tail), warn=False).sum())
            trust_warnings.warn_of_extremes(tail, n_extreme, len(self))
        return self._targets(answers)

    def _at(self, question: Callable[[Predictive, Tensor], Tensor], y: Any) -> np.ndarray:
        # Targets (..., n, D), whose rows are asked about chunk by chunk.
        check_target_names(y, self._names)
        values = checks.numbers("y", y).double()
        values = values[..., None] if self._drop else values
        expected = (len(self), self.n_targets)
        if tuple(values.shape[-2:]) != expected:
            shape = f"(..., {len(self)})" if self._drop else f"(..., {len(self)}, {self.n_targets})"
            raise ValueError(f"y must have shape {shape}, one target for each row; got {np.shape(y)}")
        if torch.isnan(values).any():
            raise ValueError("y must not be NaN; remove those rows")
        rows_first = values.reshape(math.prod(values.shape[:-2]), *expected).transpose(0, 1)  # (n, S, D)
        answers = self._each(lambda p, y: question(p, y.transpose(0, 1)).T, rows_first)
        return answers.T.reshape(values.shape[:-1])

    def _each(
        self, question: Callable[..., Tensor], *tensors: Tensor, axis: int = 0, warn: bool = True
    ) -> np.ndarray:
        # One array from the answers of all chunks, whose rows lie along the axis.
        answers = self._ask(lambda *args: _numpy(question(*args)), *tensors, warn=warn)
        return np.concatenate(answers, axis=axis)

    def _share(self, p: Predictive, x: Tensor) -> Tensor:
        # Of a chunk with inputs x, (B, D).
        return self._chunks.model.epistemic_share(x, self._chunks.accuracy, p)

    def _all(self, questions: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[np.ndarray, ...]:
        # Several arrays, with rows first, from one pass over the chunks.
        answers = self._ask(lambda *args: tuple(map(_numpy, questions(*args))), *tensors)
        return tuple(np.concatenate(parts) for parts in zip(*answers, strict=True))

    def _ask(self, question: Callable[..., Any], *tensors: Tensor, warn: bool = True) -> list[Any]:
        # The answer of every chunk, given its rows of the tensors.
        answers, unreliable = [], []
        with torch.no_grad():
            for rows, p in self._chunks:
                answers.append(question(p, *(tensor[rows].to(self._device) for tensor in tensors)))
                if warn and not self._warned:
                    unreliable.append(_numpy(p.unreliable))
        if unreliable:
            self._warned = True
            trust_warnings.warn_of_unreliable(np.concatenate(unreliable), self._chunks.by_draws)
        return answers

    def _rows_of(self, array: Any) -> Tensor:
        check_target_names(array, self._names)
        values = checks.numbers("y", array).double()
        values = values[:, None] if values.dim() == 1 and self.n_targets == 1 else values
        checks.shape("y", values, (len(self), self.n_targets))
        return values

    def _targets(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self._drop else values

    @property
    def _device(self) -> torch.device:
        return self._chunks.model.reference.device


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()
