"""Deadline: when a training has to end."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """A stretch of time that a training may take.

    Attributes:
        start: Its start, on the clock of ``time.monotonic``.
        end: Its end.
    """

    start: float
    end: float

    @classmethod
    def after(cls, seconds: float, start: float | None = None) -> "Deadline":
        """So many seconds from a start; None: from now."""
        start = time.monotonic() if start is None else start
        return cls(start, start + seconds)

    @property
    def share(self) -> float:
        """How much of it has passed, from 0 to 1."""
        length = self.end - self.start
        return 1.0 if length <= 0 else min(1.0, (time.monotonic() - self.start) / length)

    @property
    def seconds_left(self) -> float:
        """Until its end; less than 0 after it."""
        return self.end - time.monotonic()

    @property
    def has_passed(self) -> bool:
        """Whether its end has come."""
        return self.seconds_left <= 0

    def part(self, share: float) -> "Deadline":
        """From now until a share of it has passed."""
        return Deadline(time.monotonic(), self.start + share * (self.end - self.start))
