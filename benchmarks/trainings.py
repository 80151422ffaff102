"""One full training of the paper's 1-D network at the paper's settings, ours beside the direct form."""

import math
import time

import torch
from torch import Tensor, nn

from benchmarks.direct import DirectHead
from benchmarks.measure import Row, print_table
from ebreg import metrics, networks
from ebreg.config import PAPER
from ebreg.datasets import ToyTask, gustafsson
from ebreg.methods import JointNCE
from ebreg.models import EnergyModel
from ebreg.training import fit

K, M = 4, 1024


class DirectTraining:
    """The paper's loop as it is described there: features repeated per draw, components on the last axis."""

    def __init__(self, task: ToyTask):
        self.x, self.y = task.x_train.float(), task.y_train.float()
        self.features = nn.Sequential(nn.Linear(1, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU())
        self.energy = DirectHead(10, 1, (10, 10), (10, 10), residual=True)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, K)) for _ in range(3)
        )
        modules = nn.ModuleList([self.features, self.energy, self.branches])
        self.optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3)

    def epoch(self) -> None:
        """One pass over the data."""
        for index in torch.randperm(len(self.x)).split(32):
            self._step(self.x[index], self.y[index])

    def _step(self, x: Tensor, y: Tensor) -> None:
        h = self.features(x)
        means, log_variances, logits = (branch(h.detach()) for branch in self.branches)  # (B, K)
        normal = torch.distributions.Normal(means, torch.exp(0.5 * log_variances))
        log_weights = logits.log_softmax(dim=1)

        def log_q(values: Tensor) -> Tensor:  # (M, B, 1) -> (M, B)
            return torch.logsumexp(normal.log_prob(values) + log_weights, dim=-1)

        with torch.no_grad():
            chosen = torch.multinomial(log_weights.exp(), M, replacement=True).T  # (M, B)
            draws = normal.sample((M,)).gather(2, chosen[..., None])  # (M, B, 1)
        logit_y = self.energy(h, y[None])[0] - log_q(y[None])[0].detach()
        f, log_q_draws = self.energy(h, draws), log_q(draws)
        logits = torch.cat([logit_y[None], f - log_q_draws.detach()])
        nce = (torch.logsumexp(logits, dim=0) - logit_y).mean()
        kl = (torch.logsumexp(f.detach() - log_q_draws, dim=0) - math.log(M)).mean()
        self.optimizer.zero_grad()
        (nce + kl).backward()
        self.optimizer.step()

    @torch.no_grad()
    def kl_to(self, task: ToyTask) -> float:
        """KL divergence from the truth to the model, on the task's grid."""
        x, y = task.x_grid()[::8], task.y_grid()
        h = self.features(x.float())
        f = self.energy(h, y.float()[:, None].expand(-1, len(x), 1))
        return metrics.kl_on_grid(task.log_density(x.T, y), f.double()).mean().item()


def run() -> list[Row]:
    torch.manual_seed(0)
    task = gustafsson()
    direct = DirectTraining(task)
    parts = networks.paper_1d(K)
    model = EnergyModel(parts.backbone, parts.energy, parts.mixture)
    # The two take turns epoch by epoch, so that a drift of the machine falls on both.
    direct_seconds = 0.0

    def one_direct_epoch(_: int) -> None:
        nonlocal direct_seconds
        start = time.perf_counter()
        direct.epoch()
        direct_seconds += time.perf_counter() - start

    start = time.perf_counter()
    fit(
        JointNCE(model, n_draws=M, draws="independent"),
        (task.x_train.float(), task.y_train.float()),
        config=PAPER,
        after_epoch=one_direct_epoch,
    )
    ours_seconds = time.perf_counter() - start - direct_seconds
    x, y = task.x_grid()[::8], task.y_grid()
    with torch.no_grad():
        f = model.f_grid(model.features(x.float()), y.float())
    kl = metrics.kl_on_grid(task.log_density(x.T, y), f.double()).mean().item()
    print(f"KL to the truth: ours {kl:.3f}, direct {direct.kl_to(task):.3f}")
    return [Row("training, paper's 1-D settings", 1e3 * ours_seconds, 1e3 * direct_seconds, target=2.0)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print_table(run())
