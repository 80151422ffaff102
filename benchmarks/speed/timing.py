"""Seconds of calls, on a number of threads."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from threadpoolctl import threadpool_limits


def cpu_seconds(call: Callable[[], Any], repeats: int = 1) -> float:
    """Of a call in this process, all threads together; the least of several calls."""
    return min(_seconds(call, time.process_time) for _ in range(repeats))


def wall_seconds(call: Callable[[], Any]) -> float:
    """Of a call, by the clock on the wall."""
    return _seconds(call, time.perf_counter)


def _seconds(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


@contextlib.contextmanager
def threads(n: int) -> Iterator[None]:
    """Within this context torch and linear algebra compute on so many threads."""
    before = torch.get_num_threads()
    with threadpool_limits(n):
        torch.set_num_threads(n)
        try:
            yield
        finally:
            torch.set_num_threads(before)
