"""Fits and predictions on a table of 2,000 rows and 12 columns, beside scikit-learn and NGBoost.

``python -m benchmarks.speed`` measures CPU seconds in one process and one thread, wall-clock seconds of fits
on two threads, and prints ratios. With ``--before FOLDER``, a checkout of another version, the predictions of
that version are measured too, by the same code in a process of its own.
"""

from benchmarks.speed.data import table

__all__ = ["table"]
