"""The page as text: its template, filled with tables."""

from pathlib import Path
from string import Template

from benchmarks.conformal.runs import Run as ConformalRun
from benchmarks.csv_store import CsvStore
from benchmarks.evidence import coverage_tables, hidden_mode_tables, trained_tables
from benchmarks.trained.runs import Run as TrainedRun

_TEMPLATE = Path(__file__).with_name("page.md")


def page(results: Path) -> str:
    """Fill the tables of the page from a folder of results."""
    conformal = list(CsvStore(results / "conformal" / "runs.csv", ConformalRun).read().values())
    trained = list(CsvStore(results / "trained" / "runs.csv", TrainedRun).read().values())
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(
        hidden_modes=hidden_mode_tables.seen(results / "trust"),
        narrow_modes=hidden_mode_tables.too_narrow(results / "trust"),
        narrowest=hidden_mode_tables.narrowest(),
        trained=trained_tables.accuracy(trained),
        flags=trained_tables.flags(conformal, results / "unusual" / "runs.csv"),
        coverage=coverage_tables.coverage(conformal),
        sizes=coverage_tables.sizes(conformal),
        near=coverage_tables.how_many_are_near(conformal),
    )
