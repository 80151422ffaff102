"""The paper's figures of the 1-D experiments."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ebreg import importance, plots, sampling
from ebreg.datasets import ToyTask
from ebreg.experiments import report
from ebreg.experiments.experiment import one_thread
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.toy import tracking
from ebreg.experiments.toy.experiment import ToyExperiment
from ebreg.experiments.toy.source import ToySource
from ebreg.experiments.toy.tracking import EpochMetrics
from ebreg.models import EnergyModel
from ebreg.saving import atomic_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels = Mapping[str, "Callable[[Axes], object]"]

_EPOCHS = (5, 10, 15, 20, 25)  # the rows of Figure S3
# Limits of the y axis; next to no mass lies beyond.
_Y_LIMITS = {"gustafsson": (-1.6, 2.2), "brando": (-9.5, 10.5)}
_N_X, _N_Y = 256, 512


def draw_all(
    folder: Path,
    sources: Sequence[ToySource],
    seed: int = 0,
    epochs: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Iterator[Path]:
    """Train and draw all figures, and write how the proposal follows the model; yields the pictures.

    The folder must be empty, unless its figures shall be overwritten.
    """
    plots.require_matplotlib()
    existing = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if existing and not overwrite:
        raise FileExistsError(
            f"{folder} holds {existing[0]} already; give another folder with --out, or --overwrite to replace"
        )
    trainings = [
        [ToyExperiment(TABLE1.settings[name], source, seed, epochs) for name in ("ours-4", "ours-1")]
        for source in sources
    ]
    for four, _ in trainings:
        four.check()
    atomic_files.require_room(folder)
    histories: dict[str, list[EpochMetrics]] = {}
    for source, (four, one) in zip(sources, trainings, strict=True):
        history = histories[source.name] = []
        for stem, figure in _draw(source.load(), four, one, history, progress):
            yield _save(figure, folder / f"{stem}-{source.name}.png")
    rows = [{"dataset": name, **asdict(each)} for name, history in histories.items() for each in history]
    report.write_text(folder / "tracking.csv", report.rows_csv(rows))
    yield _save(tracking.draw(histories), folder / "tracking.png")


def _save(figure: "Figure", path: Path) -> Path:
    plots.save(figure, path, dpi=160)
    return path


def _draw(
    task: ToyTask, four: ToyExperiment, one: ToyExperiment, history: list[EpochMetrics], progress: bool
) -> "Iterator[tuple[str, Figure]]":
    # The names and figures of a data set, from trainings with four components and with one.
    view = View(task)
    yield "training-set", plots.side_by_side({"Training data": view.data, "Ground truth": view.truth})[0]
    rows: dict[str, Panels] = {}
    n_epochs = four.config.epochs
    shown = [epoch for epoch in _EPOCHS if epoch <= n_epochs] or [n_epochs]

    def look(model: EnergyModel, epoch: int) -> None:
        history.append(tracking.measure(task, model, epoch))
        if epoch in shown:
            rows[f"{epoch} epochs\ny"] = {"Ground truth": view.truth, **view.of_model(model)}

    model = _train(four, progress, look)
    yield "figure2", plots.side_by_side({"Ground truth": view.truth, **view.of_model(model)})[0]
    yield "figureS3", plots.panel_grid(rows, height=2.2)[0]
    yield "figureS4", plots.side_by_side(_resampled(view, _train(one, progress), one.seed))[0]


def _train(
    experiment: ToyExperiment, progress: bool, look: Callable[[EnergyModel, int], None] | None = None
) -> EnergyModel:
    with one_thread():
        model, training = experiment.train(progress=progress, after_epoch=look)
    if training.interrupted:
        raise KeyboardInterrupt
    return model


def _resampled(view: "View", model: EnergyModel, seed: int) -> Panels:
    # One component is too simple for the energy; its draws, resampled by their weights (Eq. 7), are not.
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


class View:
    """Densities and points of a data set, on the grid of a picture: x of shape (B, 1), y of shape (G, 1)."""

    def __init__(self, task: ToyTask):
        self.task = task
        self.x = torch.linspace(*task.x_range, _N_X, dtype=torch.float64)[:, None]
        self.y = torch.linspace(*_Y_LIMITS[task.name], _N_Y, dtype=torch.float64)[:, None]

    def truth(self, ax: "Axes") -> None:
        """Draw the true density."""
        plots.density(self.x, self.y, self.task.log_density(self.x.T, self.y), ax)

    def data(self, ax: "Axes") -> None:
        """Draw the training points."""
        self.points(self.task.x_train, self.task.y_train, ax)

    def points(self, x: Tensor, y: Tensor, ax: "Axes") -> None:
        """Draw points, each of shape (n, 1)."""
        plots.scatter(x, y, ax)
        ax.set(xlim=self.task.x_range, ylim=_Y_LIMITS[self.task.name])

    def of_model(self, model: EnergyModel) -> Panels:
        """Panels of the densities of a model and its proposal, computed now."""
        with torch.no_grad():
            h = model.features(self.x)
            energy = model.f_grid(h, model.standardize(self.y)).double()
            proposal = model.q(h).log_prob(model.standardize(self.y)[:, None].expand(-1, len(self.x), -1))
        return {
            "EBM": lambda ax: plots.density(self.x, self.y, energy, ax),
            "Proposal": lambda ax: plots.density(self.x, self.y, proposal.double(), ax),
        }
