"""The page: the prose of ``page.md`` with the tables and sentences that the runs give."""

from collections.abc import Mapping
from pathlib import Path
from string import Template

from benchmarks.tabular.comparison import results_tables, statements
from benchmarks.tabular.comparison.pairs import OURS, lowest
from benchmarks.tabular.comparison.ranking import Ranking
from benchmarks.tabular.comparison.selection import MIN_SPLITS, Selection
from benchmarks.tabular.comparison.wording import number, wrapped
from benchmarks.tabular.report import METRICS

TEMPLATE = Path(__file__).with_name("page.md")
RANKED = ("nll", "crps")
QUICK_SHARE = 0.1  # of the time of ours; page.md says "a tenth"


def page(selection: Selection, rankings: Mapping[str, Ranking]) -> str:
    """The Markdown.

    Args:
        selection: What is compared.
        rankings: For each name in RANKED.

    Raises:
        ValueError: If EnergyRegressor is not among the methods.
    """
    if OURS not in selection.methods:
        raise ValueError(f"{OURS} was not run on all tables, and the page compares others with it")
    lowest_of = {name: lowest(selection, METRICS[name].value) for name in ("nll", "crps", "rmse")}
    quick = lowest(selection, METRICS["crps"].value, QUICK_SHARE)
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        n_methods=number(len(selection.methods)).capitalize(),
        n_ours=number(len(selection.ours)),
        min_splits=number(MIN_SPLITS),
        methods_table=results_tables.methods(selection),
        splits_table=results_tables.splits(selection),
        notes=statements.notes(selection),
        nll_table=results_tables.nll(selection, rankings),
        without_density=statements.without_density(selection),
        crps_table=results_tables.crps(selection, rankings),
        coverage_table=results_tables.coverage(selection, rankings),
        coverage_distance=statements.coverage_distance(selection),
        seconds_table=results_tables.fit_seconds(selection, rankings),
        ranks_table=results_tables.average_ranks(rankings),
        tests=statements.tests(rankings),
        needed_ranks=statements.needed_ranks(rankings),
        crps_summary=statements.lower_on(lowest_of["crps"], "CRPS"),
        lowest_crps=results_tables.pairs(lowest_of["crps"], "CRPS"),
        tree_summary=statements.trees(selection),
        where_lower=results_tables.where_others_are_lower(selection),
        nll_summary=statements.lower_on(lowest_of["nll"], "NLL", in_nats=True),
        lowest_nll=results_tables.pairs(lowest_of["nll"], "NLL"),
        time_summary=statements.quick_fits(selection),
        quick_crps=results_tables.pairs(quick, "CRPS"),
        without_quick=statements.without_quick(quick),
        predict_summary=statements.predictions(selection),
        rmse_summary=statements.lower_on(lowest_of["rmse"], "RMSE of the mean"),
        lowest_rmse=results_tables.pairs(lowest_of["rmse"], "RMSE"),
    )
    return wrapped(text)
