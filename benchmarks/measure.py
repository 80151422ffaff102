"""Time and peak memory of callables, and the tables of benchmarks."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class Row:
    """One comparison of ours with another way to the same result."""

    what: str
    ours_ms: float
    theirs_ms: float
    target: float = math.nan
    """The ratio of times that we want at least; NaN where nothing is wanted but to know."""
    memory_ratio: float = math.nan
    """Our peak memory divided by theirs."""
    difference: float = math.nan
    """Largest absolute difference between the results."""

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.theirs_ms / self.ours_ms


def times_ms(*calls: Callable[[], object], turns: int = 7, seconds: float = 0.3) -> tuple[float, ...]:
    """Median wall time of each call in milliseconds.

    The calls take turns, so that a drift of the machine's speed falls on all of them alike. In its turn a
    call is repeated: what is timed mostly follows itself, as in use, and finds caches and memory accordingly.

    Args:
        calls: What is timed.
        turns: Turns of each call, after one that is not counted.
        seconds: How long a turn lasts at least; a longer call is made once.

    Returns:
        One time for each call.
    """
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(1 + turns):
        for call, seen in zip(calls, times, strict=True):
            in_turn = list(_durations(call, seconds))
            seen.extend(in_turn if turn > 0 else [])
    return tuple(1e3 * statistics.median(seen) for seen in times)


def _durations(call: Callable[[], object], seconds: float) -> Iterator[float]:
    begin = time.perf_counter()
    while (start := time.perf_counter()) - begin < seconds:
        call()
        yield time.perf_counter() - start


def peak_memory(call: Callable[[], object]) -> int:
    """Largest number of bytes that a call holds at a time, above what was held before it.

    The allocations and releases of tensors on the CPU are read in their order from torch's profiler.

    Args:
        call: What is measured; run once before, so that lasting buffers are not counted.

    Returns:
        The peak in bytes.
    """
    call()
    # The profiler notes memory events from the moment it starts; the result must die inside it.
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        call()
    events = prof.profiler.kineto_results.events()  # type: ignore[union-attr]
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def print_table(rows: Iterable[Row]) -> None:
    """Print the rows, with a mark where a target is missed."""
    titles = ("what", "ours ms", "theirs ms", "times faster", "wanted", "memory", "max |diff|")
    lines = [titles]
    for row in rows:
        lines.append(
            (
                row.what,
                f"{row.ours_ms:.2f}",
                f"{row.theirs_ms:.2f}",
                f"{row.ratio:.3g}" + (" !" if row.ratio < row.target else ""),
                "" if math.isnan(row.target) else f"{row.target:.1f}",
                "" if math.isnan(row.memory_ratio) else f"{row.memory_ratio:.2f}",
                "" if math.isnan(row.difference) else f"{row.difference:.1e}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        print("  ".join(cells))


def markdown_table(titles: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Cells as a table of Markdown."""
    lines = [titles, ["---"] * len(titles), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
