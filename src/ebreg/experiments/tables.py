"""The paper's tables as data: their settings, their data sets and their metrics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ebreg._utils import checks
from ebreg.experiments import published
from ebreg.experiments.experiment import Experiment
from ebreg.experiments.mean_std import MeanStd
from ebreg.experiments.records import PAPER_METRIC
from ebreg.experiments.settings import Setting

# Makes an experiment of a setting, the name of a data set and a seed.
Make = Callable[[Setting, str, int], Experiment]


@dataclass(frozen=True)
class Metric:
    """A number that is reported of each run: its name in records, its title and digits in reports."""

    name: str
    title: str
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """A table of the paper, with rows beyond it.

    Attributes:
        name: On the command line.
        title: Of its report.
        settings: Its rows by name.
        datasets: What the paper measures on each data set, by the name of the set.
        metrics: What is reported of each run; the first is the paper's.
        notes: Lines of the report that explain the metrics and the settings.
        columns: Names of the settings that are its columns in the paper, in that order, and others to compare
            with them.
        digits: Decimals of the paper's values, by data set.
    """

    name: str
    title: str
    settings: Mapping[str, Setting]
    datasets: Mapping[str, str]
    metrics: tuple[Metric, ...]
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    digits: Mapping[str, int]

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names that stand for several settings."""
        return {
            "all": tuple(self.settings),
            "paper": tuple(name for name, setting in self.settings.items() if setting.published),
            "beyond": tuple(name for name, setting in self.settings.items() if not setting.published),
        }

    def known(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are of a setting of this table, or of a group."""
        return [name for name in names if name in self.groups or name in self.settings]

    def select(self, names: Iterable[str]) -> list[Setting]:
        """Settings by their names or those of groups, each once, in the order of the table."""
        names = list(names)
        for name in names:
            checks.one_of("a setting", name, [*self.groups, *self.settings])
        wanted = {each for name in names for each in self.groups.get(name, (name,))}
        return [setting for name, setting in self.settings.items() if name in wanted]

    def experiments(
        self,
        make: Make,
        settings: Sequence[str] = ("all",),
        datasets: Sequence[str] | None = None,
        n_runs: int | None = None,
    ) -> list[Experiment]:
        """The experiments of settings, or groups of them, on data sets (None: all); ``n_runs`` of each.

        They are ordered by seed, so that an unfinished table is even. A setting is left out on data sets that
        it does not apply to.

        Raises:
            ValueError: If a name is unknown, or none of the settings applies to any of the data sets.
        """
        if n_runs is not None:
            checks.at_least("runs", n_runs, 1)
        datasets = list(self.datasets if datasets is None else dict.fromkeys(datasets))
        for dataset in datasets:
            checks.one_of("a data set", dataset, self.datasets)
        chosen = self.select(settings)
        pairs = [(setting, name) for name in datasets for setting in chosen if setting.applies_to(name)]
        if chosen and datasets and not pairs:
            tasks = dict.fromkeys(name for setting in chosen for name in setting.datasets or ())
            raise ValueError(
                f"{', '.join(setting.name for setting in chosen)}: trained on {', '.join(tasks)} alone, as "
                f"in the paper, and not on {', '.join(datasets)}; choose other settings"
            )
        return [
            make(setting, dataset, seed)
            for seed in range(max((n_runs or setting.n_runs for setting, _ in pairs), default=0))
            for setting, dataset in pairs
            if seed < (n_runs or setting.n_runs)
        ]

    def find(self, make: Make, key: str, datasets: Sequence[str]) -> Experiment | None:
        """The experiment on one of the data sets that has this key; None if there is none."""
        dataset, _, rest = key.partition(".")
        name, _, seed = rest.rpartition(".")
        if dataset not in datasets or name not in self.settings or not seed.isdecimal():
            return None
        experiment = make(self.settings[name], dataset, int(seed))
        return experiment if experiment.key == key else None  # another spelling would count it twice


def _by_name(*settings: Setting) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


def _one_d(name: str, group: str, method: str, *means: float, **fields: Any) -> Setting:
    # A setting of Table 1; those that the paper does not report are trained five times.
    n_runs = 20 if means else 5
    by_name = dict(zip(("gustafsson", "brando"), map(MeanStd, means), strict=False))
    return Setting(name, group, method, **{"n_runs": n_runs, "published": by_name, **fields})


def _noise_1d(sigma: float) -> tuple[float, float]:
    return sigma, 8 * sigma


_NCE_1D = {  # sigma1: the paper's values on the two sets
    0.05: (0.042, 2.30),
    0.1: (0.036, 1.98),
    0.2: (0.040, 1.72),
    0.4: (0.042, 1.67),
    0.8: (0.042, 1.70),
}
_OURS_1D = {1: (0.038, 1.69), 4: (0.032, 1.67), 16: (0.035, 1.65)}
TABLE1 = Table(
    "table1",
    "Table 1",
    _by_name(
        # As published.
        *(_one_d(f"nce-{s:g}", "NCE", "fixed-nce", *v, sigmas=_noise_1d(s)) for s, v in _NCE_1D.items()),
        *(_one_d(f"ours-{K}", "Ours", "joint-nce", *v, n_components=K) for K, v in _OURS_1D.items()),
        # Beyond the paper: alternatives, and the mixture alone.
        *(_one_d(f"joint-mle-{K}", "Joint MLE", "joint-mle", n_components=K) for K in _OURS_1D),
        *(_one_d(f"mle-{s:g}", "MLE", "fixed-mle", sigmas=_noise_1d(s)) for s in _NCE_1D),
        *(_one_d(f"mdn-{K}", "MDN", "mdn-nll", n_components=K) for K in _OURS_1D),
        *(_one_d(f"mdn-teacher-{K}", "MDN + teacher", "mdn-teacher", n_components=K) for K in _OURS_1D),
        _one_d("modern", "Modern", "joint-nce", recipe="modern", n_components=8, n_runs=20),
    ),
    {
        "gustafsson": "KL divergence from the truth to the model",
        "brando": "NLL of the test points (the truth itself has 1.239)",
    },
    (Metric(PAPER_METRIC, "on the paper's grid", 4), Metric("predictive", "predictive distribution", 4)),
    (
        "* *predictive distribution*: by the library's predictive distribution, without a grid. Its value is",
        "  huge where f grows beyond the grid: such a model is not a density, which the grid hides.",
        "* NCE and MLE train a proposal too, which they need for predictions.",
    ),
    (*(f"nce-{sigma:g}" for sigma in _NCE_1D), *(f"ours-{K}" for K in _OURS_1D)),
    {"gustafsson": 3, "brando": 2},
)


_IMAGE_METRICS = (
    Metric(PAPER_METRIC, "NLL on the paper's grid"),
    Metric("predictive", "NLL"),
    Metric("predictive_error", "its error"),
    Metric("sampled", "NLL by draws of q"),
    Metric("sampled_error", "its error"),
    Metric("log_ratio", "|log p - log q|"),
    Metric("rounded_nll", "NLL of the rounding interval"),
    Metric("crps", "CRPS"),
    Metric("mae", "MAE"),
)
_IMAGE_NOTES = (
    "* *NLL on the paper's grid*: energies are normalised by a sum over the grid, which misses mass between",
    "  and beyond its points; mixtures are normalised already. Trust *NLL* where the two differ.",
    "* *NLL*: by the library's predictive distribution; *its error*: the mean error of log Z.",
    "* *NLL by draws of q*: with log Z from 1,024 draws of the proposal alone; *its error*: the same.",
    "* *|log p - log q|*: at the targets of the test images; how much the energy changes its proposal.",
    "* *NLL of the rounding interval*: of the interval that is rounded to the target.",
    "* *CRPS*, and *MAE* of the median: averaged over the targets.",
    "* *members*: not in the paper. Their mean density, weighted by their rates of dropout, 0.1 and 0.5;",
    "  each has a layer of its own on the same features, its own validation images, and rounded targets",
    "  that are spread over their interval in training.",
)


def _mixtures(*sizes: int) -> list[Setting]:
    # By method, then by K, as in the paper's Table 6; a K is trained on the tasks where the paper reports it.
    alone = [
        Setting(
            f"mdn-{K}",
            "MDN",
            "mdn-nll",
            n_components=K,
            published=published.MDN_NLL[K],
            datasets=tuple(published.MDN_NLL[K]),
        )
        for K in sizes
    ]
    taught = [
        replace(
            setting,
            name=f"mdn-teacher-{setting.n_components}",
            group="MDN + teacher",
            method="mdn-teacher",
            published=published.MDN_TEACHER[setting.n_components],
        )
        for setting in alone
    ]
    shared = [  # the paper leaves it for future work
        replace(
            setting,
            name=f"mdn-shared-teacher-{setting.n_components}",
            group="MDN + shared teacher",
            shares_backbone=True,
            in_paper=False,
            n_runs=5,
            published={},
        )
        for setting in taught
    ]
    return [*alone, *taught, *shared]


def _members() -> list[Setting]:
    # Several mixtures, and several energies that correct theirs: what the library's regressors train.
    shared: dict[str, Any] = {
        "n_components": 8,
        "n_members": 8,
        "dropout": (0.1, 0.5),
        "in_paper": False,
        "n_runs": 5,
    }
    return [
        Setting("members-mdn-8", "MDN", "mdn-nll", **shared),
        Setting("members-residual-8", "Residual energy", "residual-nce", **shared),
    ]


def _image_table(number: int, task: str, title: str) -> Table:
    paper = [
        *(
            Setting("nce-{:g}-{:g}".format(*sigmas), "NCE", "fixed-nce", sigmas=sigmas, published={task: nll})
            for sigmas, nll in published.NOISE[task].items()
        ),
        Setting("ours-4", "Ours", "joint-nce", published={task: published.OURS[task]}),
    ]
    return Table(
        f"table{number}",
        f"Table {number}: {title}",
        _by_name(
            *paper,
            # All methods on one data set.
            *(replace(setting, published={}, n_runs=5) for setting in _mixtures(4)),
            *_members(),
        ),
        {task: "NLL of the test images"},
        _IMAGE_METRICS,
        _IMAGE_NOTES,
        tuple(setting.name for setting in paper),
        {task: 2},
    )


_MIXTURES = _by_name(*_mixtures(4, 8, 16))
TABLE6 = Table(
    "table6",
    "Table 6: mixtures with and without an energy-based teacher",
    _MIXTURES | _by_name(*_members()),
    dict.fromkeys(published.OURS, "NLL of the test images"),
    _IMAGE_METRICS,
    (
        "* *MDN* and *MDN + teacher* are *NLL* and *Ours* in the paper. *MDN + shared teacher*, where",
        "  teacher and student have one backbone, is beyond the paper.",
        *_IMAGE_NOTES,
    ),
    tuple(_MIXTURES),
    dict.fromkeys(published.OURS, 2),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        TABLE1,
        _image_table(2, "steering", "steering angle"),
        _image_table(3, "cells", "cell count"),
        _image_table(4, "age", "age"),
        _image_table(5, "head-pose", "head pose"),
        TABLE6,
    )
}
IMAGE_TABLES = tuple(table for table in TABLES.values() if table is not TABLE1)
