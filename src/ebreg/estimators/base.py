"""DistributionRegressor: fit and the predictions, for any model and training method."""

import warnings
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ebreg._utils import checks
from ebreg._utils.random_state import seeded
from ebreg._utils.stack_level import stack_level
from ebreg.errors import TrustWarning, UndefinedError
from ebreg.estimators import ascent, inputs, warm_start
from ebreg.estimators.blueprint import Blueprint
from ebreg.estimators.bounds import parse_bounds
from ebreg.estimators.chunks import Chunks
from ebreg.estimators.conformalizing import Conformalizing
from ebreg.estimators.custom_networks import CustomNetworks
from ebreg.estimators.design import Design
from ebreg.estimators.grouping import Grouping
from ebreg.estimators.prediction import Prediction
from ebreg.estimators.recipe import Recipe, find_recipe
from ebreg.estimators.rows import Rows
from ebreg.estimators.saving import RECORDS, Saving
from ebreg.estimators.seen import SeenInputs, compared_columns, some_rows
from ebreg.estimators.trainer import Trainer
from ebreg.methods import Method, ResidualNCE
from ebreg.models import Model
from ebreg.networks import DEFAULT_PROPOSAL
from ebreg.predictive import Accuracy
from ebreg.training import Deadline, HeldOut
from ebreg.training.batches import TensorData, weights_of
from ebreg.training.progress_bar import check_progress
from ebreg.units import Bounds


