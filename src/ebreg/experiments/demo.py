"""The demo: the paper's method on its first 1-D data set, trained, evaluated and drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ebreg import metrics, plots
from ebreg._utils.random_state import seeded
from ebreg.datasets import gustafsson
from ebreg.experiments.experiment import one_thread
from ebreg.methods import JointNCE
from ebreg.models import EnergyModel
from ebreg.training import fit
from ebreg.training.config import TrainingConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_N_DRAWS = 1024


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo."""

    kl_energy: float
    kl_proposal: float
    effective_sample_size: float
    n_draws: int
    seconds: float
    picture: Path

    def __str__(self) -> str:
        return "\n".join(
            [
                f"KL(truth || energy-based model)   {self.kl_energy:.4f}",
                "    (the paper's ten-wide networks, mean of the best 5 of 20 runs: 0.032)",
                f"KL(truth || proposal)             {self.kl_proposal:.4f}",
                f"effective sample size             {self.effective_sample_size:.0f} of {self.n_draws} draws",
                f"training                          {self.seconds:.1f} s",
                f"picture                           {self.picture}",
            ]
        )


def run(folder: Path, epochs: int = 100, seed: int = 0, progress: bool = True) -> DemoResult:
    """Train, evaluate and draw.

    Args:
        folder: Of the picture; an existing picture is kept, and the new one numbered.
        epochs: Epochs of the training.
        seed: Of the weights, the order of the data and the draws.
        progress: Whether to show a progress bar.
    """
    plots.require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    picture = _free_name(folder, "figure2", ".png")
    task = gustafsson()
    with seeded(seed):
        model = EnergyModel.for_table(task.x_train, task.y_train)
    config = TrainingConfig(epochs=epochs, seed=seed)
    with one_thread():
        training = fit(JointNCE(model), (task.x_train, task.y_train), config=config, progress=progress)
    x, y = task.x_grid()[::8], task.y_grid()
    p = model.predictive(x, n_draws=_N_DRAWS)
    targets = y[:, None].expand(-1, len(x), 1)  # (G, B, 1)
    densities = {
        "Ground truth": task.log_density(x.T, y),
        "Energy-based model": p.log_prob(targets),
        "Proposal": p.proposal.log_prob(targets),
    }
    _draw(x[:, 0], y[:, 0], densities, p.sample(4, torch.Generator().manual_seed(0))[..., 0], picture)
    truth, energy, proposal = densities.values()
    return DemoResult(
        kl_energy=metrics.kl_on_grid(truth, energy).mean().item(),
        kl_proposal=metrics.kl_on_grid(truth, proposal).mean().item(),
        effective_sample_size=p.effective_sample_size.mean().item(),
        n_draws=_N_DRAWS,
        seconds=training.seconds,
        picture=picture,
    )


def _draw(x: Tensor, y: Tensor, densities: dict[str, Tensor], samples: Tensor, picture: Path) -> None:
    every = 4  # of the grid is as fine as the picture
    panels: dict[str, Callable[[Axes], object]] = {
        title: partial(plots.density, x, y[::every], log_density[::every])
        for title, log_density in densities.items()
    }
    panels["Samples of the model"] = partial(plots.scatter, x.repeat(len(samples)), samples.flatten())
    figure, axes = plots.side_by_side(panels)
    axes[0].set_ylim(-1.6, 2.2)
    plots.save(figure, picture)


def _free_name(folder: Path, stem: str, suffix: str) -> Path:
    names = (folder / f"{stem}{'' if i == 1 else f'-{i}'}{suffix}" for i in range(1, 10_000))
    return next(path for path in names if not path.exists())
