"""Errors and warnings of ebreg: each message says what is wrong and what to do."""


class EbregError(RuntimeError):
    """Base class of the errors of ebreg."""


class CheckpointError(EbregError):
    """A checkpoint that cannot be used."""


class TrainingError(EbregError):
    """A training that cannot continue."""


class UndefinedError(EbregError, ValueError):
    """A result that is undefined, because its inputs are not finite."""


class NetworkError(EbregError, TypeError):
    """A network of the user's own, or a function that should make one, that is none."""


class ModelFileError(EbregError):
    """A model folder that cannot be used."""


class TrustWarning(UserWarning):
    """Predictions that are less accurate than requested."""


class TiesWarning(UserWarning):
    """Targets with many equal values, for which a likelihood is hard to interpret."""
