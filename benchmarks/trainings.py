"""Full 1-D trainings, at the paper's settings and by the library's own recipe, beside the direct form."""

import math
import time

import torch
from torch import Tensor, nn

from benchmarks.direct import DirectHead
from benchmarks.measure import Row, print_table
from ebreg import metrics, networks
from ebreg.datasets import TASKS, ToyTask, gustafsson
from ebreg.experiments.tables import TABLE1
from ebreg.experiments.toy.recipes import RECIPES
from ebreg.methods import JointNCE, Method
from ebreg.models import EnergyModel
from ebreg.training import fit
from ebreg.training.config import PAPER, TrainingConfig

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


def beside_direct(what: str, task: ToyTask, method: Method, config: TrainingConfig, n_direct: int) -> Row:
    """A whole training beside some epochs of the direct one, whose time is scaled to all of them.

    The two take turns epoch by epoch, so that a drift of the machine falls on both.
    """
    direct, times = DirectTraining(task), []

    def one_direct_epoch(epoch: int) -> None:
        if epoch <= n_direct:
            start = time.perf_counter()
            direct.epoch()
            times.append(time.perf_counter() - start)

    start = time.perf_counter()
    fit(method, (task.x_train, task.y_train), config=config, after_epoch=one_direct_epoch)
    ours = time.perf_counter() - start - sum(times)
    if n_direct == PAPER.epochs and task.name == "gustafsson":
        print(f"KL to the truth: ours {kl_to(task, method.model):.3f}, direct {direct.kl_to(task):.3f}")
    return Row(what, 1e3 * ours, 1e3 * sum(times) * PAPER.epochs / n_direct, target=2.0)


@torch.no_grad()
def kl_to(task: ToyTask, model: EnergyModel) -> float:
    """KL divergence from the truth to a model, on the task's grid."""
    x, y = task.x_grid()[::8], task.y_grid()
    f = model.f_grid(model.features(x.float()), y.float())
    return metrics.kl_on_grid(task.log_density(x.T, y), f.double()).mean().item()


def run() -> list[Row]:
    """Full trainings; some five minutes."""
    torch.manual_seed(0)
    task = gustafsson()
    parts = networks.paper_1d(K)
    paper = JointNCE(EnergyModel(parts.backbone, parts.energy, parts.mixture), n_draws=M, draws="independent")
    rows = [beside_direct("training, paper's 1-D settings", task, paper, PAPER, n_direct=PAPER.epochs)]
    for name, of in TASKS.items():
        task, modern = of(), RECIPES["modern"]
        method = modern.build(TABLE1.settings["modern"], task)
        what = f"training, modern, {name}; theirs: paper's settings"
        rows.append(beside_direct(what, task, method, modern.configs[name], n_direct=15))
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    print_table(run())
