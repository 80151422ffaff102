"""The tables of the report."""

from benchmarks.growth.case import METHODS, REPEATS, Plan, Times
from benchmarks.growth.store import Store
from benchmarks.measure import markdown_table


def report(plan: Plan, store: Store) -> str:
    """A table for each factor, after what is said about all."""
    parts = ["# Growth of the time of fits and predictions", "Made by `python -m benchmarks.growth`."]
    parts += ["![CPU seconds against every factor](growth.png)", _notes(plan)]
    for factor, values in plan.values.items():
        titles = ["", "", *(f"{value:,}" for value in values), "last to first"]
        parts += [f"## {factor}", markdown_table(titles, _body(plan, store, factor))]
    return "\n\n".join(parts) + "\n"


def _notes(plan: Plan) -> str:
    base = plan.base
    return f"""\
* CPU seconds in one process and one thread: of a fit, and of `predict_interval` for {base.n_predicted:,}
  rows, the best of {REPEATS} calls. Every measurement is in `runs.csv`.
* One factor varies. The others are at the base: {base.n_rows:,} rows, {base.n_columns} columns, one target,
  and the method's own draws and members. *last to first*: the time at the largest value divided by that at
  the smallest one.
* A fit has default settings and chooses its own number of steps: by the number of rows, by early stopping,
  and by whether a long training follows a short one. Its time grows with the cost of a step and with the
  number of steps, so that two neighbouring values can differ by more than the factor explains.
* An energy without a correction of its mixture answers as its mixture, which is faster. So seeds 0, 1, ...
  are fitted until a fit has one, at most {base.most_fits} of them (*fits*); the last one predicts. *members
  with a correction*: of that fit; without any, its predictions have hollow marks in the picture. A mixture is
  fitted once.
* *fit* and *epochs* are means of the fits; epochs are those before fine-tuning."""


def _body(plan: Plan, store: Store, factor: str) -> list[list[str]]:
    body = []
    for method in METHODS:
        times = [store[case] for case in plan.cases(factor, method).values()]
        if times:
            body += [
                _line(method, "fit", [each.fit for each in times]),
                _line("", "predict_interval", [each.predict_interval for each in times]),
                ["", "epochs", *(f"{each.epochs:.0f}" for each in times), ""],
                *_corrected(times),
            ]
    return body


def _line(method: str, what: str, seconds: list[float]) -> list[str]:
    return [method, what, *(f"{each:.3g}" for each in seconds), f"{seconds[-1] / seconds[0]:.3g}"]


def _corrected(times: list[Times]) -> list[list[str]]:
    if times[0].corrected is None:
        return []
    return [
        ["", "fits", *(str(each.fits) for each in times), ""],
        ["", "members with a correction", *(str(each.corrected) for each in times), ""],
    ]
