"""Settings: the rows of the paper's tables, each a training method with its numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ebreg.experiments.mean_std import MeanStd
from ebreg.methods import METHODS, Method, MixtureNLL, MixtureTeacher, ResidualNCE
from ebreg.models import MixtureModel
from ebreg.networks import Networks
from ebreg.units import Units


@dataclass(frozen=True)
class Setting:
    """A training method with its numbers: one row of a table.

    Attributes:
        name: Its name on the command line and in records.
        group: The name of the method in reports.
        method: A name in ``ebreg.methods.METHODS``.
        recipe: Name of the recipe of Table 1; the tables of images take theirs from the command line.
        n_components: K, of the mixture.
        sigmas: Standard deviations of the hand-set noise, for the fixed methods.
        shares_backbone: Whether a teacher and its student share one backbone, trained by both losses.
        n_members: E, the number of models whose mean density is reported.
        dropout: Rates on the features, given to the members in turn.
        in_paper: Whether the paper has such a setting in any of its tables.
        n_runs: Number of trainings, each with its own seed.
        published: The paper's values by data set: of the best 5 of 20 runs on the test set.
        datasets: Names of the data sets on which it is trained; None: all of its table.
    """

    name: str
    group: str
    method: str
    recipe: str = "paper"
    n_components: int = 4
    sigmas: tuple[float, float] | None = None
    shares_backbone: bool = False
    n_members: int = 1
    dropout: tuple[float, ...] = ()
    in_paper: bool = True
    n_runs: int = 20
    published: dict[str, MeanStd] = field(default_factory=dict)
    datasets: tuple[str, ...] | None = None

    @property
    def label(self) -> str:
        """The number that distinguishes it in its group."""
        if self.sigmas is not None:
            return "sigma = {:g}, {:g}".format(*self.sigmas)
        members = "" if self.n_members == 1 else f", {self.n_members} members"
        return f"K = {self.n_components}{members}"

    @property
    def varied(self) -> float:
        """The number that is varied in its group: sigma1, or K."""
        return self.n_components if self.sigmas is None else self.sigmas[0]

    def applies_to(self, dataset: str) -> bool:
        """Whether it is trained on a data set."""
        return self.datasets is None or dataset in self.datasets

    def as_json(self) -> dict[str, Any]:
        """What a result depends on, as JSON reads it back."""
        return {
            "setting": self.name,
            "method": self.method,
            "n_components": self.n_components,
            "sigmas": None if self.sigmas is None else list(self.sigmas),
            "shares_backbone": self.shares_backbone,
            "n_members": self.n_members,
            "dropout": list(self.dropout),
            **({"correction": "position"} if self.method == ResidualNCE.name else {}),  # not of y itself
        }

    def build(
        self, networks: Callable[[], Networks], units: Units | None, n_draws: int, draws: str
    ) -> Method:
        """Build the method, with weights from torch's random state.

        ``networks`` is called a second time for a teacher with its own backbone. Without units the networks
        see the data as they are. ``draws`` is a name in ``ebreg.sampling.SAMPLERS``.
        """
        own = networks()
        if self.method == MixtureNLL.name:
            return MixtureNLL(MixtureModel.of(own, units))
        if self.method == MixtureTeacher.name:
            teacher = own if self.shares_backbone else networks()
            return MixtureTeacher(
                MixtureModel.of(own, units),
                teacher.energy,
                None if self.shares_backbone else teacher.backbone,
                n_draws,
                draws,
                tail=None if units is None else units.tail,
            )
        how: dict[str, Any] = {"draws": draws} if self.sigmas is None else {"sigmas": self.sigmas}
        how["n_draws"] = n_draws
        method = METHODS[self.method]
        return method(method.trains.of(own, units), **how)
