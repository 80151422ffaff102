"""A fit whose energy corrects its mixture.

An energy without a correction answers as its mixture, which is faster. Whether validation rows support a
correction depends on the seed of the fit.
"""

from collections.abc import Callable
from typing import Any

N_SEEDS = 20


def corrected(fit: Callable[[int], Any], required: bool = True) -> tuple[Any, int]:
    """The first fit of seeds 0, 1, 2, ... that has a correction.

    Args:
        fit: Gives the fitted regressor of a seed.
        required: Whether to look further than seed 0.

    Returns:
        The fitted regressor, and its seed: 0 for a version that cannot tell.

    Raises:
        RuntimeError: If none of 20 fits has one.
    """
    for seed in range(N_SEEDS):
        model = fit(seed)
        if not required or n_corrected(model) != 0:
            return model, seed
    raise RuntimeError(f"none of {N_SEEDS} fits has a correction of its mixture")


def n_corrected(model: Any) -> int | None:
    """Number of members with a correction; None for a regressor, or a version, without corrections."""
    is_zero = getattr(getattr(model.model_, "energy", None), "is_zero", None)
    return None if is_zero is None else int((~is_zero).sum())
