"""The report of the finished runs: Markdown for readers, and its numbers as CSV."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from benchmarks.measure import markdown_table
from benchmarks.tabular.published import NGBOOST_NLL
from benchmarks.tabular.runs import Run, write_rows, write_text
from benchmarks.tabular.summary import Mean, RankTable, Value


@dataclass(frozen=True)
class Metric:
    """A column of the tables.

    Attributes:
        title: Its heading.
        value: Of a run.
        loss: Of a mean: the smallest is printed bold; None where no value is best.
        digits: Decimals; None: by the size of the values.
    """

    title: str
    value: Value
    loss: Callable[[float], float] | None = None
    digits: int | None = None


METRICS = {
    "nll": Metric("NLL", attrgetter("scores.nll"), float),
    "crps": Metric("CRPS", attrgetter("scores.crps"), float),
    "rmse": Metric("RMSE", attrgetter("scores.rmse"), float),
    "coverage": Metric("coverage of 90 %", attrgetter("scores.coverage"), lambda mean: abs(mean - 0.9)),
    "width": Metric("width of 90 %", attrgetter("scores.width")),
    "calibration_error": Metric("calibration error", attrgetter("scores.calibration_error"), float),
    "worst_nll": Metric("worst NLL", attrgetter("scores.worst_nll"), float),
    "worst_crps": Metric("worst CRPS", attrgetter("scores.worst_crps"), float),
    "correction": Metric("\\|log p - log q\\|", attrgetter("scores.correction")),
    "fit_seconds": Metric("fit, s", attrgetter("fit_seconds"), digits=1),
    "predict_seconds": Metric("predict, s", attrgetter("predict_seconds"), digits=2),
}
RANKED = ("nll", "crps")

NOTES = """\
* Mean ± standard error over the splits, which are the same for all methods; the column *splits* says how many
  were run. The best mean is bold. Where a split was run with several seeds, their mean is its value.
* NLL in nats and, as CRPS, RMSE and width, in the units of the target. Methods without a density have no NLL.
* *CRPS*: from 200 quantiles, for every method. *coverage*, *width*: of the interval from the quantile at 5 %
  to that at 95 %. *calibration error*: mean distance of the share of targets below a quantile from its level.
