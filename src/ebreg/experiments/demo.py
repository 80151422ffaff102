"""The demo: the paper's method on its first 1-D data set, trained, evaluated and drawn."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from ebreg import metrics, plots
from ebreg._utils.random_state import seeded
from ebreg.datasets import gustafsson
from ebreg.experiments.experiment import one_thread
from ebreg.methods import JointNCE
from ebreg.models import EnergyModel
from ebreg.predictive import Accuracy
from ebreg.training import fit
from ebreg.training.config import TrainingConfig

_N_DRAWS = 1024


def run(folder: Path, epochs: int = 100, seed: int = 0, progress: bool = True) -> str:
    """Train, evaluate and draw; returns the results as text. An existing picture is kept."""
    plots.require_matplotlib()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, and the picture needs a folder; give another path")
    folder.mkdir(parents=True, exist_ok=True)
    names = (folder / f"figure2{'' if i == 1 else f'-{i}'}.png" for i in range(1, 10_000))
    picture = next(path for path in names if not path.exists())
    task = gustafsson()
    with seeded(seed):
        model = EnergyModel.for_table(task.x_train, task.y_train)
    config = TrainingConfig(epochs=epochs, seed=seed)
    with one_thread():
        training = fit(JointNCE(model), (task.x_train, task.y_train), config=config, progress=progress)
    x, y = task.x_grid()[::8], task.y_grid()
    targets = y[:, None].expand(-1, len(x), 1)  # (G, B, 1)
    with torch.no_grad():
        p = model.predictive(x, Accuracy(n_diagnostic_draws=_N_DRAWS))
        truth, energy, proposal = task.log_density(x.T, y), p.log_prob(targets), p.proposal.log_prob(targets)
    samples = p.sample(4, torch.Generator().manual_seed(0))
    every = 4  # of the grid is as fine as the picture
    densities = {"Ground truth": truth, "Energy-based model": energy, "Proposal": proposal}
    panels: dict[str, Any] = {
        title: partial(plots.density, x[:, 0], y[::every, 0], log_density[::every])
        for title, log_density in densities.items()
    }
    panels["Samples of the model"] = partial(plots.scatter, x[:, 0].repeat(4), samples.flatten())
    figure, axes = plots.side_by_side(panels)
    axes[0].set_ylim(-1.6, 2.2)
    plots.save(figure, picture)
    return "\n".join(
        [
            f"KL(truth || energy-based model)   {metrics.kl_on_grid(truth, energy).mean():.4f}",
            "    (the paper's ten-wide networks, mean of the best 5 of 20 runs: 0.032)",
            f"KL(truth || proposal)             {metrics.kl_on_grid(truth, proposal).mean():.4f}",
            f"effective sample size             {p.effective_sample_size.mean():.0f} of {_N_DRAWS} draws",
            f"training                          {training.seconds:.1f} s",
            f"picture                           {picture}",
        ]
    )
