"""The tables of the page, as Markdown."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.measure import markdown_table
from benchmarks.tabular.comparison.descriptions import DESCRIPTIONS
from benchmarks.tabular.comparison.pairs import OURS, Pair, where_lower
from benchmarks.tabular.comparison.ranking import Ranking
from benchmarks.tabular.comparison.selection import TABLES, Selection
from benchmarks.tabular.comparison.wording import DIGITS, code, mean_text, seconds, seconds_range
from benchmarks.tabular.published import LOWEST_NLL
from benchmarks.tabular.report import METRICS
from benchmarks.tabular.summary import Mean, Value

Rankings = Mapping[str, Ranking]


def methods(selection: Selection) -> str:
    """What each method is, and its version."""
    body = [
        [
            code(name),
            DESCRIPTIONS.get(name, "ours" if name in selection.ours else ""),
            _versions(selection, name),
        ]
        for name in selection.methods
    ]
    return markdown_table(["method", "what it is", "version"], body)


def splits(selection: Selection) -> str:
    """Sizes of the tables and numbers of splits."""
    body = []
    for table, title in TABLES.items():
        run = next(iter(selection.runs[table, selection.methods[0]].values()))
        numbers = selection.most_splits(table), len(selection.shared_splits(table))
        body.append([title, f"{run.n_train:,}", f"{run.n_test:,}", *map(str, numbers)])
    return markdown_table(["table", "training rows", "test rows", "splits", "shared, for the ranks"], body)


def nll(selection: Selection, rankings: Rankings) -> str:
    """Mean NLL of each method, with the lowest published values."""
    names = selection.with_value(METRICS["nll"].value)
    lines = _means(selection, names, METRICS["nll"].value, rankings["nll"])
    published = (LOWEST_NLL[table] for table in TABLES)
    lines.append(["*lowest published, not run here*", *(f"{value:.2f}, {name}" for value, name in published)])
    return _by_table(selection, lines)


def crps(selection: Selection, rankings: Rankings) -> str:
    """Mean CRPS of each method."""
    lines = _means(selection, selection.methods, METRICS["crps"].value, rankings["crps"])
    return _by_table(selection, lines)


def coverage(selection: Selection, rankings: Rankings) -> str:
    """Mean coverage of each method, in the order of the CRPS."""
    return _plain(selection, rankings, METRICS["coverage"].value, lambda mean: f"{mean.mean:.3f}")


def fit_seconds(selection: Selection, rankings: Rankings) -> str:
    """Mean time of a fit of each method, in the order of the CRPS."""
    return _plain(selection, rankings, METRICS["fit_seconds"].value, lambda mean: seconds(mean.mean))


def average_ranks(rankings: Rankings) -> str:
    """Average ranks by each score, in the order of the last one, which all methods have."""
    *_, last = rankings.values()
    body = [[code(name), *(_rank(ranking, name) for ranking in rankings.values())] for name in last.average]
    titles = [f"average rank by {METRICS[name].title}" for name in rankings]
    return markdown_table(["method", *titles], body)


def pairs(found: Sequence[Pair], title: str) -> str:
    """Another method beside ours, a line for each table."""
    if not found:
        return "There is none."
    body = []
    for pair in found:
        difference = mean_text(pair.difference, bold=pair.is_clear, signed=True)
        times = seconds(pair.their_seconds), seconds(pair.our_seconds)
        scores = f"{pair.theirs.mean:.{DIGITS}f}", f"{pair.ours.mean:.{DIGITS}f}", difference
        body.append([TABLES[pair.table], code(pair.method), *scores, str(pair.difference.n_splits), *times])
    titles = [f"its {title}", "ours", "difference", "splits", "CPU s of its fit", "of ours"]
    return markdown_table(["table", "other method", *titles], body)


def where_others_are_lower(selection: Selection) -> str:
    """For each other method: the tables where it is better than ours, and its times."""
    body = []
    for name in selection.methods:
        if name in selection.ours:
            continue
        has_nll = name in selection.with_value(METRICS["nll"].value)
        of_nll = _tables_of(where_lower(selection, name, METRICS["nll"].value)) if has_nll else "no density"
        of_crps = _tables_of(where_lower(selection, name, METRICS["crps"].value))
        body.append([code(name), of_crps, of_nll, _times(selection, name)])
    body.append(["*ours*", "", "", _times(selection, OURS)])
    return markdown_table(["method", "lower CRPS on", "lower NLL on", "CPU s of a fit"], body)


def _means(selection: Selection, names: Sequence[str], value: Value, ranking: Ranking) -> list[list[str]]:
    # The best average rank first; the best of a table bold, by the digits that are shown.
    decisive = {
        table: {name: round(selection.ranked_mean(table, name, value), DIGITS) for name in names}
        for table in TABLES
    }
    lines = []
    for name in sorted(names, key=list(ranking.average).index):
        cells = [
            mean_text(
                selection.mean(table, name, value),
                bold=decisive[table][name] == min(decisive[table].values()),
                most=selection.most_splits(table),
            )
            for table in TABLES
        ]
        lines.append([code(name), *cells])
    return lines


def _plain(selection: Selection, rankings: Rankings, value: Value, text: Callable[[Mean], str]) -> str:
    lines = [
        [code(name), *(text(selection.mean(table, name, value)) for table in TABLES)]
        for name in rankings["crps"].average
    ]
    return markdown_table(["", *TABLES.values()], lines)


def _by_table(selection: Selection, lines: list[list[str]]) -> str:
    counts = ["*splits*", *(str(selection.most_splits(table)) for table in TABLES)]
    return markdown_table(["", *TABLES.values()], [counts, *lines])


def _rank(ranking: Ranking, name: str) -> str:
    return f"{ranking.average[name]:.2f}" if name in ranking.average else ""


def _tables_of(found: Sequence[Pair]) -> str:
    titles = (f"**{TABLES[pair.table]}**" if pair.is_clear else TABLES[pair.table] for pair in found)
    return ", ".join(titles) or "none"


def _times(selection: Selection, name: str) -> str:
    value = METRICS["fit_seconds"].value
    return seconds_range([selection.mean(table, name, value).mean for table in TABLES])


def _versions(selection: Selection, name: str) -> str:
    found = {run.versions for table in TABLES for run in selection.runs[table, name].values()}
    return ", ".join(sorted(found))