* *worst NLL*, *worst CRPS*: of the worst test row of a split, averaged over the splits.
* *|log p - log q|*: mean over the test rows, where the density corrects a proposal q: 0 for a mixture.
* *fit*, *predict*: CPU seconds, one thread. *fit* has the choice of iterations in it. *predict* is the mean,
  the log density and 219 quantiles of all test rows."""


def write_report(folder: Path, runs: Sequence[Run], command: str) -> str:
    """Write ``tabular.md`` and ``summary.csv``; returns the Markdown."""
    text = markdown(runs, command)
    write_text(folder / "tabular.md", text)
    rows = summary_rows(runs)
    write_rows(folder / "summary.csv", list(rows[0]) if rows else [], rows)
    return text


def markdown(runs: Sequence[Run], command: str) -> str:
    """The report."""
    parts = ["# Regression tables: ebreg beside other libraries", f"Made by `{command}`.", NOTES]
    parts += ["## Ranks", *_ranks(runs)]
    for table in _tables(runs):
        own = [run for run in runs if run.key.table == table]
        sizes = f"{own[0].n_train} training and {own[0].n_test} test rows"
        parts += [f"## {table}: {sizes}", _table(own)]
    parts += [*_published(runs), *_seeds(runs), *_settings(runs)]
    return "\n\n".join(parts) + "\n"


def summary_rows(runs: Sequence[Run]) -> list[dict[str, str]]:
    """A row for each table and method: means, standard errors and ranks."""
    by_metric = {name: RankTable.of(runs, METRICS[name].value) for name in RANKED}
    rows = []
    for table in _tables(runs):
        for method, own in _by_method([run for run in runs if run.key.table == table]).items():
            means = {name: Mean.over_splits(own, metric.value) for name, metric in METRICS.items()}
            row = {"table": table, "method": method, "n_splits": str(means["crps"].n_splits)}
            for name, mean in means.items():
                row |= {name: f"{mean.mean:.6g}", f"{name}_error": f"{mean.error:.3g}"}
            for name, ranks in by_metric.items():
                row[f"{name}_rank"] = f"{ranks.by_table.get(table, {}).get(method, math.nan):g}"
            rows.append(row)
    return rows


def _tables(runs: Sequence[Run]) -> list[str]:
    # The smallest first.
    sizes = {run.key.table: run.n_train for run in runs}
    return sorted(sizes, key=lambda name: (sizes[name], name))


def _by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    # The best CRPS first.
    names = {run.key.method for run in runs}
    own = {name: [run for run in runs if run.key.method == name] for name in names}
    return dict(sorted(own.items(), key=lambda item: Mean.over_splits(item[1], METRICS["crps"].value).mean))


def _table(runs: Sequence[Run]) -> str:
    by_method = _by_method(runs)
    columns = [_column(metric, list(by_method.values())) for metric in METRICS.values()]
    splits = [str(len({run.key.split for run in own})) for own in by_method.values()]
    body = zip(by_method, splits, *columns, strict=True)
    return markdown_table(["method", "splits", *(metric.title for metric in METRICS.values())], body)


def _column(metric: Metric, runs: Sequence[Sequence[Run]]) -> list[str]:
    means = [Mean.over_splits(own, metric.value) for own in runs]
    digits = _digits([mean.mean for mean in means]) if metric.digits is None else metric.digits
    if metric.loss is None:
        return [_text(mean, digits, bold=False) for mean in means]
    losses = [metric.loss(mean.mean) for mean in means]
    best = min((loss for loss in losses if not math.isnan(loss)), default=math.nan)
    return [_text(mean, digits, bold=loss == best) for mean, loss in zip(means, losses, strict=True)]


def _text(mean: Mean, digits: int, bold: bool) -> str:
    if math.isnan(mean.mean):
        return ""
    text = f"{mean.mean:.{digits}f}"
    error = "" if math.isnan(mean.error) else f" ± {mean.error:.{digits}f}"
    return (f"**{text}**" if bold else text) + error


def _digits(values: Sequence[float]) -> int:
    # At least three significant digits of every value, and at most three decimals.
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    return min(3, max(0, 2 - math.floor(math.log10(min(sizes))))) if sizes else 3


def _ranks(runs: Sequence[Run]) -> list[str]:
    by_metric = {name: RankTable.of(runs, METRICS[name].value) for name in RANKED}
    parts = []
    for name, table in by_metric.items():
        tables = [each for each in _tables(runs) if each in table.by_table]
        body = [
            [method, f"{rank:.2f}", *(f"{table.by_table[each][method]:g}" for each in tables)]
            for method, rank in table.average.items()
        ]
        title = METRICS[name].title
        splits = "; ".join(f"{each}: {', '.join(map(str, table.splits[each]))}" for each in tables)
        parts += [f"By {title}, 1 is best; the mean is over the tables. Splits: {splits}."]
        parts += [markdown_table(["method", "mean rank", *tables], body)]
        if table.left_out:
            names = ", ".join(table.left_out)
            parts += [f"Without a rank by {title}, as they were not run on every table: {names}."]
    return parts


def _published(runs: Sequence[Run]) -> list[str]:
    body = []
    for table in _tables(runs):
        own = [run for run in runs if run.key.table == table and run.key.method == "NGBoost"]
        if own and table in NGBOOST_NLL:
            mean, published = Mean.over_splits(own, METRICS["nll"].value), NGBOOST_NLL[table]
            cells = [str(mean.n_splits), _text(mean, 2, bold=False), f"{published:.2f}"]
            body.append([table, *cells, f"{mean.mean - published:+.2f}"])
    if not body:
        return []
    titles = ["table", "splits", "NLL here", "published", "difference"]
    return ["## NGBoost beside its published NLL", markdown_table(titles, body)]


def _seeds(runs: Sequence[Run]) -> list[str]:
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.key.table, run.key.method, run.key.split), []).append(run)
    several = {key: own for key, own in groups.items() if len(own) > 1}
    if not several:
        return []
    body = []
    for (table, method, split), own in sorted(several.items()):
        spreads = [_spread([METRICS[name].value(run) for run in own]) for name in RANKED]
        body.append([table, method, str(split), str(len(own)), *spreads])
    titles = ["table", "method", "split", "seeds", *(METRICS[name].title for name in RANKED)]
    text = "Mean ± standard deviation of the seeds of a split, with the smallest and the largest value."
    return ["## Spread between seeds", text, markdown_table(titles, body)]


def _spread(values: Sequence[float]) -> str:
    if any(map(math.isnan, values)):
        return ""
    mean, std = statistics.fmean(values), statistics.stdev(values)
    return f"{mean:.3f} ± {std:.3f} ({min(values):.3f} to {max(values):.3f})"


def _settings(runs: Sequence[Run]) -> list[str]:
    shown = {run.key.method: (run.versions, run.settings) for run in runs}
    body = [[method, *cells] for method, cells in sorted(shown.items())]
    return ["## Settings", markdown_table(["method", "version", "settings"], body)]
