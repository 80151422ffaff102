"""Peaks: the local maxima of a curve that rise far enough above the lowest points between them."""

from itertools import pairwise


def peaks_and_valleys(log_f: list[float], prominence: float) -> tuple[list[int], list[int]]:
    """Indices of the prominent maxima and of the lowest points between them.

    Args:
        log_f: Values along a line.
        prominence: How far a maximum rises above the pass to a higher one, at least.
    """
    steps = [i for i, value in enumerate(log_f) if i == 0 or value != log_f[i - 1]]
    ends = [*steps[1:], len(log_f)]
    peaks = [
        (start + end - 1) // 2  # a plateau counts once, in its middle
        for start, end in zip(steps, ends, strict=True)
        if (start == 0 or log_f[start - 1] < log_f[start])
        and (end == len(log_f) or log_f[end] < log_f[start])
    ]
    valleys = [min(range(p, q), key=log_f.__getitem__) for p, q in pairwise(peaks)]
    while valleys:
        rises = [
            min(log_f[p], log_f[q]) - log_f[v] for (p, q), v in zip(pairwise(peaks), valleys, strict=True)
        ]
        least = min(range(len(rises)), key=rises.__getitem__)
        if rises[least] >= prominence:
            break
        lower = least if log_f[peaks[least]] < log_f[peaks[least + 1]] else least + 1
        del peaks[lower], valleys[least]
    return peaks, valleys
