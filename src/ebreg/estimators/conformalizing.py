"""Conformalizing: intervals and regions of a regressor, and their calibration on rows."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import Tensor

from ebreg._utils import checks
from ebreg.distributions import Region
from ebreg.estimators import inputs
from ebreg.estimators.conformal import Conformal
from ebreg.estimators.grouping import Grouping
from ebreg.estimators.prediction import Prediction
from ebreg.predictive.nested_intervals import interval_scores
from ebreg.predictive.nested_regions import region_scores
from ebreg.predictive.protocol import Predictive


class Conformalizing:
    """Mixed into regressors: ``conformalize``, and the sets whose coverage it calibrates."""

    model_: Any
    conformal_: Conformal
    random_state: Any
    early_stopping: bool
    target_names_: list[str] | None

    def conformalize(
        self,
        X: Any,
        y: Any,
        cv: int | None = None,
        groups: Any = None,
        time: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Calibrate :meth:`predict_interval` and :meth:`predict_region`: they then cover as often as asked.

        With rows that were not used in ``fit``, a set for a new row like them covers with at least the
        probability asked for, whatever the model has learned (split conformal prediction). A call that fails
        leaves the regressor as it was, and a new ``fit`` removes the calibration.

        Args:
            X: Inputs of calibration rows, which ``fit`` has not seen; with ``cv`` those of the fit.
            y: Their targets.
            cv: None, or the number of folds: copies of the regressor are fitted without each fold, and scored
                on it. The fitted model stays. No rows are set aside, and the guarantee is weaker.
            groups: A label for each row, (n,): sets then cover rows of new groups; each group counts once.
            time: With ``cv``, a number or a date for each row, (n,): each copy is scored on later rows.
            sample_weight: With ``cv``, the weights of the rows in the fits, (n,); rows of weight 0 are left
                out, and the others count the same in the calibration.

        Returns:
            The regressor itself.
        """
        x, targets = self._calibration_rows(X, y)
        grouping = Grouping.of(groups, time, len(x))
        if cv is None:
            for name, given, use in (
                ("time", time, "calibrate on the latest rows, and fit on the earlier ones"),
                ("sample_weight", sample_weight, "calibration rows all count the same"),
            ):
                if given is not None:
                    raise ValueError(f"{name} is for cv=..., where models are fitted: leave it out; {use}")
            scores = _scores(self.predict_distribution(X), targets)
        else:
            weights = inputs.weights(sample_weight, len(x))
            used = torch.arange(len(x)) if weights is None else weights.nonzero()[:, 0]
            weights = None if weights is None else weights[used]
            grouping = grouping.take(used)
            scores, tested = self._scores_of_folds(x[used], targets[used], grouping, weights, _n_folds(cv))
            grouping = grouping.take(tested)
        self.conformal_ = Conformal.of(scores[:, :-1], scores[:, -1], grouping)
        return self

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central interval with probability ``coverage``, shape (n, 2) or (n, 2, D).

        Its tails are equal. After :meth:`conformalize` it is as wide as coverage needs, for each target by
        itself.
        """
        dist = self.predict_distribution(X)
        if not hasattr(self, "conformal_"):
            return dist.interval(coverage)
        coverage = checks.fraction("coverage", coverage)
        bounds = self.model_.bounds
        return dist.interval_of_scores(self.conformal_.interval_score(coverage), bounds.low, bounds.high)

    def predict_region(self, X: Any, coverage: float = 0.9) -> Region:
        """Highest-density region with probability ``coverage``, of all targets together.

        After :meth:`conformalize` it is as large as coverage needs. ``region.contains(y)`` says whether
        targets lie in it; with one target ``region.intervals`` are its parts in each row.
        """
        dist = self.predict_distribution(X)
        coverage = checks.fraction("coverage", coverage)
        if not hasattr(self, "conformal_"):
            return dist.highest_density_region(coverage)
        return dist.region_of_score(self.conformal_.region_score(coverage), coverage)

    def predict_distribution(self, X: Any) -> Prediction:
        """The whole distribution."""
        raise NotImplementedError  # abstract

    def _inputs_of(self, X: Any) -> Tensor:
        raise NotImplementedError  # abstract

    def _calibration_rows(self, X: Any, y: Any) -> tuple[Tensor, Tensor]:
        # Inputs (n, ...) and targets (n, D), like those of the fit.
        x, targets = self._inputs_of(X), inputs.targets(y).y
        inputs.check_target_names(y, self.target_names_)
        inputs.check_same_length(x, targets)
        D = self.model_.n_targets
        if targets.shape[1] != D:
            raise ValueError(f"y must have {D} target{'s' * (D > 1)}, as in fit; got {targets.shape[1]}")
        self.model_.bounds.check("y", targets)
        return x, targets

    def _scores_of_folds(
        self, x: Tensor, y: Tensor, grouping: Grouping, weights: Tensor | None, n_folds: int
    ) -> tuple[Tensor, Tensor]:
        # The scores of rows that some fold has left out, (n, D + 1), and which rows these are, in order.
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        folds = grouping.folds(n_folds, seed)
        scores = []
        for train, test in folds:
            labels = self._labels(grouping.take(train))
            model: Any = clone(self)
            sample_weight = None if weights is None else weights[train]
            model.fit(x[train], y[train], sample_weight=sample_weight, **labels)
            if model.interrupted_:
                raise KeyboardInterrupt  # the fit has stopped, and its model would be a bad one
            scores.append(_scores(model.predict_distribution(x[test]), y[test]))
        tested = torch.cat([test for _, test in folds])
        order = tested.argsort()
        return torch.cat(scores)[order], tested[order]

    def _labels(self, grouping: Grouping) -> dict[str, Tensor]:
        # How a fold's fit chooses its validation rows: as the folds were, where it can.
        if not self.early_stopping:
            return {}
        for name, labels in (("groups", grouping.labels), ("time", grouping.time)):
            if labels is not None:
                return {name: labels} if len(labels.unique()) > 1 else {}
        return {}


def _n_folds(cv: Any) -> int:
    if isinstance(cv, bool) or not isinstance(cv, int | np.integer) or cv < 2:
        raise ValueError(f"cv must be None or the number of folds, a whole number of at least 2; got {cv!r}")
    return int(cv)


def _scores(prediction: Prediction, y: Tensor) -> Tensor:
    # Of the intervals of each target and of the region, (n, D + 1).
    def both(p: Predictive, y: Tensor) -> Tensor:
        return torch.cat([interval_scores(p, y), region_scores(p, y)[:, None]], dim=1)

    return torch.from_numpy(prediction.apply(both, y)).double()
