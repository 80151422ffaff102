"""The report: one row for each family of problems, one column for each code that was measured."""

import json
from pathlib import Path
from typing import Any

from benchmarks.trust.cases import CASES, Case

_HEAD = """# How often the stated error is wrong

Written by `python -m benchmarks.trust`. Each density has a known normaliser, and its proposal misses a part
of the mass; each seed has places of its own. *Fooled* is the share of seeds in which log Z is off by more
than 0.05 and by more than twice the stated error, and the row is not flagged. The worst error is that of
rows without a flag.

"""


def report(folder: Path) -> str:
    """Markdown of all results in a folder."""
    labels = sorted(path.name for path in folder.iterdir() if path.is_dir())
    results = {label: _results(folder / label) for label in labels}
    columns = ("fooled", "flagged", "worst error", "stated there", "median stated", "seeds")
    heads = [
        f"{column}, {label}" if column != "seeds" else f"seeds, {label}"
        for label in labels
        for column in columns
    ]
    lines = [" | ".join(["| density", *heads]) + " |", "| --- " * (1 + len(heads)) + "|"]
    for case in CASES:
        cells = [cell for label in labels for cell in _cells(results[label].get(case.name))]
        if any(cells):
            lines.append(" | ".join([f"| {case.name}{_note(case)}", *cells]) + " |")
    return _HEAD + "\n".join(lines) + "\n"


def _results(folder: Path) -> dict[str, dict[str, Any]]:
    found = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json")))
    return {result["name"]: result for result in found}


def _cells(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return [""] * 6
    return [
        f"{result['fooled']:.1%}",
        f"{result['flagged']:.1%}",
        *(f"{result[name]:.4f}" for name in ("worst", "stated", "median_stated")),
        f"{result['n_seeds']}",
    ]


def _note(case: Case) -> str:
    return "" if case.must else " (beyond what the search sees)"
