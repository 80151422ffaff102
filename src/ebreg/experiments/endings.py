"""How the processes of a table end: workers with the command that started them, and none of them late."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType

_SECONDS_BETWEEN_LOOKS = 2.0


@contextmanager
def end_on_terminate() -> Iterator[None]:
    """Let SIGTERM unwind this process, so that it ends its workers; left alone, it would end without them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return

    def end(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@lru_cache(maxsize=1)  # once a process
def end_with(parent: int) -> None:
    """End this process soon after its parent is gone, as after SIGKILL; nothing if it is the parent itself.

    Runs are written whole or not at all, so the end may come at any moment.
    """
    if os.getpid() == parent:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
