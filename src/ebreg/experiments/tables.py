"""The paper's tables as data: their settings, their data sets and their metrics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ebreg._utils import checks
from ebreg.experiments.experiment import Experiment
from ebreg.experiments.records import PAPER_METRIC
from ebreg.experiments.settings import Setting

# Makes an experiment of a setting, the name of a data set and a seed.
Make = Callable[[Setting, str, int], Experiment]


@dataclass(frozen=True)
class Metric:
    """A number that is reported of each run.

    Attributes:
        name: In records.
        title: In reports.
        digits: After the decimal point.
    """

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
        notes: Lines of the report that explain the metrics.
    """

    name: str
    title: str
    settings: Mapping[str, Setting]
    datasets: Mapping[str, str]
    metrics: tuple[Metric, ...]
    notes: tuple[str, ...]

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names that stand for several settings."""
        return {
            "all": tuple(self.settings),
            "paper": tuple(name for name, setting in self.settings.items() if setting.published),
            "beyond": tuple(name for name, setting in self.settings.items() if not setting.published),
        }

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
        """The experiments of settings on data sets, seed by seed, so that an unfinished table is even.

        Args:
            make: Makes an experiment.
            settings: Names of settings or of groups of them.
            datasets: Names of the data sets; None: all.
            n_runs: Runs of each setting; None: its own number.
        """
        if n_runs is not None:
            checks.at_least("runs", n_runs, 1)
        datasets = list(self.datasets if datasets is None else dict.fromkeys(datasets))
        for dataset in datasets:
            checks.one_of("a data set", dataset, self.datasets)
        chosen = self.select(settings)
        wanted = {setting.name: n_runs or setting.n_runs for setting in chosen}
        return [
            make(setting, dataset, seed)
            for seed in range(max(wanted.values(), default=0))
            for dataset in datasets
            for setting in chosen
            if seed < wanted[setting.name]
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


_SIGMAS = (0.05, 0.1, 0.2, 0.4, 0.8)
_RATIO = 8  # of sigma2 to sigma1, in the 1-D experiments
_COMPONENTS = (1, 4, 16)


def _nce_1d(sigma: float, gustafsson: float, brando: float) -> Setting:
    published = {"gustafsson": gustafsson, "brando": brando}
    return Setting(f"nce-{sigma:g}", "NCE", "fixed-nce", sigmas=(sigma, _RATIO * sigma), published=published)


def _ours_1d(K: int, gustafsson: float, brando: float) -> Setting:
    published = {"gustafsson": gustafsson, "brando": brando}
    return Setting(f"ours-{K}", "Ours", "joint-nce", n_components=K, published=published)


def _mle_1d(sigma: float) -> Setting:
    return Setting(f"mle-{sigma:g}", "MLE", "fixed-mle", sigmas=(sigma, _RATIO * sigma), n_runs=5)


TABLE1 = Table(
    "table1",
    "Table 1",
    _by_name(
        # As published.
        _nce_1d(0.05, 0.042, 2.30),
        _nce_1d(0.1, 0.036, 1.98),
        _nce_1d(0.2, 0.040, 1.72),
        _nce_1d(0.4, 0.042, 1.67),
        _nce_1d(0.8, 0.042, 1.70),
        _ours_1d(1, 0.038, 1.69),
        _ours_1d(4, 0.032, 1.67),
        _ours_1d(16, 0.035, 1.65),
        # Alternatives that were never reported, and the mixture alone.
        *(Setting(f"joint-mle-{K}", "Joint MLE", "joint-mle", n_components=K, n_runs=5) for K in _COMPONENTS),
        *map(_mle_1d, _SIGMAS),
        *(Setting(f"mdn-{K}", "MDN", "mdn-nll", n_components=K, n_runs=5) for K in _COMPONENTS),
        *(
            Setting(f"mdn-teacher-{K}", "MDN + teacher", "mdn-teacher", n_components=K, n_runs=5)
            for K in _COMPONENTS
        ),
        # The library's own recipe.
        Setting("modern", "Modern", "joint-nce", recipe="modern", n_components=8),
    ),
    {
        "gustafsson": "KL divergence from the truth to the model",
        "brando": "NLL of the test points (the truth itself has 1.239)",
    },
    (Metric(PAPER_METRIC, "on the paper's grid", 4), Metric("predictive", "predictive distribution", 4)),
    (
        "* *predictive distribution*: normalised by the library's predictive distribution, not on a grid. Its",
        "  value is huge where f grows beyond the grid: such a model is not a density, which the grid hides.",
        "* NCE and MLE train a proposal too, which they need for predictions.",
    ),
)


# The noise of NCE that the paper tries on each task, and its NLL; then that of the proposed method.
_NOISE: dict[str, dict[tuple[float, float], float]] = {
    "steering": {(0.1, 20): 1.59, (1, 20): 1.51, (2, 20): 1.56, (1, 10): 2.03, (1, 40): 1.39},
    "cells": {(0.1, 40): 2.71, (1, 40): 2.64, (2, 40): 2.65, (1, 20): 3.12, (1, 80): 2.70},
    "age": {(0.01, 20): 4.18, (0.1, 20): 3.81, (1, 20): 4.13, (0.1, 10): 3.97, (0.1, 40): 4.47},
    "head-pose": {(0.1, 20): 13.68, (1, 20): 10.99, (2, 20): 10.85, (1, 10): 10.73, (1, 40): 11.20},
}
_OURS = {"steering": 1.58, "cells": 2.66, "age": 4.30, "head-pose": 9.51}
# Mixtures by their log-likelihood and with a teacher, by K.
_MIXTURES: dict[str, dict[int, tuple[float, float]]] = {
    "steering": {4: (1.45, 1.00), 8: (1.25, 1.01)},
    "cells": {4: (2.80, 2.80), 8: (2.90, 2.75)},
    "age": {4: (4.88, 3.57), 8: (4.71, 3.65)},
    "head-pose": {4: (11.02, 8.69), 8: (10.68, 8.79), 16: (10.71, 8.77)},
}
_IMAGE_METRICS = (
    Metric(PAPER_METRIC, "NLL on the paper's grid"),
    Metric("predictive", "NLL"),
    Metric("predictive_error", "its error"),
    Metric("sampled", "NLL by draws of q"),
    Metric("sampled_error", "its error"),
    Metric("rounded_nll", "NLL of the rounding interval"),
    Metric("crps", "CRPS"),
    Metric("mae", "MAE"),
)
_IMAGE_NOTES = (
    "* *NLL*: by the library's predictive distribution; *its error*: the mean error of log Z.",
    "* *NLL by draws of q*: with log Z from 1,024 draws of the proposal alone; *its error*: the same.",
    "* *NLL of the rounding interval*: of the interval that is rounded to the target.",
    "* *CRPS*, and *MAE* of the median: averaged over the targets.",
)


def _mixtures(K: int) -> list[Setting]:
    by_column = [{task: values[K][i] for task, values in _MIXTURES.items() if K in values} for i in (0, 1)]
    return [
        Setting(f"mdn-{K}", "MDN", "mdn-nll", n_components=K, published=by_column[0]),
        Setting(f"mdn-teacher-{K}", "MDN + teacher", "mdn-teacher", n_components=K, published=by_column[1]),
        # Which the paper leaves for future work.
        Setting(
            f"mdn-shared-teacher-{K}",
            "MDN + shared teacher",
            "mdn-teacher",
            n_components=K,
            shares_backbone=True,
            n_runs=5,
        ),
    ]


def _image_table(number: int, task: str, title: str) -> Table:
    noise = [
        Setting("nce-{:g}-{:g}".format(*sigmas), "NCE", "fixed-nce", sigmas=sigmas, published={task: nll})
        for sigmas, nll in _NOISE[task].items()
    ]
    return Table(
        f"table{number}",
        f"Table {number}: {title}",
        _by_name(
            *noise,
            Setting("ours-4", "Ours", "joint-nce", published={task: _OURS[task]}),
            # All methods on one data set.
            *(replace(setting, published={}, n_runs=5) for setting in _mixtures(4)),
        ),
        {task: "NLL of the test images"},
        _IMAGE_METRICS,
        _IMAGE_NOTES,
    )


TABLE6 = Table(
    "table6",
    "Table 6: mixtures with and without an energy-based teacher",
    _by_name(*(setting for K in (4, 8, 16) for setting in _mixtures(K))),
    dict.fromkeys(_MIXTURES, "NLL of the test images"),
    _IMAGE_METRICS,
    _IMAGE_NOTES,
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
