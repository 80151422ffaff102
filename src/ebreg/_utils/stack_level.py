"""The stack level of a warning, so that it shows the user's line."""

import os
import sys
from pathlib import Path

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def stack_level() -> int:
    """The ``stacklevel`` of the first frame outside of ebreg, counted from the calling function."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
