"""The proposal beside the energy-based model, after each epoch of a training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ebreg import importance, metrics, sampling
from ebreg.datasets import ToyTask
from ebreg.models import EnergyModel
from ebreg.plots import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_N_X, _N_DRAWS = 128, 1024


@dataclass(frozen=True)
class EpochMetrics:
    """Metrics of a model after an epoch, averaged over inputs.

    Attributes:
        epoch: Epochs finished.
        ess: Effective sample size of draws of the proposal, divided by their number.
        gap: KL divergence from the energy-based model to the proposal, which trains the proposal.
        kl_energy: From the truth to the energy-based model.
        kl_proposal: From the truth to the proposal.
    """

    epoch: int
    ess: float
    gap: float
    kl_energy: float
    kl_proposal: float


@torch.no_grad()
def measure(task: ToyTask, model: EnergyModel, epoch: int) -> EpochMetrics:
    """Metrics of a model during its training."""
    x = task.x_grid()[:: max(1, task.n_x // _N_X)]
    y = task.y_grid()
    h, nodes = model.features(x), model.standardize(y)
    q = model.q(h)
    log_f = model.f_grid(h, nodes).double()
    log_q = q.log_prob(nodes[:, None].expand(-1, len(x), -1)).double()
    truth = task.log_density(x.T, y)
    draws = sampling.draw(q, sampling.independent(_N_DRAWS, len(x), 1, torch.Generator().manual_seed(0)))
    ess = importance.effective_sample_size(model.f(h, draws), q.log_prob(draws))
    return EpochMetrics(
        epoch=epoch,
        ess=ess.mean().item() / _N_DRAWS,
        gap=metrics.kl_on_grid(log_f, log_q).mean().item(),
        kl_energy=metrics.kl_on_grid(truth, log_f).mean().item(),
        kl_proposal=metrics.kl_on_grid(truth, log_q).mean().item(),
    )


def draw(histories: Mapping[str, Sequence[EpochMetrics]]) -> "Figure":
    """A column for each training: above the divergences, below the effective sample size."""
    figure, axes = canvas.pyplot().subplots(
        2,
        len(histories),
        figsize=(4.6 * len(histories), 5.0),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for (above, below), (name, history) in zip(axes.T, histories.items(), strict=True):
        epochs = [each.epoch for each in history]
        for label, attribute, color in (
            ("truth to EBM", "kl_energy", canvas.INK),
            ("truth to proposal", "kl_proposal", canvas.GREY),
            ("EBM to proposal", "gap", canvas.ACCENT),
        ):
            above.plot(epochs, [getattr(each, attribute) for each in history], color=color, label=label)
        above.set(yscale="log", title=name)
        below.plot(epochs, [each.ess for each in history], color=canvas.ACCENT)
        below.set(ylim=(0, 1), xlabel="epoch")
    axes[0, 0].set_ylabel("KL divergence")
    axes[1, 0].set_ylabel("effective sample size / M")
    canvas.legend(axes[0, -1])
    return figure
