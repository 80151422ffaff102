"""The page ``docs/comparison.md`` with its two pictures, from finished runs.

Run it from the root of the project, after ``python -m benchmarks.tabular``; it needs matplotlib and scipy, of
the extra ``plots``::

    python -m benchmarks.tabular.comparison --runs results/tabular --out docs

It writes ``comparison.md``, ``images/critical-difference.png`` and ``images/cost-quality.png``. The prose of
the page is in ``page.md``; every number and every statement about results is computed from the runs.

**Methods.** Those that have been run on all six tables; not those of version 0.1. One seed.

**Splits.** Every mean is over all splits of its method on the table, and a method with fewer splits than
others is marked with their number. Ranks are by the means over the splits that the methods share. A method
with fewer than three splits on a table does not reduce them: its rank is by the mean of its own splits, and
the page says so. See :class:`benchmarks.tabular.comparison.selection.Selection`.
"""
