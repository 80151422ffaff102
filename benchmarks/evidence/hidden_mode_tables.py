"""Tables of how often a mode that the proposal misses has fooled the stated error."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import markdown_table
from benchmarks.trust.cases import CASES, NARROWEST, Case
from benchmarks.trust.measure import Result

# The first words of the names of cases, and what they are.
FAMILIES = {
    "two modes": "two equal modes, one known to the proposal",
    "spike": "a narrow mode with half or a tenth of the mass, beside a wide one that is known",
    "floor": "two narrow modes on level ground with up to a tenth of the mass, one known",
    "box": "a narrow mode beside a wide one, in a box of ±20 or ±1,000",
    "banana": "a thin curved ridge; the proposal has its mean and variances",
    "uniform": "level between two cliffs of 50 nats; the proposal is wide",
}


@dataclass(frozen=True)
class _Measured:
    case: Case
    before: Result
    now: Result


def seen(folder: Path) -> str:
    """One row for each family and number of targets: the worst of its cases, where modes are wide enough."""
    measured = [each for each in _measured(folder) if each.case.must]
    groups: dict[tuple[str, int], list[_Measured]] = {}
    for each in measured:
        groups.setdefault((_family(each.case), each.case.n_targets), []).append(each)
    order = list(FAMILIES)
    body = [
        [FAMILIES[family], str(D), f"{len(own)} x {own[0].now.n_seeds}", *_cells(own)]
        for (family, D), own in sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    ]
    return markdown_table(["density", "targets", "cases x seeds", *_TITLES], body)


def too_narrow(folder: Path) -> str:
    """One row for each case whose modes are narrower than the search sees."""
    body = [
        [each.case.name, str(each.now.n_seeds), *_cells([each])]
        for each in _measured(folder)
        if not each.case.must
    ]
    return markdown_table(["density", "seeds", *_TITLES], body)


def narrowest() -> str:
    """The narrowest modes that are seen, by the number of targets."""
    titles = ["targets", *map(str, range(1, 1 + len(NARROWEST)))]
    return markdown_table(titles, [["standard deviation", *(f"{scale:g}" for scale in NARROWEST)]])


_TITLES = ["fooled, before", "fooled, now", "flagged, now", "worst error without a flag, now"]


def _cells(own: Sequence[_Measured]) -> list[str]:
    # The worst of some cases.
    return [
        f"{max(each.before.fooled for each in own):.1%}",
        f"{max(each.now.fooled for each in own):.1%}",
        f"{max(each.now.flagged for each in own):.1%}",
        f"{max(each.now.worst for each in own):.3f}",
    ]


def _family(case: Case) -> str:
    return next(family for family in FAMILIES if case.name.startswith(family))


def _measured(folder: Path) -> list[_Measured]:
    before, now = (_results(folder / label) for label in ("before", "now"))
    missing = [case.name for case in CASES if case.name not in before or case.name not in now]
    if missing:
        raise ValueError(f"{folder} has no results of {', '.join(missing)}; run python -m benchmarks.trust")
    return [_Measured(case, before[case.name], now[case.name]) for case in CASES]


def _results(folder: Path) -> dict[str, Result]:
    results = (Result(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("*.json"))
    return {result.name: result for result in results}
