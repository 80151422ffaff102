"""Rows: the data of one fit, with tied targets spread over their rounding intervals."""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg._utils.stack_level import stack_level
from ebreg.errors import TiesWarning
from ebreg.estimators import defaults
from ebreg.estimators.grouping import Grouping, Split
from ebreg.estimators.ties import Ties
from ebreg.training import HeldOut
from ebreg.training.batches import TensorData
from ebreg.units import Bounds


@dataclass(frozen=True)
class Rows:
    """The rows of a fit.

    Attributes:
        data: Inputs, targets whose ties are spread, and weights, without rows of weight 0.
        bounds: Of the targets, in the user's units.
        ties: Of the targets.
        seed: Of the spreading and of the split.
        grouping: Which rows belong together, and are not split.
    """

    data: TensorData
    bounds: Bounds
    ties: Ties
    seed: int
    grouping: Grouping

    @classmethod
    def of(
        cls,
        x: Tensor,
        y: Tensor,
        weights: Tensor | None,
        bounds: Bounds,
        seed: int,
        grouping: Grouping | None = None,
    ) -> "Rows":
        """Inputs (n, ...), targets (n, D) and weights (n,); warns where targets are tied."""
        data = TensorData(x, y, weights)
        grouping = grouping or Grouping(len(data))
        if data.weights is not None:
            # Rows of weight 0 must not influence anything, such as the units.
            used = data.weights > 0
            data, grouping = data.take(used), grouping.take(used)
        bounds.check("y", data.y)
        ties = Ties.among(data.x, data.y)
        if ties:
            _warn_of_ties()
        spread = TensorData(data.x, ties.spread(data.y, bounds, seed), data.weights)
        return cls(spread, bounds, ties, seed, grouping)

    def split(self, fraction: float | str) -> tuple[TensorData, TensorData | None]:
        """Rows for training and for validation; None where there are too few to split."""
        n_validation = defaults.n_validation(len(self.data), fraction)
        if n_validation == 0:
            return self.data, None
        train, validation = self.grouping.split(n_validation, self.seed)
        return self.data.take(train), self.data.take(validation)

    def held_out(self, fraction: float | str, n_members: int, n_settings: int) -> HeldOut | None:
        """Validation rows of each member, the same for one of each setting; None where there are too few."""
        n = len(self.data)
        n_validation = defaults.n_validation(n, fraction)
        if n_validation == 0:
            return None
        if not self.grouping:
            return HeldOut.at_random(n_members, n, n_validation, self.seed, n_settings)
        n_splits = -(-n_members // n_settings)
        splits = self.grouping.splits(n_validation, n_splits, self.seed)
        splits = [self._shuffled(split) for split in splits]
        return HeldOut.of_splits([splits[i // n_settings] for i in range(n_members)])

    def _shuffled(self, split: Split) -> Split:
        # Where only the first of many validation rows are used, they have to be from all groups.
        train, validation = split
        generator = torch.Generator().manual_seed(self.seed)
        return train, validation[torch.randperm(len(validation), generator=generator)]

    def validation(self, x: Tensor, y: Tensor) -> TensorData:
        """Validation rows that the user gave, (n, ...) and (n, D), with ties spread in the same way."""
        checks.shape("y of validation", y, ("n", self.data.y.shape[1]))
        self.bounds.check("y of validation", y)
        return TensorData(x, self.ties.spread(y, self.bounds, self.seed))


def _warn_of_ties() -> None:
    warnings.warn(
        "many targets have the same value (rounded, integer or clipped?). The fit spreads each over its "
        "rounding interval: means, quantiles and samples are right to within that interval, but a log "
        "density depends on its width. Compare models by metrics.rounded_nll or metrics.crps instead.",
        TiesWarning,
        stacklevel=stack_level(),
    )
