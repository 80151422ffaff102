"""Errors that are the program's answer, not its failure: the message says what is wrong and what to do."""


class EbregError(RuntimeError):
    """Base of the library's own errors."""


class CheckpointError(EbregError):
    """A checkpoint that cannot be used."""


class TrainingError(EbregError):
    """A training that cannot go on."""


class UndefinedError(EbregError, ValueError):
    """A question that has no answer, because the numbers behind it are not finite."""


class ModelFileError(EbregError):
    """A model folder that cannot be used."""


class TrustWarning(UserWarning):
    """Answers that are rougher than they look."""


class TiesWarning(UserWarning):
    """Targets that repeat each other, for which a likelihood means little."""
