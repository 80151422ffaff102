"""Random numbers of a single image.

They depend on the seed and on the index of the image, not on the size of the set, so a longer set begins with
the shorter one. They come from NumPy's legacy ``RandomState``, which never changes.
"""

from numpy.random import RandomState


def random_numbers(seed: int, index: int) -> RandomState:
    """The random generator of image ``index`` in the set of a seed."""
    return RandomState([seed, index])
