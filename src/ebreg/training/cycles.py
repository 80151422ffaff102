"""Cycles: a short cycle of the learning rate, and a long one for a training that still gains at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# A member is still learning if its lowest NLL is in this last share of the first cycle,
_END = 0.15
# and the training goes on if half of the members are, and the second half of the cycle has lowered their mean
# NLL by so many nats.
_STILL_LEARNING = 0.5
_GAIN = 0.04


@dataclass(frozen=True)
class Cycles:
    """One or two cycles of the learning rate.

    How many steps a table needs shows only in training: on noisy targets members overfit within the first
    cycle, and where the targets have little noise every further step makes them better. So the first cycle is
    short, and decides.

    Attributes:
        epochs: Of all cycles together.
        first: Of the first cycle; as many as ``epochs`` if there is only one.
    """

    epochs: int
    first: int

    def share(self, n_epochs: float) -> float:
        """How much of the cycle under way is done after some epochs, from 0 to 1."""
        if n_epochs < self.first or self.first == self.epochs:
            return n_epochs / self.first
        return (n_epochs - self.first) / (self.epochs - self.first)

    def is_decided(self, n_epochs: int) -> bool:
        """Whether this is the end of a first cycle of two."""
        return n_epochs == self.first < self.epochs

    def is_second(self, n_epochs: int) -> bool:
        """Whether the first cycle is over."""
        return n_epochs > self.first

    def is_learning(self, lowest_epoch: int | None) -> bool:
        """Whether a member is still learning at the end of the first cycle.

        Args:
            lowest_epoch: Its epoch with the lowest validation NLL, counted from 0.
        """
        return lowest_epoch is not None and lowest_epoch + 1 > (1 - _END) * self.first

    def goes_on(self, lowest_epochs: Sequence[int | None], nlls: Mapping[int, float]) -> bool:
        """Whether a second cycle follows.

        Args:
            lowest_epochs: Of each member, the epoch with the lowest validation NLL.
            nlls: Their mean validation NLL, by epoch.
        """
        n_learning = sum(self.is_learning(epoch) for epoch in lowest_epochs)
        middle = min(nlls, key=lambda epoch: abs(epoch + 1 - self.first / 2))
        gain = nlls[middle] - nlls[max(nlls)]
        return n_learning >= _STILL_LEARNING * len(lowest_epochs) and gain > _GAIN
