"""The paper's figures of the 1-D experiments."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ebreg import importance, plots, sampling
from ebreg.datasets import ToyTask
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.toy import train
from ebreg.models import EnergyModel
from ebreg.training.config import TrainingConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels = Mapping[str, "Callable[[Axes], object]"]

EPOCHS = (5, 10, 15, 20, 25)  # after which Figure S3 looks
# What a picture shows of the targets; beyond there is next to nothing.
_SEEN = {"gustafsson": (-1.6, 2.2), "brando": (-9.5, 10.5)}
_N_X, _N_Y = 256, 512


@dataclass(frozen=True)
class View:
    """A window on a data set: where densities are evaluated for a picture.

    Attributes:
        task: The data set.
        x: Shape (B, 1).
        y: Shape (G, 1).
    """

    task: ToyTask
    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, task: ToyTask) -> "View":
        """Of a data set."""
        x = torch.linspace(*task.x_range, _N_X, dtype=torch.float64)[:, None]
        y = torch.linspace(*_SEEN[task.name], _N_Y, dtype=torch.float64)[:, None]
        return cls(task, x, y)

    def truth(self, ax: "Axes") -> None:
        """The true density."""
        plots.density(self.x, self.y, self.task.log_density(self.x.T, self.y), ax)

    def data(self, ax: "Axes") -> None:
        """The training points."""
        self.points(self.task.x_train, self.task.y_train, ax)

    def points(self, x: Tensor, y: Tensor, ax: "Axes") -> None:
        """Any points, each of shape (n, 1)."""
        plots.scatter(x, y, ax)
        ax.set(xlim=self.task.x_range, ylim=_SEEN[self.task.name])

    def of_model(self, model: EnergyModel) -> Panels:
        """The densities of a model and of its proposal, computed now."""
        with torch.no_grad():
            h = model.features(self.x)
            energy = model.f_grid(h, model.standardize(self.y)).double()
            proposal = model.q(h).log_prob(model.standardize(self.y)[:, None].expand(-1, len(self.x), -1))
        return {
            "EBM": lambda ax: plots.density(self.x, self.y, energy, ax),
            "Proposal": lambda ax: plots.density(self.x, self.y, proposal.double(), ax),
        }


def draw_all(
    task: ToyTask,
    config: TrainingConfig,
    watch: Callable[[EnergyModel, int], None],
    progress: bool = True,
) -> "Iterator[tuple[str, Figure]]":
    """Train what the figures of a data set show, and draw them: their names, and the figures.

    Args:
        task: The data set.
        config: Of the trainings.
        watch: Called after every epoch of the training with K = 4, with the model and the number of epochs.
        progress: Whether to show progress bars.
    """
    view = View.of(task)
    yield "training-set", plots.side_by_side({"Training data": view.data, "Ground truth": view.truth})[0]
    growing: dict[str, Panels] = {}
    epochs = [epoch for epoch in EPOCHS if epoch <= config.epochs] or [config.epochs]

    def look(model: EnergyModel, epoch: int) -> None:
        watch(model, epoch)
        if epoch in epochs:
            growing[f"{epoch} epochs\ny"] = {"Ground truth": view.truth, **view.of_model(model)}

    model = train(TABLE1.cells["ours-4"], task, config, look, progress)
    yield "figure2", plots.side_by_side({"Ground truth": view.truth, **view.of_model(model)})[0]
    yield "figureS3", plots.panel_grid(growing, height=2.2)[0]
    narrow = train(TABLE1.cells["ours-1"], task, config, progress=progress)
    yield "figureS4", plots.side_by_side(_resampled(view, narrow, config.seed))[0]


def _resampled(view: View, model: EnergyModel, seed: int) -> Panels:
    # One component cannot hold what the energy does; its draws, chosen by their weights (Eq. 7), can.
    generator = torch.Generator().manual_seed(seed)
    x = view.task.x_train.sort(dim=0).values
    with torch.no_grad():
        h = model.features(x)
        q = model.q(h)
        draws = sampling.draw(q, sampling.independent(1024, len(x), 1, generator))
        weights = importance.normalized_weights(model.f(h, draws), q.log_prob(draws))
    chosen = importance.resample(draws, weights, 1, generator)[0]
    return {
        **view.of_model(model),
        "Samples of the EBM": lambda ax: view.points(x, model.y_units.inverse(chosen), ax),
    }
