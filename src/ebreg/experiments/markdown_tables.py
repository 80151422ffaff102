"""Tables in Markdown, aligned so that they can be read as text."""

from collections.abc import Sequence


def lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    columns = [
        [text.ljust(max(map(len, column))) for text in column] for column in zip(header, *rows, strict=True)
    ]
    head, *body = ("| " + " | ".join(row) + " |" for row in zip(*columns, strict=True))
    rule = "| " + " | ".join("-" * len(column[0]) for column in columns) + " |"
    return [head, rule, *body]


def filled(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table without the columns that are empty below their titles."""
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    first, *others = zip(*columns, strict=True)
    return lines(first, others)
