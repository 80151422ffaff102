"""The index of rows: one number keeps the axis."""

import operator
from typing import Any


def row_index(rows: Any) -> Any:
    """An index of the first axis that keeps it: a whole number becomes a list of one."""
    is_number = hasattr(rows, "__index__") and getattr(rows, "shape", ()) == ()
    return [operator.index(rows)] if is_number else rows