class DistributionRegressor(MultiOutputMixin, RegressorMixin, Conformalizing, Saving):
    """Base of the regressors: fit and the predictions.

    A subclass has the arguments that are used here, and says in ``_model_class`` and ``_method`` which model
    it trains, and how.
    """

    warm_start: bool = False  # an argument of some subclasses
    design_: Design
    input_shape_: tuple[int, ...]
    input_dtype_: torch.dtype

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        validation: Any = None,
        groups: Any = None,
        time: Any = None,
    ) -> Self:
        """Learn p(y | x).

        A fit that fails leaves the regressor as it was.

        Args:
            X: Inputs, (n, C): an array, a data frame, a tensor; with a ``backbone`` of your own (n, ...).
            y: Targets, (n,) or (n, D).
            sample_weight: Weight of each row, (n,), in any unit; rows of weight 0 are left out.
            validation: Validation rows (X, y) for early stopping, in place of some of the rows of X and y.
            groups: A label for each row, (n,), such as its patient: rows with the same label are used for
                validation together or not at all. Without it, validation rows are chosen at random.
            time: A number or a date for each row, (n,): the latest rows are used for validation.

        Returns:
            The regressor itself.
        """
        start = monotonic()
        # A no_grad or inference_mode of the caller must not reach the training.
        with torch.inference_mode(False), torch.enable_grad():
            self._check_switches()
            deadline = self._deadline(start)
            targets = inputs.targets(y)
            bounds = parse_bounds(self.bounds, targets.y.shape[1])
            reader = self._reader(y, targets, bounds)
            read = partial(inputs.table if self.backbone is None else inputs.examples, reader)
            x = read(X, reset=reader is not self)
            inputs.check_same_length(x, targets.y)
            weights = inputs.weights(sample_weight, len(x))
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            rows = Rows.of(x, targets.y, weights, bounds, seed, Grouping.of(groups, time, len(x)))
            recipe = self._recipe()
            train, validation_rows = self._split(rows, validation, read, recipe, targets.names)
            design, method = self._build(rows, train, seed, recipe)
            trainer = self._trainer(recipe, seed, deadline)
            # First where it needs no features: the trainings then know how much time is left.
            seen = self._seen(rows, seed) if design.n_inputs is not None else {}
            training, final = trainer.run(method, train, validation_rows, rows.data)
            model = method.model.to_float64()
            self._keep(
                **{name: value for name, value in vars(reader).items() if name in inputs.FORMAT},
                model_=model,
                **(seen or self._seen_features(model, rows, seed, deadline)),
                design_=design,
                history_=final.history,
                n_iter_=len(training.history),
                best_epoch_=training.best_epoch,
                interrupted_=final.interrupted,
                target_names_=targets.names,
                _drop_target_axis=targets.drop_axis,
                _fitted_networks=CustomNetworks.of(self),
            )
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
        # Predictions are computed later, when the caller may have changed X.
        x = self._inputs_of(X).clone()
        chunks = Chunks(self.model_, x, accuracy, chunk)
        seen = getattr(self, "seen_", None)
        return Prediction(chunks, self._drop_target_axis, inputs.index_of(X), self.target_names_, seen)

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.25, 0.5, 0.75, 0.95)) -> np.ndarray:
        """Quantiles of each target by itself: levels (Q,) in (0, 1) -> (n, Q) or (n, Q, D)."""
        return np.moveaxis(self.predict_distribution(X).quantile(np.atleast_1d(q)), 0, 1)

    def sample(self, X: Any, n_draws: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws from p(y | x), shape (n_draws, n) or (n_draws, n, D)."""
        return self.predict_distribution(X).sample(n_draws, random_state)

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """Log density of the targets in the user's units, shape (n,)."""
        return self.predict_distribution(X).log_prob(y)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of the means, as in scikit-learn."""
        check_is_fitted(self, "model_")
        inputs.check_target_names(y, self.target_names_)
        return super().score(X, y, sample_weight)

    def gradient_ascent(
        self, X: Any, y_start: Any = None, n_steps: int = 20, step_size: float = 0.05
    ) -> np.ndarray:
        """Refine initial estimates towards a local maximum of the density, as earlier work predicts.

        See :meth:`ebreg.models.Model.gradient_ascent`. It needs no normaliser and says nothing of the rest of
        the distribution; where there are several modes, the start decides which one it finds.

        Args:
            X: Inputs, as in :meth:`fit`.
            y_start: The initial estimates, (n,) or (n, D) as y was; None: the mean of the proposal, for a
                :class:`MixtureDensityRegressor` that of the mixture.
            n_steps: Number of steps.
            step_size: The first step size, in standard deviations of y squared; halved after every step that
                would lower the density.

        Returns:
            Shape (n,) or (n, D).
        """
        x = self._inputs_of(X)
        inputs.check_target_names(y_start, self.target_names_)
        start = (
            None if y_start is None else ascent.start_of(self.model_, y_start, len(x), self._drop_target_axis)
        )
        y = ascent.in_chunks(self.model_, x, start, n_steps, step_size)
        return y[:, 0] if self._drop_target_axis else y

    def _inputs_of(self, X: Any) -> Tensor:
        check_is_fitted(self, "model_")
        read = inputs.examples if self.design_.n_inputs is None else inputs.table
        return read(self, X, reset=False)

    @property
    def _method_name(self) -> str:
        # Of the training method.
        raise NotImplementedError  # abstract

    def _method(self, model: Any, blueprint: Blueprint | None, n_draws: int | None) -> Method:
        # How the model is trained; the blueprint of its networks is None in a warm start.
        raise NotImplementedError  # abstract

    @classmethod
    def _model_class(cls, residual: bool) -> type[Model]:
        # The model, whose energy may be a correction of its proposal.
        raise NotImplementedError  # abstract

    def _recipe(self) -> Recipe:
        own = CustomNetworks.of(self)
        heads = [name for name in own.names if name != "backbone"]
        recipe = find_recipe(
            self._method_name,
            self.preset,
            bool(own.names) or self.proposal != DEFAULT_PROPOSAL,
            n_members=self.n_members,
            dropout=self.dropout,
            n_draws=self.n_draws,
            learning_rate=self.learning_rate,
            n_components=self.n_components,
            refit=self.refit,
        )
        if recipe.n_members == 1:
            return recipe
        if heads or self.proposal != DEFAULT_PROPOSAL:
            name = heads[0] if heads else "proposal"
            raise ValueError(
                f"n_members must be 1 with a {name} of your choice: only the library's own heads can be "
                "computed for several members at once"
            )
        return recipe

    def _check_switches(self) -> None:
        for name in ("early_stopping", "warm_start"):
            checks.flag(name, getattr(self, name))
        if self.refit is not None:
            checks.flag("refit", self.refit)
        check_progress("verbose", self.verbose)

    def _reader(self, y: Any, targets: inputs.Targets, bounds: Bounds) -> Self:
        # scikit-learn stores the columns of X on the estimator that reads it. A new fit uses an unfitted copy
        # for that, because this one must not change before the end; a warm start needs the columns it has.
        if not self._continues:
            return type(self)(**self.get_params(deep=False))
        warm_start.check(self, targets.y.shape[1], bounds)
        inputs.check_target_names(y, self.target_names_)
        return self

    @property
    def _continues(self) -> bool:
        return self.warm_start and hasattr(self, "model_")

    def _split(
        self,
        rows: Rows,
        validation: Any,
        read: Callable[..., Tensor],
        recipe: Recipe,
        names: list[str] | None,
    ) -> tuple[TensorData, TensorData | HeldOut | None]:
        # Rows for training and for validation.
        if rows.grouping and (validation is not None or not self.early_stopping):
            raise ValueError(
                "groups and time choose the rows that are set aside for validation, and none are with a "
                "validation of your own or early_stopping=False: leave groups and time out"
            )
        if validation is None and not self.early_stopping:
            return rows.data, None
        if validation is None:
            train, held_out = self._hold_out(rows, recipe)
            if held_out is None:
                n_rows = int((weights_of(train) > 0).sum())
                warnings.warn(
                    f"{n_rows} rows are too few to hold some out for validation: nothing shows when to "
                    "stop the training, or how good it is. Give more rows, or set early_stopping=False to "
                    "train without validation and without this warning.",
                    TrustWarning,
                    stacklevel=stack_level(),
                )
            return train, held_out
        if not self.early_stopping:
            raise ValueError(
                "validation is used for early stopping: set early_stopping=True, or leave it out"
            )
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise ValueError("validation must be a pair (X, y)")
        x, targets = read(validation[0], reset=False), inputs.targets(validation[1])
        inputs.check_target_names(validation[1], names)
        inputs.check_same_length(x, targets.y)
        return rows.data, rows.validation(x, targets.y)

    def _hold_out(self, rows: Rows, recipe: Recipe) -> tuple[TensorData, TensorData | HeldOut | None]:
        # Of members with a backbone of their own, each holds out its own rows.
        if recipe.n_members > 1 and self.backbone is None:
            held_out = rows.held_out(self.validation_fraction, recipe.n_members, recipe.n_settings)
            return rows.data, held_out
        return rows.split(self.validation_fraction)

    def _build(self, rows: Rows, train: TensorData, seed: int, recipe: Recipe) -> tuple[Design, Method]:
        # The method holds the model, on the device that it is trained on.
        device = checks.device(self.device)
        if self._continues:
            model = warm_start.trainable_copy(self.model_)
            return self.design_, self._method(model, None, recipe.n_draws).to(device)
        # The initial weights come from the seed, and the global random state does not change.
        with seeded(seed):
            own = CustomNetworks.of(self)
            residual = self._method_name == ResidualNCE.name
            blueprint = Blueprint.of(rows, train, self.width, own, self.proposal, recipe, residual)
            model = self._model_class(residual).of(blueprint.networks(), blueprint.units)
            if own.names or blueprint.design.proposal != DEFAULT_PROPOSAL:
                model.check_heads(train.x, train.y)
            return blueprint.design, self._method(model, blueprint, recipe.n_draws).to(device)

    @staticmethod
    def _seen(rows: Rows, seed: int) -> dict[str, SeenInputs]:
        return {"seen_": SeenInputs.of(rows.data.x, seed, rows.grouping)}

    @staticmethod
    def _seen_features(
        model: Model, rows: Rows, seed: int, deadline: Deadline | None
    ) -> dict[str, SeenInputs]:
        # Of a backbone of the user's own. A fit must not be lost where some of its features overflow.
        chosen = some_rows(len(rows.data.x), seed)
        try:
            columns = compared_columns(model, rows.data.x[chosen], deadline)
        except UndefinedError:
            return {}
        return {"seen_": SeenInputs.of(columns, seed, rows.grouping.take(chosen[: len(columns)]))}

    def _deadline(self, start: float) -> Deadline | None:
        if self.max_seconds is None:
            return None
        return Deadline.after(checks.positive("max_seconds", self.max_seconds), start)

    def _trainer(self, recipe: Recipe, seed: int, deadline: Deadline | None) -> Trainer:
        return Trainer(
            recipe,
            self.max_iter,
            self.batch_size,
            self.weight_decay,
            self.n_iter_no_change,
            self.verbose,
            seed,
            deadline,
        )

    def _keep(self, **learned: Any) -> None:
        # At the end and all together, so that a fit that fails changes nothing.
        for name in {*inputs.FORMAT, *RECORDS} & set(vars(self)):
            delattr(self, name)
        for name, value in learned.items():
            setattr(self, name, value)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        return tags
