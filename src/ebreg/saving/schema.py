"""Schemas: the types and ranges that values read from JSON must have.

A check is a function of a name and a value. It returns nothing, or raises a ValueError that gives the name,
as in ``design.width``. Checks are combined::

    MODEL = fields(width=whole(1), names=none_or(each(text())), history=each(mapping(number())))
    MODEL("", facts)
"""

import math
from collections.abc import Callable
from typing import Any

Check = Callable[[str, Any], None]

# The whole numbers that every reader of JSON keeps exact.
LARGEST = 2**53


def whole(low: int = 0, high: int = LARGEST) -> Check:
    """A whole number from low to high."""

    def check(name: str, value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            _refuse(name, value, f"a whole number from {low} to {high}")

    return check


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    """A finite number from low to high."""

    def check(name: str, value: Any) -> None:
        if type(value) not in (int, float) or not (math.isfinite(value) and low <= value <= high):
            _refuse(name, value, f"a finite number from {low:g} to {high:g}")

    return check


def real(name: str, value: Any) -> None:
    """Any number; NaN and the infinite ones are allowed."""
    if type(value) not in (int, float):
        _refuse(name, value, "a number")


def text(*options: str) -> Check:
    """A string; one of the options, if there are any."""

    def check(name: str, value: Any) -> None:
        if type(value) is not str or (options and value not in options):
            _refuse(name, value, f"one of {', '.join(map(repr, options))}" if options else "a string")

    return check


def flag(name: str, value: Any) -> None:
    """True or False."""
    if type(value) is not bool:
        _refuse(name, value, "true or false")


def anything(name: str, value: Any) -> None:
    """Whatever JSON can hold."""


def none_or(inner: Check) -> Check:
    """None, or what another check accepts."""

    def check(name: str, value: Any) -> None:
        if value is not None:
            inner(name, value)

    return check


def either(*inner: Check) -> Check:
    """What one of several checks accepts; the last one writes the message."""

    def check(name: str, value: Any) -> None:
        for each_check in inner[:-1]:
            try:
                return each_check(name, value)
            except ValueError:
                continue
        return inner[-1](name, value)

    return check


def each(inner: Check) -> Check:
    """A list, every item of which another check accepts."""

    def check(name: str, value: Any) -> None:
        if type(value) is not list:
            _refuse(name, value, "a list")
        for i, item in enumerate(value):
            inner(f"{name}[{i}]", item)

    return check


def mapping(inner: Check) -> Check:
    """An object with any keys, every value of which another check accepts."""

    def check(name: str, value: Any) -> None:
        if type(value) is not dict:
            _refuse(name, value, "an object")
        for key, item in value.items():
            inner(f"{name}.{key}".lstrip("."), item)

    return check


def fields(**known: Check) -> Check:
    """An object with these keys and no others."""

    def check(name: str, value: Any) -> None:
        if type(value) is not dict:
            _refuse(name, value, "an object")
        if value.keys() != known.keys():
            wrong = sorted(value.keys() ^ known.keys())[0]
            what = "is missing" if wrong in known else "is not known"
            raise ValueError(f"{f'{name}.{wrong}'.lstrip('.')} {what}")
        for key, inner in known.items():
            inner(f"{name}.{key}".lstrip("."), value[key])

    return check


def _refuse(name: str, value: Any, wanted: str) -> None:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    raise ValueError(f"{name or 'the content'} must be {wanted}, got {shown}")
