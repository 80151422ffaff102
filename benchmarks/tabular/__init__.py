"""Regression tables: the estimators of ebreg beside those of other libraries, on the same splits.

Run it from the root of the project, after ``pip install -e '.[bench]'``::

    python -m benchmarks.tabular                                  # tables that come with scikit-learn
    python -m benchmarks.tabular --data FOLDER                    # tables in files, on splits 0 to 4
    python -m benchmarks.tabular --data FOLDER --tables yacht --methods NGBoost EnergyRegressor
    python -m benchmarks.tabular --report-only                    # write the report of the stored runs again

**Resumable.** Every finished run, of a method on a split of a table with a seed, is a row of ``runs.csv`` in
``--out``. It is written at once and never repeated. Stop the command at any time and start it again. Several
processes may write to one folder. ``tabular.md`` is the report and ``summary.csv`` holds its numbers.

**Data.** FOLDER has a folder for each table: ``data.txt`` (numbers, one row a line), ``index_features.txt``
and ``index_target.txt`` (columns, counted from 0), and ``index_train_i.txt`` and ``index_test_i.txt`` (rows
of split i). Without ``--data``: diabetes and Friedman's three functions, with nine tenths of the rows for
training.

**Methods.** :mod:`benchmarks.tabular.registry` lists them; each rival is a file of ``rivals`` whose settings
are the fields of a dataclass. In every fit, numbers of iterations, sizes of leaves and learning rates are
chosen on rows held out of the training set, never on test rows. Trees and the flow are then fitted again to
all training rows; the members of the deep ensemble hold out different rows. NGBoost has the protocol of its
authors and, in a second row, the defaults of its library.

**Scores.** :mod:`benchmarks.tabular.scores`: all methods answer by the same means, quantiles and, where they
have one, density, in the units of the file. CPU seconds are those of one thread.

**Comparison.** ``python -m benchmarks.tabular.comparison`` writes the page ``docs/comparison.md``.

**Versions.** ``--label NAME`` adds a name to the estimators of ebreg, so that several versions stand side by
side. To measure an older checkout, put it first::

    PYTHONPATH=OLD/src python -m benchmarks.tabular --methods EnergyRegressor --label 0.1

**Add a method.** An estimator of ebreg with other arguments is a row in ``ours.py``. A rival is a frozen
dataclass with ``name``, ``packages`` and ``fit(X, y, seed)``, which returns a function from X to an object
with ``mean``, ``log_prob(y)`` and ``quantile(levels)``, and a row in ``registry.py``.
"""
