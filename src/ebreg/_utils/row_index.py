"""The index of rows: one number keeps the axis."""

from typing import Any


def row_index(rows: Any) -> Any:
    """An index of the first axis that keeps it: a whole number becomes a list of one."""
    return [rows] if hasattr(rows, "__index__") and not hasattr(rows, "shape") else rows
