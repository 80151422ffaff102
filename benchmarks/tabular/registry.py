"""The methods that are compared, by name."""

from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.tabular.ours import ours
from benchmarks.tabular.predicted import Method
from benchmarks.tabular.rivals.boosted_quantiles import BoostedQuantiles
from benchmarks.tabular.rivals.catboost_normal import CatBoostNormal
from benchmarks.tabular.rivals.deep_ensemble import DeepEnsemble
from benchmarks.tabular.rivals.forest import QuantileForest
from benchmarks.tabular.rivals.ngboost_normal import NGBoostNormal, NGBoostStopped
from benchmarks.tabular.rivals.spline_flow import SplineFlow

RIVALS: tuple[Method, ...] = (
    NGBoostStopped(),
    NGBoostNormal(),
    CatBoostNormal(),
    DeepEnsemble(),
    SplineFlow(),
    BoostedQuantiles(),
    QuantileForest(),
)


def methods(label: str = "") -> dict[str, Method]:
    """All methods by name; the label is added to the names of ours."""
    every: list[Method] = [*ours(label), *RIVALS]
    return {method.name: method for method in every}


def missing(method: Method) -> list[str]:
    """The packages that a method needs and that are not installed."""
    return [name for name in method.packages if _version(name) is None]


def versions(method: Method) -> str:
    """The packages of a method with their versions."""
    return ", ".join(f"{name} {_version(name)}" for name in method.packages)


def settings(method: Method) -> str:
    """The settings of a method, in the order of its fields."""
    shown: dict[str, Any] = {each.name: getattr(method, each.name) for each in fields(method)}  # type: ignore[arg-type]
    return ", ".join(f"{name}={_text(value)}" for name, value in shown.items())


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _version(name: str) -> str | None:
    if name == "ebreg":  # an older checkout may stand before the installed one
        import ebreg

        return ebreg.__version__
    try:
        return version(name)
    except PackageNotFoundError:
        return None
