"""CPU time of fits and predictions against rows, columns, targets, draws and members.

``python -m benchmarks.growth --out results/growth``. One factor varies, the others are at the base. Every
finished measurement is a row of ``runs.csv`` and is not repeated. ``growth.md`` has the tables, and
``growth.png`` is the picture.
"""
