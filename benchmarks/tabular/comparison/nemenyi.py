"""The Nemenyi test on average ranks (Demšar, 2006): critical difference, and groups that do not differ."""

import math
from collections.abc import Mapping

from scipy.stats import studentized_range

ALPHA = 0.05


def critical_difference(n_methods: int, n_tables: int, alpha: float = ALPHA) -> float:
    r"""The difference of average ranks from which on two methods differ.

    .. math:: \mathrm{CD} = q_\alpha \sqrt{k (k + 1) / (6 N)}

    with k methods and N tables. :math:`q_\alpha` is the quantile of the studentized range with infinitely
    many degrees of freedom, divided by :math:`\sqrt 2`.
    """
    q = studentized_range.ppf(1 - alpha, n_methods, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_tables)))


def groups(average: Mapping[str, float], difference: float) -> list[list[str]]:
    """Largest sets of two or more methods whose average ranks differ by no more than a critical difference.

    Args:
        average: Average rank of each method.
        difference: The critical difference.

    Returns:
        The sets, each from its lowest rank to its highest; the set of the lowest rank first.
    """
    names = sorted(average, key=lambda name: average[name])
    found: list[list[str]] = []
    end = 0
    for i, first in enumerate(names):
        near = [name for name in names[i:] if average[name] - average[first] <= difference]
        if len(near) > 1 and i + len(near) > end:
            found.append(near)
            end = i + len(near)
    return found
