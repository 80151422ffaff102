"""Sentences of the page that depend on the results."""

from collections.abc import Mapping, Sequence

from benchmarks.tabular.comparison.descriptions import TREES
from benchmarks.tabular.comparison.pairs import OURS, Pair, where_lower
from benchmarks.tabular.comparison.ranking import Ranking
from benchmarks.tabular.comparison.selection import MIN_SPLITS, TABLES, Selection
from benchmarks.tabular.comparison.wording import DIGITS, code, listing, number, p_text, seconds_range
from benchmarks.tabular.report import METRICS

QUICK_SECONDS = 5


def notes(selection: Selection) -> str:
    """Which methods have fewer splits than others, and which were left out."""
    fewer: dict[str, list[str]] = {}  # the tables of which a statement holds
    few = []
    for table, title in TABLES.items():
        most = selection.most_splits(table)
        counts = {name: len(selection.splits(table, name)) for name in selection.methods}
        parts = [f"{code(name)} {count}" for name, count in counts.items() if count < most]
        if parts:
            fewer.setdefault(f"fewer than {most} splits: {listing(parts)}", []).append(title)
        few += [f"{code(name)} on {title}" for name, count in counts.items() if count < MIN_SPLITS]
    lines = [f"- On {listing(titles)}, {statement}." for statement, titles in fewer.items()]
    if few:
        lines.append(f"- Ranked by the mean of fewer than {number(MIN_SPLITS)} splits: {listing(few)}.")
    if selection.left_out:
        names = listing(map(code, selection.left_out))
        lines.append(f"- Left out, as they were not run on all tables: {names}.")
    return "\n".join(lines) or "Every method has all splits."


def without_density(selection: Selection) -> str:
    """Which methods have no NLL."""
    with_density = selection.with_value(METRICS["nll"].value)
    names = [code(name) for name in selection.methods if name not in with_density]
    return f"Without a density: {listing(names)}." if names else "All methods have a density."


def coverage_distance(selection: Selection) -> str:
    """Mean distance of the coverage from 0.9, for each method, the smallest first."""
    value = METRICS["coverage"].value
    distances = {
        name: sum(abs(selection.mean(table, name, value).mean - 0.9) for table in TABLES) / len(TABLES)
        for name in selection.methods
    }
    names = sorted(distances, key=distances.__getitem__)
    return listing(f"{distances[name]:.3f} ({code(name)})" for name in names)


def tests(rankings: Mapping[str, Ranking]) -> str:
    """Results of the tests of Friedman and Nemenyi."""
    lines = []
    for name, ranking in rankings.items():
        best, *others = ranking.average
        with_best = next((group for group in ranking.groups if group[0] == best), [best])
        near = listing(map(code, with_best[1:])) if with_best[1:] else "none"
        far = [code(other) for other in others if other not in with_best]
        lines.append(
            f"- **By {METRICS[name].title}** ({number(len(ranking.average))} methods): Friedman's test that "
            f"all are equal has {p_text(ranking.p_value)}. The critical difference is "
            f"{ranking.critical_difference:.2f} ranks. {code(best)} has the lowest average rank. Not shown "
            f"to differ from it: {near}. Significantly worse: {listing(far) if far else 'none'}."
        )
    return "\n".join(lines)


def needed_ranks(rankings: Mapping[str, Ranking]) -> str:
    """The critical differences beside the largest possible ones."""
    return listing(
        f"{ranking.critical_difference:.1f} of at most {len(ranking.average) - 1} ranks apart by "
        f"{METRICS[name].title}"
        for name, ranking in rankings.items()
    )


def lower_on(found: Sequence[Pair], title: str, in_nats: bool = False) -> str:
    """On which tables the best other method is better than ours."""
    lower = [pair for pair in found if pair.is_lower]
    if not lower:
        return f"By {title}, no other method is lower than ours on any of the six tables."
    amount = _nats if in_nats else _percent
    parts = [f"{TABLES[pair.table]} ({code(pair.method)}, {amount(pair)})" for pair in lower]
    clear = [TABLES[pair.table] for pair in lower if pair.is_clear]
    return (
        f"By {title}, another method is lower than ours on {number(len(lower))} of the six tables: "
        f"{listing(parts)}. The difference is larger than two standard errors on "
        f"{listing(clear) if clear else 'none of them'}."
    )


def without_quick(found: Sequence[Pair]) -> str:
    """The tables on which no other method is that quick."""
    tables = {pair.table for pair in found}
    missing = [title for table, title in TABLES.items() if table not in tables]
    return f"No other method is that quick on {listing(missing)}." if missing else ""


def trees(selection: Selection) -> str:
    """Where methods of trees have the lower CRPS, and what they cost."""
    lines = []
    for name in (name for name in TREES if name in selection.methods):
        lower = where_lower(selection, name, METRICS["crps"].value)
        if lower:
            tables = listing(f"{TABLES[pair.table]} ({_percent(pair)})" for pair in lower)
            theirs = seconds_range([pair.their_seconds for pair in lower])
            ours = seconds_range([pair.our_seconds for pair in lower])
            lines.append(
                f"- {code(name)}: lower CRPS on {tables}. Its fits take {theirs} CPU seconds there, "
                f"ours {ours}."
            )
    if not lines:
        return "No method of trees has a lower CRPS than ours on any of the six tables."
    return "Methods of trees with a lower CRPS than ours:\n\n" + "\n".join(lines)


def quick_fits(selection: Selection) -> str:
    """Times of ours, and the methods whose fits take a few seconds."""
    value = METRICS["fit_seconds"].value
    times = {
        name: {table: selection.mean(table, name, value).mean for table in TABLES}
        for name in selection.methods
    }
    ours = [
        f"{code(name)} takes {seconds_range(list(times[name].values()))} CPU seconds for a fit"
        for name in selection.methods
        if name in selection.ours
    ]
    quick = []
    for name in selection.methods:
        tables = [TABLES[table] for table, time in times[name].items() if time < QUICK_SECONDS]
        if tables:
            where = "all tables" if len(tables) == len(TABLES) else listing(tables)
            quick.append(f"{code(name)} on {where}")
    which = "; ".join(quick) if quick else "none"
    return f"{'; '.join(ours)}. Below {number(QUICK_SECONDS)} seconds: {which}."


def predictions(selection: Selection) -> str:
    """Times of predictions, of ours and of the other methods."""
    value = METRICS["predict_seconds"].value
    largest = list(TABLES)[-1]
    times = {name: selection.mean(largest, name, value).mean for name in selection.methods}
    run = next(iter(selection.runs[largest, OURS].values()))
    texts = listing(f"{code(name)} {times[name]:.2g}" for name in sorted(times, key=times.__getitem__))
    return (
        f"CPU seconds for the mean, the log density and 219 quantiles of the {run.n_test:,} test rows of "
        f"{TABLES[largest]}: {texts}."
    )


def _nats(pair: Pair) -> str:
    # An NLL has no natural zero, so a ratio of two would mean nothing.
    return f"by {-pair.difference.mean:.{DIGITS}f} nats"


def _percent(pair: Pair) -> str:
    percent = -100 * pair.difference.mean / pair.ours.mean
    return f"by {percent:.{0 if percent >= 1 else 1}f} %"
