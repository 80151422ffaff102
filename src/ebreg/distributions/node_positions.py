"""NodePositions: mixtures of one target at many values of each row, in single precision."""

import copy

import torch
from torch import Tensor

from ebreg.distributions import normal

# Results below these would be denormal numbers, with which a processor is a hundred times slower.
_LOWEST_EXPONENT, _FARTHEST_LEVEL, _LEAST_WEIGHT = -69.0, 30.0, 1e-20
_STEEPEST = 1e15
# exp(a) is e^s sigmoid(a - s) for a <= 0, to e^-s: torch computes it in a third of the time.
_SHIFT = 17.0


class NodePositions:
    """Log densities and levels of mixtures, as ``log_prob`` and ``levels`` give them, to seven digits.

    A value is given as its *distance* from the centre of its row, in the unit of its row, in single
    precision; and where values were not made from such distances, with what rounding took from them.

    Components come first, (K, B), then values, (N, B): long runs of memory. What is called for some tens of
    rows at a time stays in the cache.

    Args:
        logits: Log weights of the components, summing to 1, shape (B, K).
        log_weights: Those of their densities, which differ from them at bounds, shape (B, K).
        means: Shape (B, K).
        scales: Shape (B, K).
        centre: A value near the mass of each row, shape (B,).
        unit: A distance for each row, shape (B,), of which scales are no tiny part; densities are in it.
    """

    def __init__(
        self,
        logits: Tensor,
        log_weights: Tensor,
        means: Tensor,
        scales: Tensor,
        centre: Tensor,
        unit: Tensor,
    ):
        self.centre, self.unit = centre, unit
        scales, means = scales.T / unit, (means.T - centre) / unit
        slopes = (normal.LOGISTIC / scales).clamp(max=_STEEPEST)  # the square of a distance is finite
        self._means = means.float().contiguous()
        # What rounding took from the means: near a narrow component far from the centre it counts.
        self._rests = (slopes * (self._means - means)).float().contiguous()
        self._slopes = slopes.float().contiguous()
        self._log_norms = (log_weights.T - scales.log() - normal.LOG_SQRT_2PI).float().contiguous()
        self._weights = logits.T.exp().float().clamp_min(_LEAST_WEIGHT).contiguous()

    def __len__(self) -> int:
        """K."""
        return len(self._means)

    def distances(self, values: Tensor) -> Tensor:
        """Of values (N, B) in float64 -> (N, B), float32."""
        return ((values - self.centre) / self.unit).float()

    def distances_and_rests(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and what rounding took from them."""
        exact = (values - self.centre) / self.unit
        distances = exact.float()
        return distances, (exact - distances).float()

    def log_prob(self, distances: Tensor, rests: Tensor | None = None) -> Tensor:
        """Log densities: (N, B) -> (N, B), float32."""
        z = self._logistic(distances, rests)
        return _log_sum_exp(torch.addcmul(self._log_norms[:, None], z, z, value=_SQUARE, out=z))

    def log_prob_and_levels(self, distances: Tensor) -> tuple[Tensor, Tensor]:
        """Log densities and levels: (N, B) -> (N, B) each, float32."""
        z = self._logistic(distances)
        joint = torch.addcmul(self._log_norms[:, None], z, z, value=_SQUARE)
        shares = z.clamp_(-_FARTHEST_LEVEL, _FARTHEST_LEVEL).sigmoid_()
        return _log_sum_exp(joint), shares.mul_(self._weights[:, None]).sum(dim=0)

    def of_block_rows(self, rows: Tensor, n_blocks: int) -> "NodePositions":
        """Rows with these numbers in each block, where the rows are n blocks of one size."""
        part = copy.copy(self)
        for name, values in vars(self).items():
            blocks = values.unflatten(-1, (n_blocks, -1)).index_select(-1, rows)
            setattr(part, name, blocks.flatten(-2))
        return part

    def _logistic(self, distances: Tensor, rests: Tensor | None = None) -> Tensor:
        # From the means, in logistic units, (K, N, B).
        z = distances - self._means[:, None]
        z = z if rests is None else z.add_(rests)
        return torch.addcmul(self._rests[:, None], z, self._slopes[:, None], out=z)


# A log density falls by this times the square of a distance in logistic units.
_SQUARE = -0.5 / normal.LOGISTIC**2


def _log_sum_exp(values: Tensor) -> Tensor:
    # Over the first axis; the values are overwritten.
    top = values.amax(dim=0).add_(_SHIFT)
    return values.sub_(top).clamp_(min=_LOWEST_EXPONENT - _SHIFT).sigmoid_().sum(dim=0).log_().add_(top)
