"""Wording: numbers, lists and ranges as they stand on the page."""

import math
import re
import textwrap
from collections.abc import Iterable, Sequence

from benchmarks.tabular.summary import Mean

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LINE_LENGTH = 136
DIGITS = 3  # of scores


def number(value: int) -> str:
    """As a word up to ten."""
    return NUMBERS[value] if value < len(NUMBERS) else str(value)


def code(name: str) -> str:
    """The name of a method in the type of code: some have a comma in them."""
    return f"`{name}`"


def mean_text(mean: Mean, bold: bool = False, signed: bool = False, most: int | None = None) -> str:
    """Mean ± standard error; the number of splits in brackets if it is smaller than ``most``."""
    if math.isnan(mean.mean):
        return ""
    text = f"{mean.mean:{'+' if signed else ''}.{DIGITS}f}"
    text = f"**{text}**" if bold else text
    text += "" if math.isnan(mean.error) else f" ± {mean.error:.{DIGITS}f}"
    return text + (f" ({mean.n_splits})" if most is not None and mean.n_splits < most else "")


def seconds(value: float) -> str:
    """CPU seconds, with a decimal below ten."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def seconds_range(values: Sequence[float]) -> str:
    """From the smallest to the largest."""
    low, high = seconds(min(values)), seconds(max(values))
    return low if low == high else f"{low} to {high}"


def listing(names: Iterable[str], last: str = "and") -> str:
    """As in "a, b and c"."""
    *most, end = names
    return f"{', '.join(most)} {last} {end}" if most else end


def p_text(value: float) -> str:
    """A p value with two significant digits."""
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.2g}"


def wrapped(text: str) -> str:
    """Markdown with filled paragraphs and list entries; tables, headings and pictures are not changed."""
    return "\n\n".join(map(_filled, re.split(r"\n{2,}", text.strip()))) + "\n"


def _filled(block: str) -> str:
    if block.startswith(("|", "#", "!")):
        return block
    entries = re.split(r"\n(?=- )", block)
    return "\n".join(_entry(re.sub(r"\s*\n\s*", " ", entry)) for entry in entries)


def _entry(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    options = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": indent}
    return textwrap.fill(text, LINE_LENGTH, **options)  # type: ignore[arg-type]
