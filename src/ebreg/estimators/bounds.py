"""Bounds of the targets, as users write them."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch

from ebreg.units import Bounds


def parse_bounds(bounds: Any, n_targets: int) -> Bounds:
    """Bounds from (low, high), or from one such pair for each target; None is no bound."""
    if bounds is None:
        return Bounds.none(n_targets)
    given = bounds.tolist() if hasattr(bounds, "tolist") else bounds  # arrays and tensors
    pairs = [given] if _is_pair(given) else list(given) if isinstance(given, Sequence) else []
    if len(pairs) == 1:
        pairs = pairs * n_targets
    if len(pairs) != n_targets or not all(_is_pair(pair) for pair in pairs):
        raise ValueError(
            f"bounds must be a pair (low, high), or one pair for each of the {n_targets} targets, with None "
            f"where there is no bound; got {bounds!r}"
        )
    low = [-torch.inf if pair[0] is None else float(pair[0]) for pair in pairs]
    high = [torch.inf if pair[1] is None else float(pair[1]) for pair in pairs]
    return Bounds(torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64))


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(bound is None or isinstance(bound, Real) for bound in value)
    )
