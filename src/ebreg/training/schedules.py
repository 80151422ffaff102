"""Learning-rate schedules: pure functions of the share of training done, so that resuming needs no state."""

import math
from collections.abc import Callable


def constant(t: float) -> float:
    """Always 1."""
    return 1.0


def cosine(t: float) -> float:
    """From 1 down to 0."""
    return 0.5 * (1 + math.cos(math.pi * t))


def warm_up(t: float, until: float = 0.05, start: float = 0.05) -> float:
    """Up from ``start`` to 1 in the first part of training, then constant."""
    return min(1.0, start + (1 - start) * t / until)


def one_cycle(t: float, warmup: float = 0.25, start: float = 0.05) -> float:
    """Up from ``start`` to 1 in the first part of training, then down to 0, both along a cosine."""
    if t < warmup:
        return 1 - (1 - start) * cosine(t / warmup)
    return cosine((t - warmup) / (1 - warmup))


def late_decay(t: float, until: float = 0.03, start: float = 0.05, decay_from: float = 0.6) -> float:
    """Up from ``start`` to 1, then constant, and from ``decay_from`` on down to 0 along a cosine."""
    if t < decay_from:
        return warm_up(t, until, start)
    return cosine((t - decay_from) / (1 - decay_from))


# Factor on the learning rate when a share t in [0, 1] of the training is done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": constant,
    "cosine": cosine,
    "late-decay": late_decay,
    "one-cycle": one_cycle,
    "warm-up": warm_up,
}
