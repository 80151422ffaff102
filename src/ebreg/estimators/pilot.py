"""The pilot: a short training that is enough for most tables, and shows whether a long one is worth its time.

How many steps a table needs shows only in training. Where targets are noisy, members overfit within a
short training, and a high learning rate that falls to 0 serves them well. Where there is little noise, every
further step makes them better, and a long training at a lower rate ends lower; it starts anew, because
members that have settled do not leave the place.
"""

from ebreg.estimators.recipe import Pace
from ebreg.training import Deadline
from ebreg.training.loop import Training

# A member still learns if its lowest NLL is in this last share of the training,
_END = 0.15
# and the training was too short if this share of the members still learn, and its second half has lowered
# their mean NLL by so many nats.
_STILL_LEARNING = 0.5
_GAIN = 0.04
# A long training with less time than this many times that of the pilot would not come far enough.
_LEAST_TIME = 2.0


def goes_on(training: Training, deadline: Deadline | None) -> bool:
    """Whether a long training follows a pilot of several members.

    Args:
        training: The pilot.
        deadline: When all training has to end, if ever.
    """
    if training.interrupted or training.out_of_time or not isinstance(training.best_epoch, list):
        return False
    if deadline is not None and deadline.seconds_left < _LEAST_TIME * training.seconds:
        return False
    n_epochs = len(training.history)
    n_learning = sum(epoch + 1 > (1 - _END) * n_epochs for epoch in training.best_epoch)
    nlls = {
        i: entry["validation_nll"] for i, entry in enumerate(training.history) if "validation_nll" in entry
    }
    middle = min(nlls, key=lambda epoch: abs(epoch + 1 - n_epochs / 2))
    gain = nlls[middle] - nlls[max(nlls)]
    return n_learning >= _STILL_LEARNING * len(training.best_epoch) and gain > _GAIN


def better(first: tuple[Training, Pace], second: tuple[Training, Pace]) -> tuple[Training, Pace]:
    """Of two trainings the one with the lower mean NLL on the members' validation rows.

    The second may have been interrupted before its first validation.
    """
    is_known = second[0].best_epoch is not None
    return second if is_known and kept_nll(second[0]) < kept_nll(first[0]) else first


def kept_nll(training: Training) -> float:
    """NLL of the validation rows with the weights that were kept; the mean over the members."""
    nlls = kept_nlls(training)
    return sum(nlls) / len(nlls)


def kept_nlls(training: Training) -> list[float]:
    """The same of each member; one number where members share their validation rows."""
    best, history = training.best_epoch, training.history
    if not isinstance(best, list):
        return [history[-1 if best is None else best]["validation_nll"]]
    return [history[epoch][f"validation_nll_{i}"] for i, epoch in enumerate(best)]
