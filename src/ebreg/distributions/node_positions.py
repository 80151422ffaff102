"""NodePositions: mixtures of one target at many values of each row, in single precision."""

from torch import Tensor

from ebreg.distributions import normal

# Results smaller than these would be denormal numbers, with which a processor is ten times slower.
_LOWEST_EXPONENT, _FARTHEST_LEVEL, _LEAST_WEIGHT = -80.0, 30.0, 1e-20


class NodePositions:
    """Log densities and levels of mixtures, as ``log_prob`` and ``levels`` give them, to seven digits.

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
        scales = scales.T / unit
        self._centre, self._unit = centre, unit
        self._means, self._rest = (part.contiguous() for part in _in_two((means.T - centre) / unit))
        self._slopes = (normal.LOGISTIC / scales).float().contiguous()
        self._log_norms = (log_weights.T - scales.log() - normal.LOG_SQRT_2PI).float().contiguous()
        self._weights = logits.T.exp().float().clamp_min(_LEAST_WEIGHT).contiguous()

    def log_prob(self, values: Tensor) -> Tensor:
        """Log densities: (N, B) -> (N, B), float32."""
        return self._log_prob(self._distances(values))

    def log_prob_and_levels(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Log densities and levels: (N, B) -> (N, B) each, float32."""
        z = self._distances(values)
        shares = z.clamp(-_FARTHEST_LEVEL, _FARTHEST_LEVEL).sigmoid_().mul_(self._weights[:, None])
        return self._log_prob(z), shares.sum(dim=0)

    def __getitem__(self, rows: Tensor) -> "NodePositions":
        return self.of_block_rows(rows, 1)

    def of_block_rows(self, rows: Tensor, n_blocks: int) -> "NodePositions":
        """Rows with these numbers in each block, where the rows are n blocks of one size."""
        part = object.__new__(NodePositions)
        for name, values in vars(self).items():
            blocks = values.unflatten(-1, (n_blocks, -1))
            setattr(part, name, blocks[..., rows].flatten(-2).contiguous())
        return part

    def _distances(self, values: Tensor) -> Tensor:
        # From the means, in logistic units, (K, N, B): near a narrow component far from the centre too.
        values, rest = _in_two((values - self._centre) / self._unit)
        z = (values - self._means[:, None]).add_(rest - self._rest[:, None])
        return z.mul_(self._slopes[:, None])

    def _log_prob(self, z: Tensor) -> Tensor:
        # Overwrites the distances.
        joint = z.mul_(z).mul_(-0.5 / normal.LOGISTIC**2).add_(self._log_norms[:, None])
        top = joint.amax(dim=0)
        return joint.sub_(top).clamp_(min=_LOWEST_EXPONENT).exp_().sum(dim=0).log_().add_(top)


def _in_two(values: Tensor) -> tuple[Tensor, Tensor]:
    # Numbers in double precision as sums of two in single precision.
    rounded = values.float()
    return rounded, (values - rounded).float()
