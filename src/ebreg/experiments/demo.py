"""The demo: train the paper's method on its first 1-D data set; draw truth, model, proposal and samples."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ebreg import metrics, plots
from ebreg.datasets import ToyTask, gustafsson
from ebreg.methods import JointNCE
from ebreg.models import EnergyModel
from ebreg.predictive import Accuracy, Predictive
from ebreg.training import fit
from ebreg.training.config import TrainingConfig


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured, and where the picture is."""

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
    """Train, measure, draw.

    Args:
        folder: Where the picture goes; a picture that is there already is kept, and the new one numbered.
        epochs: Passes over the data.
        seed: Of the weights, the order of the data and the draws.
        progress: Whether to show a progress bar.
    """
    plots.require_matplotlib()  # what can fail fails before the training
    folder.mkdir(parents=True, exist_ok=True)
    picture = _free_name(folder, "figure2", ".png")
    task = gustafsson()
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(seed)
        model = EnergyModel.for_table(task.x_train, task.y_train)
    training = fit(
        JointNCE(model),
        (task.x_train, task.y_train),
        config=TrainingConfig(epochs=epochs, seed=seed),
        progress=progress,
    )
    x = task.x_grid()[::8]
    n_draws = 1024
    p = model.predictive(x, Accuracy(n_diagnostic_draws=n_draws))
    targets = task.y_grid()[:, None].expand(-1, len(x), 1)  # (G, B, 1)
    truth = task.log_density(x.T, task.y_grid())
    energy, proposal = p.log_prob(targets), p.proposal.log_prob(targets)
    _draw(task, x, truth, energy, proposal, p, picture)
    return DemoResult(
        kl_energy=metrics.kl_on_grid(truth, energy).mean().item(),
        kl_proposal=metrics.kl_on_grid(truth, proposal).mean().item(),
        effective_sample_size=p.effective_sample_size.mean().item(),
        n_draws=n_draws,
        seconds=training.seconds,
        picture=picture,
    )


def _draw(
    task: ToyTask, x: Tensor, truth: Tensor, energy: Tensor, proposal: Tensor, p: Predictive, picture: Path
) -> None:
    every = 4  # of the grid is as fine as the picture
    y = task.y_grid()[::every, 0]
    samples = p.sample(4, torch.Generator().manual_seed(0))[..., 0]
    figure, axes = plots.side_by_side(
        {
            "Ground truth": lambda ax: plots.density(x[:, 0], y, truth[::every], ax),
            "Energy-based model": lambda ax: plots.density(x[:, 0], y, energy[::every], ax),
            "Proposal": lambda ax: plots.density(x[:, 0], y, proposal[::every], ax),
            "Samples of the model": lambda ax: plots.scatter(x[:, 0].repeat(4), samples.flatten(), ax),
        }
    )
    axes[0].set_ylim(-1.6, 2.2)
    plots.save(figure, picture)


def _free_name(folder: Path, stem: str, suffix: str) -> Path:
    names = (folder / f"{stem}{'' if i == 1 else f'-{i}'}{suffix}" for i in range(1, 10_000))
    return next(path for path in names if not path.exists())
