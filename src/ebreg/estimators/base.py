"""DistributionRegressor: fit, the verbs, and nothing about which method trains which model."""

import copy
import multiprocessing
import threading
import warnings
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names, _check_sample_weight, check_is_fitted
from torch import Tensor, nn

from ebreg._utils import checks
from ebreg._utils.random_state import seeded
from ebreg._utils.stack_level import stack_level
from ebreg.errors import TiesWarning, TrustWarning
from ebreg.estimators import defaults, inputs
from ebreg.estimators.bounds import parse_bounds
from ebreg.estimators.chunks import Chunks
from ebreg.estimators.design import Design, count_features
from ebreg.estimators.prediction import Prediction
from ebreg.estimators.saving import Saving
from ebreg.estimators.ties import Ties
from ebreg.methods import Method
from ebreg.predictive import Accuracy
from ebreg.training import fit
from ebreg.training.batches import TensorData, weights_of
from ebreg.units import Bounds, Standardizer, Units


class DistributionRegressor(MultiOutputMixin, RegressorMixin, Saving):
    """What the regressors share: the fit and the verbs.

    Subclasses have the arguments used here, and say which model they keep and which method trains it.
    """

    input_shape_: tuple[int, ...]
    input_dtype_: torch.dtype | None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation: Any = None) -> Self:
        """Learn p(y | x).

        Args:
            X: Inputs, (n, C): an array, a data frame, a tensor; with a ``backbone`` of your own (n, ...).
            y: Targets, (n,) or (n, D).
            sample_weight: How much each row counts, (n,), in any unit; rows of weight 0 are left out.
            validation: A pair (X, y) to stop early on, in place of rows set aside from X and y.

        Returns:
            The regressor itself.
        """
        before = dict(self.__dict__)
        try:
            # A caller's no_grad or inference_mode is not meant for this.
            with torch.inference_mode(False), torch.enable_grad():
                return self._fit(X, y, sample_weight, validation)
        except BaseException:
            # A regressor that was fitted before goes on answering as it did.
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any, sample_weight: Any, validation: Any) -> Self:
        for name in ("early_stopping", "refit", "warm_start"):
            checks.flag(name, getattr(self, name, False))
        targets = inputs.targets(X, y)
        self._check_goes_on()
        x = self._inputs(X, reset=not self._goes_on)
        data = _counted(TensorData(x, targets.y, _check_weights(sample_weight, len(x))))
        bounds = self._bounds(targets.y.shape[1])
        bounds.check("y", data.y)
        ties = Ties.among(data.x, data.y)
        if ties:
            _warn_of_ties()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        data = TensorData(data.x, ties.spread(data.y, bounds, seed), data.weights)
        train, held = self._hold_out(data, bounds, ties, validation, seed)
        design, method = self._start(train, bounds, ties, seed)
        self._train(method, train, held, seed)
        if self.refit and validation is None and held is not None and not self.interrupted_:
            self._finish(method, data, seed)
        self.model_ = method.model.to_float64()
        self.design_ = design
        self._fitted_backbone = self.backbone
        self._drop_target_axis = targets.drop_axis
        self.target_names_ = targets.names
        return self

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean of p(y | x), shape (n,) or (n, D); with ``return_std`` also the standard deviation."""
        dist = self.predict_distribution(X)
        return dist.mean_and_stddev() if return_std else dist.mean

    def predict_distribution(
        self, X: Any, accuracy: Accuracy | None = None, chunk: int | None = None
    ) -> Prediction:
        """The whole distribution, see :class:`ebreg.estimators.Prediction`.

        Args:
            X: Inputs, as in :meth:`fit`.
            accuracy: Nodes, draws and tolerances, see :class:`ebreg.predictive.Accuracy`; None: the defaults.
            chunk: Rows computed at once; None: by the number of targets.
        """
        check_is_fitted(self, "model_")
        if not isinstance(accuracy, Accuracy | None):
            raise TypeError(f"accuracy must be an ebreg.predictive.Accuracy, got {type(accuracy).__name__}")
        # Questions are asked later, when the caller may have changed X.
        x = self._known_inputs(X).clone()
        chunks = Chunks(self.model_, x, accuracy, chunk)
        return Prediction(chunks, self._drop_target_axis, inputs.index_of(X), self.target_names_)

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.25, 0.5, 0.75, 0.95)) -> np.ndarray:
        """Quantiles of each target by itself: levels (Q,) in (0, 1) -> (n, Q) or (n, Q, D)."""
        return np.moveaxis(self.predict_distribution(X).quantile(np.atleast_1d(q)), 0, 1)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Ends of the interval with equal tails that holds ``coverage``, shape (n, 2) or (n, 2, D)."""
        return self.predict_distribution(X).interval(coverage)

    def sample(self, X: Any, n_draws: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of p(y | x), shape (n_draws, n) or (n_draws, n, D)."""
        return self.predict_distribution(X).sample(n_draws, random_state)

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """Log density of the targets in the user's units, shape (n,)."""
        return self.predict_distribution(X).log_prob(y)

    def _method(self, design: Design, units: Units, backbone: nn.Module | None) -> Method:
        # A new model and what trains it; the backbone is a copy that may be trained.
        raise NotImplementedError  # abstract

    @property
    def _goes_on(self) -> bool:
        # Whether a fit starts from what was learned before.
        return False

    def _check_goes_on(self) -> None:
        # Nothing to check where every fit starts anew.
        return

    def _bounds(self, n_targets: int) -> Bounds:
        return parse_bounds(self.bounds, n_targets)

    def _inputs(self, X: Any, reset: bool) -> Tensor:
        # While fitting: by the arguments as they are now.
        if self.backbone is None:
            return inputs.table(self, X, reset)
        _check_feature_names(self, X, reset=reset)
        if not reset:
            return self._known_examples(X)
        x = inputs.examples(X)
        self.input_shape_, self.input_dtype_ = tuple(x.shape[1:]), x.dtype
        return x

    def _known_inputs(self, X: Any) -> Tensor:
        # After a fit: by what the model was fitted on.
        if self.design_.n_inputs is not None:
            return inputs.table(self, X, reset=False)
        _check_feature_names(self, X, reset=False)
        return self._known_examples(X)

    def _known_examples(self, X: Any) -> Tensor:
        # Older pickles do not say which dtype X had.
        return inputs.examples_like(X, self.input_shape_, getattr(self, "input_dtype_", None))

    def _hold_out(
        self, data: TensorData, bounds: Bounds, ties: Ties, validation: Any, seed: int
    ) -> tuple[TensorData, TensorData | None]:
        if validation is not None:
            if not self.early_stopping:
                raise ValueError(
                    "validation is there to stop early on: set early_stopping=True, or leave it out"
                )
            if not isinstance(validation, tuple | list) or len(validation) != 2:
                raise ValueError("validation must be a pair (X, y)")
            X, y = validation
            targets = inputs.targets(X, y)
            checks.shape("y of validation", targets.y, ("n", data.y.shape[1]))
            bounds.check("y of validation", targets.y)
            return data, TensorData(self._inputs(X, reset=False), ties.spread(targets.y, bounds, seed))
        n_held = defaults.n_validation(len(data), self.validation_fraction) if self.early_stopping else 0
        if n_held == 0:
            return data, None
        train, held = defaults.split(len(data), n_held, seed)
        return data.take(train), data.take(held)

    def _start(self, data: TensorData, bounds: Bounds, ties: Ties, seed: int) -> tuple[Design, Method]:
        backbone = copy.deepcopy(self.backbone)
        units = Units.of(data.x if backbone is None else None, data.y, bounds)
        width = checks.at_least("width", self.width, 1)
        # The weights come from the seed, and nobody else's random numbers change.
        with seeded(seed):
            design = Design(
                n_inputs=data.x.shape[1] if backbone is None else None,
                n_features=width if backbone is None else count_features(backbone, data.x),
                n_targets=data.y.shape[1],
                n_components=checks.at_least("n_components", self.n_components, 1),
                width=width,
                min_scale=ties.min_scale(units.y.scale),
                bounded=not units.standard_bounds.are_open,
            )
            return design, self._method(design, units, backbone)

    def _train(self, method: Method, data: TensorData, held: TensorData | None, seed: int) -> None:
        config = defaults.training_config(
            len(data),
            validated=held is not None,
            max_iter=self.max_iter,
            batch=self.batch_size,
            n_iter_no_change=self.n_iter_no_change,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            seed=seed,
        )
        training = fit(
            method.to(checks.device(self.device)), data, held, config, progress=self._shows_progress
        )
        self.history_ = training.history
        self.n_iter_ = len(training.history)
        self.best_epoch_ = training.best_epoch
        self.interrupted_ = training.interrupted
        if training.best_epoch is not None and held is not None:
            _judge(training.history[training.best_epoch]["validation_nll"], data, held)
        if self.interrupted_:
            _warn_of_interrupt(f"after {self.n_iter_} passes; the best weights so far are kept")

    def _finish(self, method: Method, data: TensorData, seed: int) -> None:
        # The rows that were set aside have done their work; now there is something to learn from them too.
        n_passes = (self.n_iter_ - 1 if self.best_epoch_ is None else self.best_epoch_) + 1
        config = defaults.finishing_config(
            len(data), n_passes, self.batch_size, self.learning_rate, self.weight_decay, seed
        )
        best = copy.deepcopy(method.state_dict())
        training = fit(method, data, config=config, progress=self._shows_progress)
        if training.interrupted:
            method.load_state_dict(best)
            self.interrupted_ = True
            _warn_of_interrupt("in its last stretch; the best weights before it are kept")
            return
        self.history_ = [*self.history_, *training.history]

    @property
    def _shows_progress(self) -> bool:
        return bool(self.verbose) and _is_main()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        return tags


def _check_weights(sample_weight: Any, n_rows: int) -> Tensor | None:
    if sample_weight is None:
        return None
    weights = _check_sample_weight(
        inputs.on_host(sample_weight), np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True
    )
    if not (weights > 0).any():
        raise ValueError("sample_weight must be above 0 for at least one row; all of them are 0")
    return torch.from_numpy(np.array(weights))


def _counted(data: TensorData) -> TensorData:
    # Before anything is learned from the rows: those of weight 0 are as if they were not there.
    return data if data.weights is None else data.take(data.weights > 0)


def _is_main() -> bool:
    # Many bars at once, from fits in parallel, would only be noise; joblib's workers have a parent process.
    in_worker = multiprocessing.parent_process() is not None
    return not in_worker and threading.current_thread() is threading.main_thread()


def _warn_of_ties() -> None:
    warnings.warn(
        "many targets have the same value (rounded, integer or clipped?). The fit spreads each over the cell "
        "it stands for: means, quantiles and samples hold to within a cell, but a log density depends on its "
        "width. Compare models by metrics.rounded_nll or metrics.crps instead.",
        TiesWarning,
        stacklevel=stack_level(),
    )


def _warn_of_interrupt(when: str) -> None:
    warnings.warn(f"the fit was interrupted {when}", UserWarning, stacklevel=stack_level())


def _judge(nll: float, data: TensorData, held: TensorData) -> None:
    # A training that went astray is finite and would be silent. The normal distribution is that of the rows
    # trained on.
    weights = weights_of(held).double()
    normal_nlls = Standardizer.robust("y", data.y).normal_nll(held.y)
    normal_nll = ((weights * normal_nlls).sum() / weights.sum()).item()
    # Before any training, the energy model is level over the range of the data: a little worse.
    if nll <= normal_nll + 2 * held.y.shape[1]:
        return
    warnings.warn(
        f"the training went astray: on the rows set aside its negative log-likelihood is {nll:.4g}, and one "
        f"normal distribution for all rows has {normal_nll:.4g}. Lower learning_rate, raise max_iter, or "
        "give more rows.",
        TrustWarning,
        stacklevel=stack_level(),
    )
