"""The stack level of a warning: that of the caller's own line."""

import os
import sys
from pathlib import Path

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def stack_level() -> int:
    """How far up the caller is, counted from the function that asks: the first frame outside of ebreg."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
