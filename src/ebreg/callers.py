"""Whose line a warning points to."""

import os
import sys
from pathlib import Path


def frames_inside() -> int:
    """How far up the caller is, counted from who asks: the first frame outside of this package."""
    package = f"{Path(__file__).parent}{os.sep}"
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    return level
