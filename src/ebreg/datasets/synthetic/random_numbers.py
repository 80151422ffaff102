"""Random numbers for one image at a time.

They come from the seed and the image's place in the set, never from the size of the set, so a longer set
begins with the shorter one. NumPy's legacy ``RandomState`` is used because its stream is frozen for good.
"""

from numpy.random import RandomState


def stream(seed: int, index: int) -> RandomState:
    """The random numbers of image ``index`` of the set with that seed."""
    return RandomState([seed, index])
