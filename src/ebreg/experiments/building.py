"""From a cell to the method that it names."""

from collections.abc import Callable
from typing import Any

from ebreg.experiments.cells import Cell
from ebreg.methods import METHODS, Method, MixtureNLL, MixtureTeacher
from ebreg.models import EnergyModel, MixtureModel
from ebreg.networks import Networks
from ebreg.units import Units


def method_of(
    cell: Cell, networks: Callable[[], Networks], units: Units | None, n_draws: int, draws: str
) -> Method:
    """A new method for a cell, with weights from torch's random state.

    Args:
        cell: The setting.
        networks: Makes networks; called a second time for a teacher with a backbone of its own.
        units: None keeps the user's units inside too.
        n_draws: M.
        draws: A name in ``ebreg.sampling.SAMPLERS``, for the methods that draw from q.
    """
    parts = networks()
    if cell.method == MixtureNLL.name:
        return MixtureNLL(MixtureModel.of(parts, units))
    if cell.method == MixtureTeacher.name:
        teacher = parts if cell.shares_backbone else networks()
        return MixtureTeacher(
            MixtureModel.of(parts, units),
            teacher.energy,
            None if cell.shares_backbone else teacher.backbone,
            n_draws,
            draws,
            tail=None if units is None else units.tail,
        )
    model, method = EnergyModel.of(parts, units), METHODS[cell.method]
    settings: dict[str, Any] = {"n_draws": n_draws}
    if cell.sigmas is not None:  # noise around the target, drawn as in the paper
        settings["sigmas"] = cell.sigmas
    else:
        settings["draws"] = draws
    return method(model, **settings)
